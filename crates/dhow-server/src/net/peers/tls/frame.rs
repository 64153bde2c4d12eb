//! Frames: a length of four bytes, then so many bytes. The length is judged before anything else is read.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::net::peers::FRAME_BYTES_MAX;

/// The number of a question, before its bytes and before those of its answer.
const ID_BYTES: usize = 8;

/// Room for a frame is made piece by piece as it comes: a length alone costs no memory.
const ROOM_BYTES: usize = 64 * 1024;

/// A question or an answer.
#[derive(Debug)]
pub(super) struct Numbered {
    pub id: u64,
    pub body: Bytes,
}

pub(super) async fn read(from: &mut (impl AsyncRead + Unpin), bytes_max: usize) -> io::Result<Bytes> {
    let length = from.read_u32().await? as usize;
    if length > bytes_max {
        let text = format!("a frame of {length} bytes was announced, {bytes_max} are the most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut bytes = BytesMut::with_capacity(length.min(ROOM_BYTES));
    let mut rest = from.take(length as u64);
    while bytes.len() < length {
        if rest.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes.freeze())
}

pub(super) async fn read_numbered(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Numbered> {
    let mut body = read(from, ID_BYTES + FRAME_BYTES_MAX).await?;
    let id = body
        .try_get_u64()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a frame has no number"))?;
    Ok(Numbered { id, body })
}

pub(super) async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    let mut frame = BytesMut::with_capacity(4 + bytes.len());
    // Only hellos are written here, which are short.
    frame.put_u32(bytes.len() as u32);
    frame.put_slice(bytes);
    to.write_all(&frame).await?;
    to.flush().await
}

/// Writes into a buffer; the caller flushes.
pub(super) async fn write_numbered(to: &mut (impl AsyncWrite + Unpin), frame: &Numbered) -> io::Result<()> {
    let length = u32::try_from(ID_BYTES + frame.body.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a frame is too large"))?;
    to.write_u32(length).await?;
    to.write_u64(frame.id).await?;
    to.write_all(&frame.body).await
}

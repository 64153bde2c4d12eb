//! A client's connection on which a head and a short body go out as one piece. The kernel takes one piece with less ado than
//! two, and copying a few hundred bytes costs nothing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What is copied together: the head and the body of a usual answer. It stands on the stack.
const JOINED_MAX_BYTES: usize = 2 << 10;

/// A plain connection of a client.
pub struct JoinedWrites(pub TcpStream);

impl AsyncRead for JoinedWrites {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, room)
    }
}

impl AsyncWrite for JoinedWrites {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.get_mut().0);
        let mut joined = [0; JOINED_MAX_BYTES];
        let mut end = 0;
        for slice in slices {
            let Some(room) = joined.get_mut(end..end + slice.len()) else {
                return stream.poll_write_vectored(cx, slices);
            };
            room.copy_from_slice(slice);
            end += slice.len();
        }
        stream.poll_write(cx, joined.get(..end).unwrap_or_default())
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

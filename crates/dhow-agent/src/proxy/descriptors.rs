//! Passes descriptors over a Unix socket, many at a time.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The kernel takes at most 253 with one message.
const BATCH_MAX: usize = 128;
const SPACE_BYTES: usize = rustix::cmsg_space!(ScmRights(BATCH_MAX));

pub async fn send(stream: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    for batch in descriptors.chunks(BATCH_MAX) {
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); SPACE_BYTES];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !control.push(SendAncillaryMessage::ScmRights(batch)) {
                    return Err(io::Error::other("too many descriptors for one message"));
                }
                // One byte goes with them: a message without any would be lost.
                let count = [u8::try_from(batch.len()).map_err(io::Error::other)?];
                Ok(sendmsg(
                    stream,
                    &[IoSlice::new(&count)],
                    &mut control,
                    SendFlags::NOSIGNAL,
                )?)
            })
            .await?;
        if sent != 1 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

pub async fn receive(stream: &UnixStream, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut received = Vec::new();
    while received.len() < count {
        let batch = stream
            .async_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); SPACE_BYTES];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let mut byte = [0u8];
                let flags = RecvFlags::CMSG_CLOEXEC;
                let message = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
                if message.bytes == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let rights = control.drain().filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                    _ => None,
                });
                Ok(rights.flatten().collect::<Vec<OwnedFd>>())
            })
            .await?;
        if batch.is_empty() {
            return Err(io::Error::other("a message came without its descriptors"));
        }
        received.extend(batch);
    }
    Ok(received)
}

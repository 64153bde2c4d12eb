//! Two byte streams tied together: each direction ends by itself, and what breaks on one side breaks on the other.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::buffers::Buffer;
use super::mesh::DATA_MAX_BYTES;
use super::meters::{self, EndpointMeter};

/// What is read at once: what one frame of the tunnel carries.
const READ_BYTES: usize = DATA_MAX_BYTES;

/// Copies both ways until both sides have ended. An error means that one side broke off: the caller resets both, so
/// that neither takes it for a whole stream. A side that takes nothing more may have said something before: that is passed
/// on first, as when a server answers early and hangs up.
pub async fn relay<A, B>(one: &mut A, other: &mut B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    relay_counted(one, other, None).await
}

/// The same, with bytes counted as those that an endpoint has received from `one` and sent to it.
pub async fn relay_counted<A, B>(one: &mut A, other: &mut B, meter: Option<&EndpointMeter>) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut there = OneWay::counted_by(meter.map(|meter| &meter.received_bytes));
    let mut back = OneWay::counted_by(meter.map(|meter| &meter.sent_bytes));
    poll_fn(|cx| {
        let is_there = there.poll(cx, one, other)?.is_ready();
        let is_back = back.poll(cx, other, one)?.is_ready();
        match is_there && is_back {
            true => Poll::Ready(there.broke.take().or(back.broke.take()).map_or(Ok(()), Err)),
            false => Poll::Pending,
        }
    })
    .await
}

/// Closes with a reset: what is on its way is dropped, and the other side learns that there was more.
pub fn reset(stream: TcpStream) {
    // A socket that refuses is closed as usual.
    let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}

/// One direction.
#[derive(Default)]
struct OneWay<'a> {
    count: Option<&'a AtomicU64>,
    /// Only while there is something in it.
    buffer: Option<Buffer>,
    begin: usize,
    end: usize,
    is_unflushed: bool,
    phase: Phase,
    /// Why nothing more could be written.
    broke: Option<io::Error>,
}

#[derive(Clone, Copy, Default)]
enum Phase {
    #[default]
    Copying,
    Closing,
    Done,
}

impl<'a> OneWay<'a> {
    fn counted_by(count: Option<&'a AtomicU64>) -> Self {
        Self {
            count,
            ..Self::default()
        }
    }

    fn poll<A, B>(&mut self, cx: &mut Context<'_>, from: &mut A, to: &mut B) -> Poll<io::Result<()>>
    where
        A: AsyncRead + Unpin,
        B: AsyncWrite + Unpin,
    {
        loop {
            match self.phase {
                Phase::Done => return Poll::Ready(Ok(())),
                Phase::Closing => {
                    let closed = ready!(Pin::new(&mut *to).poll_shutdown(cx));
                    self.end(closed);
                }
                Phase::Copying if self.begin < self.end => {
                    if let Err(error) = ready!(self.write(cx, to)) {
                        self.end(Err(error));
                    }
                }
                Phase::Copying => ready!(self.read(cx, from, to))?,
            }
        }
    }

    fn end(&mut self, written: io::Result<()>) {
        self.broke = written.err();
        self.buffer = None;
        self.phase = Phase::Done;
    }

    fn write<B: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, to: &mut B) -> Poll<io::Result<()>> {
        let buffer = self.buffer.as_deref().unwrap_or_default();
        let rest = buffer.get(self.begin..self.end).unwrap_or_default();
        let count = ready!(Pin::new(to).poll_write(cx, rest))?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.begin += count;
        if let (Some(counted), Ok(count)) = (self.count, u64::try_from(count)) {
            meters::add(counted, count);
        }
        self.is_unflushed = true;
        Poll::Ready(Ok(()))
    }

    fn read<A, B>(&mut self, cx: &mut Context<'_>, from: &mut A, to: &mut B) -> Poll<io::Result<()>>
    where
        A: AsyncRead + Unpin,
        B: AsyncWrite + Unpin,
    {
        let buffer = self.buffer.get_or_insert_with(Buffer::take);
        let mut room = ReadBuf::new(buffer.get_mut(..READ_BYTES).unwrap_or_default());
        let read = Pin::new(from).poll_read(cx, &mut room);
        (self.begin, self.end) = (0, room.filled().len());
        match read {
            Poll::Ready(Ok(())) if self.end > 0 => return Poll::Ready(Ok(())),
            Poll::Ready(Ok(())) => {
                self.phase = Phase::Closing;
                self.buffer = None;
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => self.buffer = None,
        }
        if self.is_unflushed {
            let flushed = ready!(Pin::new(to).poll_flush(cx));
            self.is_unflushed = false;
            if flushed.is_err() {
                self.end(flushed);
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (one, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn what_was_said_before_a_reset_is_passed_on() {
        let ((mut client, mut near), (mut far, mut server)) = (pair().await, pair().await);
        let relaying = tokio::spawn(async move {
            let relayed = relay(&mut near, &mut far).await;
            reset(near);
            relayed
        });
        server.write_all(b"no").await.unwrap();
        client.write_all(b"much").await.unwrap();
        let mut much = [0; 4];
        while server.peek(&mut much).await.unwrap() < much.len() {}
        // It hangs up with something unread, which is a reset.
        drop(server);
        let mut answer = [0; 2];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"no");
        assert!(relaying.await.unwrap().is_err());
        assert!(client.read_u8().await.is_err());
    }
}

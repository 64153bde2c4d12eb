//! Two byte streams tied together: each direction ends by itself, and what breaks on one side breaks on the other.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use super::buffers::Buffer;
use super::mesh::DATA_MAX_BYTES;
use super::meters::{self, EndpointMeter};

/// What is read at once: what one frame of the tunnel carries.
const READ_BYTES: usize = DATA_MAX_BYTES;
/// How long one direction may stand still once the other has broken. Whoever would have to take what is on its way may wait
/// itself for somebody to take its own, and nobody is there any more who does.
const STILL_MAX: Duration = Duration::from_secs(10);

/// Copies both ways until both sides have ended. An error means that one side broke off: the caller resets both, so
/// that neither takes it for a whole stream. A side that takes nothing more may have said something before: that is passed
/// on first, as when a server answers early and hangs up, for as long as it moves.
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
    let mut rest = Rest::default();
    poll_fn(|cx| {
        let is_there = there.poll(cx, one, other)?.is_ready();
        let is_back = back.poll(cx, other, one)?.is_ready();
        if !(is_there && is_back) {
            ready!(rest.poll(cx, [&there, &back]));
        }
        Poll::Ready(there.broke.take().or(back.broke.take()).map_or(Ok(()), Err))
    })
    .await
}

/// What one direction still has to pass on when the other has broken.
#[derive(Default)]
struct Rest {
    /// How much both have passed on, and until when that has to be more.
    still: Option<(u64, Pin<Box<Sleep>>)>,
}

impl Rest {
    /// Ready when it is not waited for any more.
    fn poll(&mut self, cx: &mut Context<'_>, ways: [&OneWay<'_>; 2]) -> Poll<()> {
        let broke = ways.iter().filter_map(|way| way.broke.as_ref());
        let kinds: Vec<io::ErrorKind> = broke.map(io::Error::kind).collect();
        if kinds.is_empty() {
            return Poll::Pending;
        }
        // Somebody who has taken nothing for too long has had all the time that there is.
        if kinds.contains(&io::ErrorKind::TimedOut) {
            return Poll::Ready(());
        }
        let passed = ways.iter().fold(0, |sum: u64, way| sum.wrapping_add(way.passed));
        let (seen, until) = self
            .still
            .get_or_insert_with(|| (passed, Box::pin(sleep(STILL_MAX))));
        if *seen != passed {
            *seen = passed;
            until.as_mut().reset(Instant::now() + STILL_MAX);
        }
        until.as_mut().poll(cx)
    }
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
    /// Bytes that were written.
    passed: u64,
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
        let bytes = u64::try_from(count).unwrap_or(u64::MAX);
        self.passed = self.passed.wrapping_add(bytes);
        if let Some(counted) = self.count {
            meters::add(counted, bytes);
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

    /// Somebody who has said much and takes nothing.
    struct Gone(io::ErrorKind);

    impl AsyncRead for Gone {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            room.put_slice(b"much");
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Gone {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(self.0.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// It would wait for whoever has gone to take what it says, before it reads what that one has said.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_waits_for_one_who_has_gone_is_let_go() {
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::TimedOut] {
            let (mut far, mut server) = tokio::io::duplex(8);
            server.write_all(b"answer").await.unwrap();
            let mut gone = Gone(kind);
            let relayed = relay(&mut gone, &mut far);
            let relayed = tokio::time::timeout(STILL_MAX * 2, relayed).await;
            assert_eq!(relayed.expect("it waits for ever").unwrap_err().kind(), kind);
        }
    }
}

//! Two streams tied together that are cut when nothing has passed for a while.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::meters::EndpointMeter;
use super::relay::relay_counted;

/// As [`relay_counted`], for at most this long after the last byte of either side; without a time for ever.
pub async fn relay_idle<A, B>(
    one: &mut A,
    other: &mut B,
    idle: Option<Duration>,
    meter: Option<&EndpointMeter>,
) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let Some(idle) = idle else {
        return relay_counted(one, other, meter).await;
    };
    let passed = Arc::new(Passed::new());
    let mut one = Watched {
        stream: one,
        passed: Arc::clone(&passed),
    };
    tokio::select! {
        relayed = relay_counted(&mut one, other, meter) => relayed,
        () = passed.quiet_for(idle) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// When something has passed last.
struct Passed {
    begin: Instant,
    last_ms: AtomicU64,
}

impl Passed {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            last_ms: AtomicU64::new(0),
        }
    }

    fn note(&self) {
        let passed = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(passed, Ordering::Relaxed);
    }

    async fn quiet_for(&self, idle: Duration) {
        loop {
            let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            let until = self.begin + last + idle;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// One side: what it reads and takes is what passes, since the other gets and gives the same.
struct Watched<'a, A> {
    stream: &'a mut A,
    passed: Arc<Passed>,
}

impl<A: AsyncRead + Unpin> AsyncRead for Watched<'_, A> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut *this.stream).poll_read(cx, room);
        if polled.is_ready() {
            this.passed.note();
        }
        polled
    }
}

impl<A: AsyncWrite + Unpin> AsyncWrite for Watched<'_, A> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut *this.stream).poll_write(cx, bytes);
        if polled.is_ready() {
            this.passed.note();
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_shutdown(cx)
    }
}

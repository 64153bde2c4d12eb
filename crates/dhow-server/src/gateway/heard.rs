//! When a connection was last heard: any byte of the other side counts, answers to keep-alive pings included, so that
//! a broken session tells how long its node has been silent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::coarse_timer;
use crate::clock::Clock;

/// The monotonic time of the last sign of life on a connection. Each request that comes over it carries one.
#[derive(Clone, Debug)]
pub struct LastHeard(Arc<LastSigns>);

#[derive(Debug)]
struct LastSigns {
    ms: AtomicU64,
    /// When bytes came last, in the time of the connection's own timer.
    read_ms: AtomicU64,
}

impl LastHeard {
    fn new(now_ms: u64) -> Self {
        Self(Arc::new(LastSigns {
            ms: AtomicU64::new(now_ms),
            read_ms: AtomicU64::new(coarse_timer::now_ms()),
        }))
    }

    pub fn ms(&self) -> u64 {
        self.0.ms.load(Ordering::Relaxed)
    }

    /// When bytes came last, in the time of [`coarse_timer::now_ms`].
    pub(super) fn read_ms(&self) -> u64 {
        self.0.read_ms.load(Ordering::Relaxed)
    }

    fn sign(&self, now_ms: u64) {
        self.0.ms.store(now_ms, Ordering::Relaxed);
        self.0.read_ms.store(coarse_timer::now_ms(), Ordering::Relaxed);
    }

    /// A call that came over it has renewed its node's lease at this time, a moment after its bytes were read. Without
    /// this the break of a connection whose last word was a call would be older than the lease, and be no evidence.
    pub(super) fn renewed_at(&self, now_ms: u64) {
        self.0.ms.fetch_max(now_ms, Ordering::Relaxed);
    }
}

/// A connection that notes when it is heard.
pub struct HeardStream<S> {
    stream: S,
    heard: LastHeard,
    clock: Arc<dyn Clock>,
}

impl<S> HeardStream<S> {
    pub fn new(stream: S, clock: Arc<dyn Clock>) -> Self {
        Self {
            stream,
            heard: LastHeard::new(clock.monotonic_ms()),
            clock,
        }
    }

    pub fn last_heard(&self) -> LastHeard {
        self.heard.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeardStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        // An end or a reset was sent by a host that lives; that nothing comes for too long was not.
        let is_sign = match &read {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => error.kind() == io::ErrorKind::ConnectionReset,
            Poll::Pending => false,
        };
        if is_sign {
            self.heard.sign(self.clock.monotonic_ms());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeardStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_counts_as_a_sign_and_never_takes_one_back() {
        let heard = LastHeard::new(100);
        heard.renewed_at(103);
        assert_eq!(heard.ms(), 103);
        heard.renewed_at(101);
        assert_eq!(heard.ms(), 103);
    }
}

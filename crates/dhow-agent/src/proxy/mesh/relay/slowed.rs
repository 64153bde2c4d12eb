//! A socket that is read no faster than a limit that it shares with others, and whose bytes are counted.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::limit::Limit;
use crate::proxy::meters;
use crate::proxy::shared_stream::SharedStream;

/// One end of what is passed on.
pub struct Slowed<'a> {
    stream: SharedStream,
    limit: &'a Limit,
    count: &'a AtomicU64,
    /// Until then nothing is read.
    rest: Option<Pin<Box<Sleep>>>,
}

impl<'a> Slowed<'a> {
    pub fn new(stream: SharedStream, limit: &'a Limit, count: &'a AtomicU64) -> Self {
        Self {
            stream,
            limit,
            count,
            rest: None,
        }
    }

    pub fn stream(&self) -> &SharedStream {
        &self.stream
    }
}

impl AsyncRead for Slowed<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(rest) = &mut self.rest {
            ready!(rest.as_mut().poll(cx));
            self.rest = None;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        meters::add(self.count, u64::try_from(read).unwrap_or(u64::MAX));
        let wait = self.limit.take(read, Instant::now());
        if !wait.is_zero() {
            self.rest = Some(Box::pin(tokio::time::sleep(wait)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Slowed<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

//! When a server was last heard: any byte counts. A server pings its nodes at least every 21 seconds, so that one which
//! hangs is known by its silence, and costs no message to find.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::connector::ServerConnection;
use crate::limits::SERVER_SILENT_MAX;

/// See the module; clones are of the same connection.
#[derive(Clone, Debug)]
pub(super) struct Heard(Arc<Mutex<Instant>>);

impl Heard {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn at(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until nothing was heard for too long.
    pub async fn silent(&self) {
        loop {
            let until = self.at() + SERVER_SILENT_MAX;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// A connection that notes when it is heard.
pub(super) struct HeardConnection {
    pub stream: Box<dyn ServerConnection>,
    pub heard: Heard,
}

impl AsyncRead for HeardConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.heard.now();
        }
        read
    }
}

impl AsyncWrite for HeardConnection {
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
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_the_last_byte() {
        let (mut server, client) = duplex(64);
        let heard = Heard::new();
        let mut connection = HeardConnection {
            stream: Box::new(client),
            heard: heard.clone(),
        };
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(20)).await;
        server.write_all(b"x").await.unwrap();
        assert_eq!(connection.read_u8().await.unwrap(), b'x');
        connection.write_all(b"own words are no sign").await.unwrap();
        heard.silent().await;
        let silent_at = Duration::from_secs(20) + SERVER_SILENT_MAX;
        assert_eq!(began.elapsed().as_secs(), silent_at.as_secs());
    }
}

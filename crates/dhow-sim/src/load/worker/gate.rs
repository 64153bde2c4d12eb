//! A connection that can be made to hang.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use dhow_agent::limits::SERVER_SILENT_MAX;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// The switch that makes a worker's connection hang; clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct Hang(Arc<AtomicBool>);

impl Hang {
    /// From now on nothing is read or written. There is no way back: such a connection is dropped.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// When the server was last heard: any byte counts, as in the agent. Clones are of the same connection.
#[derive(Clone, Debug)]
pub struct Heard(Arc<Mutex<Instant>>);

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

    /// Waits until nothing was heard for as long as the agent waits.
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

/// A socket behind such a switch.
pub struct Gate {
    pub stream: TcpStream,
    pub hang: Hang,
    pub heard: Heard,
}

impl Gate {
    fn hangs(&self) -> bool {
        self.hang.0.load(Ordering::Relaxed)
    }
}

// Nobody is woken once it hangs: that is the point.
impl AsyncRead for Gate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.hangs() {
            true => Poll::Pending,
            false => {
                let read = Pin::new(&mut self.stream).poll_read(cx, buf);
                if read.is_ready() {
                    self.heard.now();
                }
                read
            }
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.hangs() {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.hangs() {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.hangs() {
            true => Poll::Pending,
            false => Pin::new(&mut self.stream).poll_shutdown(cx),
        }
    }
}

//! A client's connection that ends where the client takes nothing of what is sent to it for too long. Whoever asks for
//! much and never reads would keep its place here, and a connection of its replica, for ever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long a client may take not a single byte. One that is only slow takes some; a player that is paused for longer
/// asks again for the rest.
const TAKE_TIMEOUT: Duration = Duration::from_secs(120);

/// A connection to a client that is not waited for without end.
pub struct Patient<S> {
    stream: S,
    /// Until when something has to be taken, while something waits for it.
    until: Option<Pin<Box<Sleep>>>,
    waits: Option<Attempt>,
    is_over: bool,
}

/// What is tried with a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Write,
    /// To have all sent that was written, or to end it. A plain socket says at once that this is done.
    Flush,
}

impl<S> Patient<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            until: None,
            waits: None,
            is_over: false,
        }
    }

    /// Lets an attempt to send something pass, unless the client has taken nothing for too long.
    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: Attempt,
        sent: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.waits = self
                .waits
                .filter(|waits| *waits == Attempt::Write && attempt != *waits);
            return sent;
        }
        let deadline = Instant::now() + TAKE_TIMEOUT;
        let until = self
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if self.waits.is_none() {
            self.waits = Some(attempt);
            until.as_mut().reset(deadline);
        }
        if until.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.is_over = true;
        // Whoever waits for the client to say something has been polled already.
        cx.waker().wake_by_ref();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.is_over {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Pin::new(&mut this.stream).poll_read(cx, room),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.judge(cx, Attempt::Write, sent)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.judge(cx, Attempt::Write, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.stream).poll_flush(cx);
        this.judge(cx, Attempt::Flush, sent)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let sent = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.judge(cx, Attempt::Flush, sent)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::proxy::relay::relay;

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_let_go_and_who_is_slow_is_not() {
        let (near, mut client) = tokio::io::duplex(1);
        let mut near = Patient::new(near);
        let sending = tokio::spawn(async move {
            let sent = near.write_all(b"slow").await;
            sent.map(|()| near)
        });
        let mut byte = [0];
        for expected in b"slo" {
            tokio::time::sleep(TAKE_TIMEOUT - Duration::from_secs(1)).await;
            client.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte, [*expected]);
        }
        let mut near = sending.await.unwrap().unwrap();
        let refused = near.write_all(b"more").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    }

    /// What is said the other way ends with it: nobody can be answered any more.
    #[tokio::test(start_paused = true)]
    async fn both_ways_end_where_one_is_stalled() {
        let ((near, _client), (mut far, mut replica)) = (tokio::io::duplex(1), tokio::io::duplex(64));
        let mut near = Patient::new(near);
        replica.write_all(b"much").await.unwrap();
        assert!(relay(&mut near, &mut far).await.is_err());
    }
}

//! One stream over a connection: bytes both ways, each direction with an end of its own. What is dropped before its end
//! is aborted; what has ended cleanly gives its connection back.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::connection::{Connection, bad};
use super::frame::{BadFrame, DATA_MAX_BYTES, Kind};
use super::peer::Peer;

/// How long an `Abort` may take where the other side does not read: then the closed connection says the same.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the other side's end is waited for once this one has ended and nobody listens any more.
const LINGER: Duration = Duration::from_secs(1);
/// What may come meanwhile: more than that is not worth a connection.
const LINGER_MAX_BYTES: usize = 256 << 10;

/// A stream to or from a replica of another node.
pub struct MeshStream {
    /// Until the stream is dropped.
    connection: Option<Connection>,
    has_received_end: bool,
    has_sent_end: bool,
    /// An error: nothing more can be said on the connection.
    is_broken: bool,
    /// Who takes the connection back.
    home: Option<Arc<Peer>>,
}

impl MeshStream {
    pub(super) fn new(connection: Connection, home: Option<Arc<Peer>>) -> Self {
        Self {
            connection: Some(connection),
            has_received_end: false,
            has_sent_end: false,
            is_broken: false,
            home,
        }
    }

    /// Whether it is open and the other side has said nothing that was not read.
    pub fn is_quiet(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_idle)
    }

    /// Ends one that nobody uses any more, so that its connection can carry another.
    pub fn let_go(mut self) {
        // Without a runtime nothing is served any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let ended = timeout(ABORT_TIMEOUT, poll_fn(|cx| self.send_end(cx))).await;
                self.is_broken |= !matches!(ended, Ok(Ok(())));
                drop(self);
            });
        }
    }

    /// The connection, where both directions have ended and it can carry another stream.
    pub(super) fn into_connection(mut self) -> Option<Connection> {
        match self.has_received_end && self.has_sent_end && !self.is_broken {
            true => self.connection.take(),
            false => None,
        }
    }

    /// One datagram into `datagram`, which is kept between calls that were given up; false at the end.
    pub async fn receive_datagram(&mut self, datagram: &mut Vec<u8>) -> io::Result<bool> {
        poll_fn(|cx| self.poll_datagram(cx, datagram)).await
    }

    fn poll_datagram(&mut self, cx: &mut Context<'_>, datagram: &mut Vec<u8>) -> Poll<io::Result<bool>> {
        loop {
            if !ready!(self.poll_data(cx))? {
                return Poll::Ready(Ok(false));
            }
            let connection = self.connection.as_mut().ok_or_else(broken)?;
            let take = |bytes: &[u8]| datagram.extend_from_slice(bytes);
            ready!(connection.poll_body(cx, usize::MAX, take))?;
            if connection.is_between_frames() {
                return Poll::Ready(Ok(true));
            }
        }
    }

    /// Sends one datagram to its last byte.
    pub async fn send_datagram(&mut self, datagram: &[u8]) -> io::Result<()> {
        let connection = self.connection.as_mut().ok_or_else(broken)?;
        poll_fn(|cx| connection.poll_send(cx, Kind::Data, datagram)).await?;
        poll_fn(|cx| connection.poll_flush(cx)).await
    }

    /// Whether there is a frame of data to be read; false at the end.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.has_received_end {
            return Poll::Ready(Ok(false));
        }
        let connection = self.connection.as_mut().ok_or_else(broken)?;
        let header = ready!(connection.poll_header(cx)).inspect_err(|_| self.is_broken = true)?;
        let read = match header.map(|header| header.kind) {
            Some(Kind::Data) => return Poll::Ready(Ok(true)),
            Some(Kind::End) => {
                self.has_received_end = true;
                return connection.poll_body(cx, 0, |_| ()).map_ok(|()| false);
            }
            // A connection that ends without `End` is no end of the stream.
            Some(Kind::Abort) | None => io::ErrorKind::ConnectionReset.into(),
            Some(
                found @ (Kind::Open
                | Kind::Answer
                | Kind::Control
                | Kind::Beat
                | Kind::Drain
                | Kind::Offer
                | Kind::Call
                | Kind::Arrive
                | Kind::Through),
            ) => bad(BadFrame::Place { found }),
        };
        self.is_broken = true;
        Poll::Ready(Err(read))
    }

    fn fail<T>(&mut self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &polled {
            self.is_broken = true;
        }
        polled
    }

    fn send_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.connection.as_mut().ok_or_else(broken)?;
        if !self.has_sent_end {
            ready!(connection.poll_send(cx, Kind::End, &[]))?;
            self.has_sent_end = true;
        }
        connection.poll_flush(cx)
    }
}

fn broken() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl AsyncRead for MeshStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        // A frame without bytes is no end.
        while buf.filled().len() == before && buf.remaining() > 0 {
            if !ready!(self.poll_data(cx))? {
                return Poll::Ready(Ok(()));
            }
            let connection = self.connection.as_mut().ok_or_else(broken)?;
            let read = connection.poll_body(cx, buf.remaining(), |bytes| buf.put_slice(bytes));
            ready!(self.fail(read))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeshStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.has_sent_end {
            return Poll::Ready(Err(broken()));
        }
        let data = buf.get(..DATA_MAX_BYTES).unwrap_or(buf);
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let connection = self.connection.as_mut().ok_or_else(broken)?;
        let sent = connection.poll_send(cx, Kind::Data, data);
        self.fail(sent).map_ok(|()| data.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = self.connection.as_mut().ok_or_else(broken)?;
        let flushed = connection.poll_flush(cx);
        self.fail(flushed)
    }

    /// Ends this direction alone.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.send_end(cx);
        self.fail(sent)
    }
}

impl Drop for MeshStream {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // Without a runtime nothing is served any more.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        match (self.is_broken, self.has_sent_end, self.home.take()) {
            (true, _, _) => connection.reset(),
            (false, false, _) => drop(runtime.spawn(abort(connection))),
            (false, true, Some(home)) if self.has_received_end => home.put(connection),
            (false, true, Some(home)) => drop(runtime.spawn(linger(connection, home))),
            (false, true, None) => connection.reset(),
        }
    }
}

/// Says that what was sent is not whole.
async fn abort(mut connection: Connection) {
    let _ = timeout(ABORT_TIMEOUT, connection.send(Kind::Abort, &[])).await;
    connection.reset();
}

/// Waits a moment for the other side's end, so that the connection can be used again.
async fn linger(connection: Connection, home: Arc<Peer>) {
    let mut stream = MeshStream::new(connection, None);
    stream.has_sent_end = true;
    let mut left = LINGER_MAX_BYTES;
    let ended = timeout(LINGER, async {
        while stream.skim().await? {
            left = left.checked_sub(DATA_MAX_BYTES).ok_or_else(broken)?;
        }
        Ok::<_, io::Error>(())
    });
    match ended.await {
        Ok(Ok(())) => {
            if let Some(connection) = stream.into_connection() {
                home.put(connection);
            }
        }
        Ok(Err(_)) | Err(_) => drop(stream),
    }
}

impl MeshStream {
    /// Reads what is there and forgets it; false at the end.
    async fn skim(&mut self) -> io::Result<bool> {
        poll_fn(|cx| {
            if !ready!(self.poll_data(cx))? {
                return Poll::Ready(Ok(false));
            }
            let connection = self.connection.as_mut().ok_or_else(broken)?;
            connection.poll_body(cx, usize::MAX, |_| ()).map_ok(|()| true)
        })
        .await
    }
}

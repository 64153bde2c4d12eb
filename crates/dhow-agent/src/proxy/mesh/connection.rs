//! One connection with the proxy of another node: TLS with frames on it. It carries one stream after the other.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::connections::Registered;
use super::frame::{BadFrame, HEADER_BYTES, Header, Kind};
use super::relay::Tied;
use super::wire::Wire;
use crate::proxy::shared_stream::is_quiet;

/// An authenticated connection. Reading and writing can be given up at any moment: what was begun goes on with the next
/// call.
pub struct Connection {
    /// Of a kilobyte and more: streams are moved about.
    tls: Box<TlsStream<Wire>>,
    socket: Arc<TcpStream>,
    /// What is known of the next header.
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// The frame that is being read, and how much of it is still to come.
    current: Option<Header>,
    body: Vec<u8>,
    /// The ticket that went over it last.
    pub ticket: Option<Arc<str>>,
    registered: Registered,
    /// What this node passes on to itself.
    pub tied: Option<Tied>,
}

/// A whole frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: Kind,
    pub body: Vec<u8>,
}

pub fn bad(error: BadFrame) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn cut_off() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl Connection {
    pub fn new(mut tls: TlsStream<Wire>, socket: Arc<TcpStream>, registered: Registered) -> Self {
        // A frame is taken whole or not at all; how much is taken is bounded here, by waiting until all is sent.
        match &mut tls {
            TlsStream::Client(stream) => stream.get_mut().1.set_buffer_limit(None),
            TlsStream::Server(stream) => stream.get_mut().1.set_buffer_limit(None),
        }
        Self {
            tls: Box::new(tls),
            socket,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            current: None,
            body: Vec::new(),
            ticket: None,
            registered,
            tied: None,
        }
    }

    /// The socket without the TLS that was spoken on it. Both sides have agreed that nothing more of it comes: who was to
    /// speak last has spoken.
    pub fn into_socket(self) -> (Arc<TcpStream>, Registered) {
        (self.socket, self.registered)
    }

    /// Whether it is open and between two streams, and the other side has said nothing: what it has said may be on the
    /// socket, read ahead, or opened by TLS together with what came before it.
    pub fn is_idle(&self) -> bool {
        let (wire, tls) = self.tls.get_ref();
        // TLS wants nothing more to read where it holds something that nobody has taken, or was told of the end.
        self.is_between_frames() && tls.wants_read() && !wire.is_ahead() && is_quiet(&self.socket)
    }

    pub fn is_between_frames(&self) -> bool {
        self.current.is_none() && self.header_bytes == 0
    }

    /// Closes with a reset.
    pub fn reset(self) {
        let _ = rustix::net::sockopt::set_socket_linger(&*self.socket, Some(Duration::ZERO));
    }

    /// The header of the frame that is to be read; `None` where the other side has closed between two frames.
    pub fn poll_header(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Header>>> {
        loop {
            if let Some(header) = self.current {
                return Poll::Ready(Ok(Some(header)));
            }
            let filled = match ready!(Pin::new(&mut self.tls).poll_fill_buf(cx)) {
                Ok(filled) => filled,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => &[],
                Err(error) => return Poll::Ready(Err(error)),
            };
            if filled.is_empty() {
                return Poll::Ready(match self.header_bytes {
                    0 => Ok(None),
                    _ => Err(cut_off()),
                });
            }
            let missing = self.header.get_mut(self.header_bytes..).unwrap_or_default();
            let count = missing.len().min(filled.len());
            for (to, from) in missing.iter_mut().zip(filled) {
                *to = *from;
            }
            Pin::new(&mut self.tls).consume(count);
            self.header_bytes += count;
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                self.current = Some(Header::read(self.header).map_err(bad)?);
            }
        }
    }

    /// What there is of the frame's body, up to `max` bytes, given to `take`. The frame is over when all was taken.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<()>> {
        let Some(header) = &mut self.current else {
            return Poll::Ready(Ok(()));
        };
        if header.length > 0 {
            let filled = match ready!(Pin::new(&mut self.tls).poll_fill_buf(cx)) {
                Ok([]) => return Poll::Ready(Err(cut_off())),
                Ok(filled) => filled,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Err(cut_off()));
                }
                Err(error) => return Poll::Ready(Err(error)),
            };
            let count = filled.len().min(header.length).min(max);
            take(filled.get(..count).unwrap_or_default());
            Pin::new(&mut self.tls).consume(count);
            header.length -= count;
        }
        if header.length == 0 {
            self.current = None;
        }
        Poll::Ready(Ok(()))
    }

    /// A whole frame; `None` where the other side has closed between two.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame>>> {
        let Some(Header { kind, .. }) = ready!(self.poll_header(cx))? else {
            return Poll::Ready(Ok(None));
        };
        let mut body = std::mem::take(&mut self.body);
        let read = loop {
            match self.poll_body(cx, usize::MAX, |bytes| body.extend_from_slice(bytes)) {
                Poll::Ready(Ok(())) if self.current.is_none() => break Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => {}
                other => break other,
            }
        };
        if read.is_pending() {
            self.body = body;
            return Poll::Pending;
        }
        ready!(read)?;
        Poll::Ready(Ok(Some(Frame { kind, body })))
    }

    pub async fn frame(&mut self) -> io::Result<Option<Frame>> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// Takes a whole frame once what was taken before is sent. Whoever waits for an answer flushes.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, kind: Kind, body: &[u8]) -> Poll<io::Result<()>> {
        let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
        let header = Header::new(kind, body.len()).ok_or_else(too_long)?.bytes();
        ready!(self.poll_flush(cx))?;
        let slices = [IoSlice::new(&header), IoSlice::new(body)];
        let taken = ready!(Pin::new(&mut self.tls).poll_write_vectored(cx, &slices))?;
        match taken == HEADER_BYTES + body.len() {
            true => Poll::Ready(Ok(())),
            // Not without a limit, which is taken away at the beginning.
            false => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        }
    }

    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    /// Sends a frame to its last byte.
    pub async fn send(&mut self, kind: Kind, body: &[u8]) -> io::Result<()> {
        poll_fn(|cx| self.poll_send(cx, kind, body)).await?;
        poll_fn(|cx| self.poll_flush(cx)).await
    }
}

#[cfg(test)]
mod tests;

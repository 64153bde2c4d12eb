//! The socket below TLS. TLS reads a few kilobytes at a time; this reads all that is there, and holds a buffer only
//! while something is in it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::proxy::buffers::Buffer;
use crate::proxy::shared_stream::SharedStream;

/// A socket with what was read of it ahead.
pub struct Wire {
    socket: SharedStream,
    ahead: Option<Buffer>,
    begin: usize,
    end: usize,
}

impl Wire {
    pub fn new(socket: Arc<TcpStream>) -> Self {
        Self {
            socket: SharedStream(socket),
            ahead: None,
            begin: 0,
            end: 0,
        }
    }

    /// Whether something was read that TLS has not seen.
    pub fn is_ahead(&self) -> bool {
        self.begin < self.end
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.begin == this.end {
            let ahead = this.ahead.get_or_insert_with(Buffer::take);
            let mut room = ReadBuf::new(ahead);
            let read = Pin::new(&mut this.socket).poll_read(cx, &mut room);
            (this.begin, this.end) = (0, room.filled().len());
            if this.end == 0 {
                this.ahead = None;
            }
            ready!(read)?;
        }
        let ahead = this.ahead.as_deref().unwrap_or_default();
        let rest = ahead.get(this.begin..this.end).unwrap_or_default();
        let count = rest.len().min(buf.remaining());
        buf.put_slice(rest.get(..count).unwrap_or_default());
        this.begin += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

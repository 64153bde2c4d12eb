//! A stream to a backend, wherever it is: a connection on this host, or a tunnel to the proxy of its node.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::backend::{BackendPlace, BackendState};
use super::connect;
use super::mesh::{MeshStream, Opening, Origin, Refused, ShownTicket};
use super::relay::reset;
use super::shared_stream::is_quiet;
use super::table::Transport;

/// A stream to a backend.
pub enum BackendStream {
    Here(TcpStream),
    There(MeshStream),
}

impl BackendState {
    /// Connects to it. An error means that nothing was sent: another one can be tried.
    pub async fn reach(&self, origin: &Origin, transport: Transport) -> io::Result<BackendStream> {
        match &self.place {
            BackendPlace::Here(addr) => connect::connect(*addr).await.map(BackendStream::Here),
            BackendPlace::There { peer, endpoint } => {
                let opening = Opening {
                    origin: origin.clone(),
                    replica: self.id.clone(),
                    endpoint: endpoint.clone(),
                    transport,
                    ticket: ShownTicket::None,
                };
                let opened = peer.connect(opening).await;
                opened
                    .map(BackendStream::There)
                    .map_err(io::Error::other::<Refused>)
            }
        }
    }
}

impl BackendStream {
    /// Ends it so that the backend learns that there was more.
    pub fn reset(self) {
        match self {
            Self::Here(stream) => reset(stream),
            // One that is dropped before its end is aborted.
            Self::There(stream) => drop(stream),
        }
    }

    /// Whether it is open and nothing has come that was not read.
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Here(stream) => is_quiet(stream),
            Self::There(stream) => stream.is_quiet(),
        }
    }

    /// The same as far as the runtime has heard, which may not be the last word.
    pub fn seems_quiet(&self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        match self {
            Self::Here(stream) => stream.poll_read_ready(&mut nobody).is_pending(),
            Self::There(stream) => stream.is_quiet(),
        }
    }

    /// Ends it in good order.
    pub fn let_go(self) {
        match self {
            Self::Here(stream) => drop(stream),
            Self::There(stream) => stream.let_go(),
        }
    }
}

impl AsyncRead for BackendStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::There(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for BackendStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::There(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::There(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_flush(cx),
            Self::There(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Here(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::There(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

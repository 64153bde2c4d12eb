//! Bodies on their way through: never collected, only passed on frame by frame.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::pool::PooledConnection;
use crate::proxy::backend::Lease;

/// What is sent to a backend.
pub enum RequestBody {
    Empty,
    Client(Incoming),
}

impl From<Incoming> for RequestBody {
    fn from(body: Incoming) -> Self {
        if body.is_end_stream() {
            Self::Empty
        } else {
            Self::Client(body)
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Client(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body) => body.size_hint(),
        }
    }
}

/// What is sent to a client.
pub enum ResponseBody {
    /// The proxy's own word.
    Own(Full<Bytes>),
    Relayed(Relayed),
}

/// A backend's body, with what is held until its end.
pub struct Relayed {
    body: Incoming,
    held: Option<(Lease, PooledConnection)>,
}

impl Relayed {
    pub fn new(body: Incoming, lease: Lease, connection: PooledConnection) -> Self {
        let mut relayed = Self {
            body,
            held: Some((lease, connection)),
        };
        relayed.release_at_end();
        relayed
    }

    /// At the end the connection is free for the next request. A body that is dropped before its end takes
    /// the connection with it: what is left in it is nobody's.
    fn release_at_end(&mut self) {
        if self.body.is_end_stream() {
            self.release();
        }
    }

    fn release(&mut self) {
        if let Some((lease, connection)) = self.held.take()
            && !lease.backend.is_draining()
        {
            lease.backend.pool.put(connection);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Relayed(relayed) => {
                let polled = Pin::new(&mut relayed.body).poll_frame(cx);
                match &polled {
                    Poll::Ready(Some(Ok(_))) => relayed.release_at_end(),
                    Poll::Ready(None) => relayed.release(),
                    Poll::Ready(Some(Err(_))) => relayed.held = None,
                    Poll::Pending => {}
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Relayed(relayed) => relayed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Relayed(relayed) => relayed.body.size_hint(),
        }
    }
}

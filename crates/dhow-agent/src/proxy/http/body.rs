//! Bodies on their way through: never collected, only passed on frame by frame.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::pool::PooledConnection;
use crate::proxy::backend::Lease;
use crate::proxy::meters::{self, EndpointMeter};

/// What is sent to a backend.
pub enum RequestBody {
    Empty,
    /// With who counts it, once that is known.
    Client(Incoming, Option<Arc<EndpointMeter>>),
}

impl RequestBody {
    pub fn count_for(&mut self, meter: &Arc<EndpointMeter>) {
        match self {
            Self::Empty => {}
            Self::Client(_, counted) => *counted = Some(Arc::clone(meter)),
        }
    }
}

impl From<Incoming> for RequestBody {
    fn from(body: Incoming) -> Self {
        if body.is_end_stream() {
            Self::Empty
        } else {
            Self::Client(body, None)
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
            Self::Client(body, meter) => {
                let polled = Pin::new(body).poll_frame(cx);
                if let Some(meter) = meter {
                    count(&polled, &meter.received_bytes);
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body, _) => body.size_hint(),
        }
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, hyper::Error>>>;

fn count(polled: &Polled, bytes: &AtomicU64) {
    if let Poll::Ready(Some(Ok(frame))) = polled
        && let Some(data) = frame.data_ref()
    {
        meters::add(bytes, u64::try_from(data.len()).unwrap_or(u64::MAX));
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
                if let Some(call) = relayed.held.as_ref().and_then(|(lease, _)| lease.call.as_ref()) {
                    count(&polled, &call.meter.sent_bytes);
                }
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

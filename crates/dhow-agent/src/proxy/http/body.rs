//! Bodies on their way through: never collected, only passed on frame by frame.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::access::AccessEntry;
use super::pool::Link;
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
pub struct ResponseBody {
    kind: BodyKind,
    /// Noted when the body has ended.
    pub access: Option<Box<AccessEntry>>,
}

enum BodyKind {
    /// The proxy's own word.
    Own(Full<Bytes>),
    Relayed(Relayed),
}

/// Why an answer breaks off.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the replica broke off its answer")]
    Backend(#[source] hyper::Error),
    #[error("the replica has sent nothing for longer than its endpoint's `idle_timeout`")]
    Idle,
}

impl ResponseBody {
    pub fn own(text: impl Into<Bytes>) -> Self {
        Self {
            kind: BodyKind::Own(Full::new(text.into())),
            access: None,
        }
    }

    pub fn relayed(relayed: Relayed) -> Self {
        Self {
            kind: BodyKind::Relayed(relayed),
            access: None,
        }
    }
}

/// A backend's body, with what is held until its end.
pub struct Relayed {
    body: Incoming,
    held: Option<(Lease, Link)>,
    idle: Option<Idle>,
}

/// How long nothing need come, and until when that is.
struct Idle {
    timeout: Duration,
    until: Pin<Box<Sleep>>,
}

impl Relayed {
    pub fn new(body: Incoming, lease: Lease, link: Link, idle: Option<Duration>) -> Self {
        let idle = idle.map(|timeout| Idle {
            timeout,
            until: Box::pin(tokio::time::sleep(timeout)),
        });
        let mut relayed = Self {
            body,
            held: Some((lease, link)),
            idle,
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
        // One of HTTP/2 carries others all the while.
        if let Some((lease, Link::One(connection))) = self.held.take()
            && !lease.backend.is_draining()
        {
            lease.backend.pool.put(connection);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(call) = self.held.as_ref().and_then(|(lease, _)| lease.call.as_ref()) {
            count(&polled, &call.meter.sent_bytes);
        }
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.release_at_end();
                if let Some(idle) = &mut self.idle {
                    idle.until.as_mut().reset(Instant::now() + idle.timeout);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.release();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.held = None;
                Poll::Ready(Some(Err(BodyError::Backend(error))))
            }
            Poll::Pending => {
                let idle = self.idle.as_mut();
                let is_over = idle.is_some_and(|idle| idle.until.as_mut().poll(cx).is_ready());
                match is_over {
                    true => {
                        self.held = None;
                        Poll::Ready(Some(Err(BodyError::Idle)))
                    }
                    false => Poll::Pending,
                }
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = match &mut this.kind {
            BodyKind::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            BodyKind::Relayed(relayed) => relayed.poll(cx),
        };
        if let (Some(access), Poll::Ready(Some(Ok(frame)))) = (&mut this.access, &polled) {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            access.bytes = access
                .bytes
                .saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Own(body) => body.is_end_stream(),
            BodyKind::Relayed(relayed) => relayed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Own(body) => body.size_hint(),
            BodyKind::Relayed(relayed) => relayed.body.size_hint(),
        }
    }
}

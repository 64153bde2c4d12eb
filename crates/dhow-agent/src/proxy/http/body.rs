//! Bodies on their way through: never collected, only passed on frame by frame.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::Connection;
use super::access::AccessEntry;
use super::exchange::AnswerBody;
use super::pace::Pace;
use super::pool::{Answered, TwoPlace};
use super::pump::{self, Pumped};
use crate::proxy::backend::Lease;
use crate::proxy::canary::is_failed_grpc;
use crate::proxy::idle_clients::UnderWay;
use crate::proxy::meters::{self, EndpointMeter};

/// The largest piece that a client of HTTP/2 is sent at a time: what it takes of one is not seen, so that the smaller they
/// are, the slower it may be. As large as the frames that clients take if they do not say otherwise.
const PIECE_MAX_BYTES: usize = 16 << 10;

/// What is sent to a backend.
pub enum RequestBody {
    Empty,
    Client(ClientBody),
}

/// What a client sends, as it comes.
pub struct ClientBody {
    body: Incoming,
    /// Who counts it, once that is known.
    meter: Option<Arc<EndpointMeter>>,
    /// Taken from the body, and not sent.
    back: Bytes,
    /// How long nothing need come of it, if that has a bound.
    patience: Option<Duration>,
    until: Option<Pin<Box<Sleep>>>,
    /// The time runs.
    is_waiting: bool,
}

/// Why a request's body breaks off.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the client broke it off")]
    Client(#[source] hyper::Error),
    #[error("the client has sent nothing of it for too long")]
    Stalled,
}

impl ClientBody {
    /// Whether nothing has come for too long. It is asked where nothing is there.
    fn is_stalled(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(patience) = self.patience else {
            return false;
        };
        let deadline = Instant::now() + patience;
        let until = self
            .until
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            until.as_mut().reset(deadline);
        }
        until.as_mut().poll(cx).is_ready()
    }
}

impl RequestBody {
    /// How long a client may send nothing from here on; without a time for ever.
    pub fn wait_for(&mut self, patience: Option<Duration>) {
        match self {
            Self::Empty => {}
            Self::Client(client) => client.patience = patience,
        }
    }

    pub fn count_for(&mut self, meter: &Arc<EndpointMeter>) {
        match self {
            Self::Empty => {}
            Self::Client(client) => client.meter = Some(Arc::clone(meter)),
        }
    }

    /// Gives back what was taken last: it comes next again.
    pub fn put_back(&mut self, data: Bytes) {
        match self {
            Self::Empty => {}
            Self::Client(client) => client.back = data,
        }
    }
}

impl From<Incoming> for RequestBody {
    fn from(body: Incoming) -> Self {
        if body.is_end_stream() {
            return Self::Empty;
        }
        Self::Client(ClientBody {
            body,
            meter: None,
            back: Bytes::new(),
            patience: None,
            until: None,
            is_waiting: false,
        })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Client(client) if !client.back.is_empty() => {
                let data = std::mem::take(&mut client.back);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Self::Client(client) => {
                let polled = Pin::new(&mut client.body).poll_frame(cx);
                if let Some(meter) = &client.meter {
                    count(&polled, &meter.received_bytes);
                }
                if polled.is_pending() {
                    return match client.is_stalled(cx) {
                        true => Poll::Ready(Some(Err(RequestError::Stalled))),
                        false => Poll::Pending,
                    };
                }
                client.is_waiting = false;
                polled.map_err(RequestError::Client)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(client) => client.back.is_empty() && client.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(client) => {
                let back = u64::try_from(client.back.len()).unwrap_or(u64::MAX);
                let rest = client.body.size_hint();
                match rest.exact().and_then(|rest| rest.checked_add(back)) {
                    Some(all) => SizeHint::with_exact(all),
                    None => SizeHint::default(),
                }
            }
        }
    }
}

fn count<E>(polled: &Poll<Option<Result<Frame<Bytes>, E>>>, bytes: &AtomicU64) {
    if let Poll::Ready(Some(Ok(frame))) = polled
        && let Some(data) = frame.data_ref()
    {
        meters::add(bytes, u64::try_from(data.len()).unwrap_or(u64::MAX));
    }
}

/// What is sent to a client.
pub struct ResponseBody {
    kind: BodyKind,
    /// Whether a client of HTTP/2 takes it.
    pub pace: Option<Arc<Pace>>,
    /// What is left of a piece that is larger than such a client is sent.
    rest: Bytes,
    /// Its client is not idle until it has ended.
    pub(super) under_way: Option<UnderWay<Connection>>,
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
    Backend(#[source] io::Error),
    #[error("the replica has sent nothing for longer than its endpoint's `idle_timeout`")]
    Idle,
}

impl ResponseBody {
    pub fn own(text: impl Into<Bytes>) -> Self {
        Self {
            kind: BodyKind::Own(Full::new(text.into())),
            pace: None,
            rest: Bytes::new(),
            under_way: None,
            access: None,
        }
    }

    pub fn relayed(relayed: Relayed) -> Self {
        Self {
            kind: BodyKind::Relayed(relayed),
            pace: None,
            rest: Bytes::new(),
            under_way: None,
            access: None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
        match &mut self.kind {
            BodyKind::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            BodyKind::Relayed(relayed) => relayed.poll(cx),
        }
    }

    /// So much of a frame as a client of HTTP/2 is sent at a time.
    fn piece_of(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_data() {
            Ok(mut data) => {
                self.rest = data.split_off(data.len().min(PIECE_MAX_BYTES));
                Frame::data(data)
            }
            Err(frame) => frame,
        }
    }
}

/// A backend's body, with what is held until its end.
pub struct Relayed {
    source: Source,
    lease: Option<Lease>,
    idle: Option<Idle>,
}

/// Where the body of an answer comes from.
enum Source {
    One(AnswerBody),
    /// From a task that sends the rest of the request meanwhile.
    Pumped(Pumped, SizeHint),
    /// With what keeps its connection, which carries others all the while.
    Two(
        Incoming,
        #[expect(dead_code, reason = "held until the end")] TwoPlace,
    ),
    Over,
}

/// How long nothing need come, and until when that is.
struct Idle {
    timeout: Duration,
    until: Pin<Box<Sleep>>,
}

impl Relayed {
    /// `request` is what may still be to be sent, at whatever times the client likes: the replica has begun to answer, and
    /// knows what it waits for.
    pub fn new(answered: Answered, mut request: RequestBody, lease: Lease, idle: Option<Duration>) -> Self {
        request.wait_for(None);
        let idle = idle.map(|timeout| Idle {
            timeout,
            until: Box::pin(tokio::time::sleep(timeout)),
        });
        let source = match answered {
            Answered::One(answer) if answer.is_sent() || answer.is_end() => Source::One(answer),
            Answered::One(answer) => {
                let size = answer.size_hint();
                Source::Pumped(pump::spawn(answer, request), size)
            }
            Answered::Two(incoming, place) => Source::Two(incoming, place),
        };
        let mut relayed = Self {
            source,
            lease: Some(lease),
            idle,
        };
        if relayed.source.is_end() {
            relayed.release();
        }
        relayed
    }

    /// At the end the connection is free for the next request. A body that is dropped before its end takes
    /// the connection with it: what is left in it is nobody's.
    fn release(&mut self) {
        let source = std::mem::replace(&mut self.source, Source::Over);
        if let (Source::One(answer), Some(lease)) = (source, self.lease.take())
            && let Some(connection) = answer.into_connection()
        {
            match lease.backend.is_draining() {
                true => connection.let_go(),
                false => lease.backend.pool.put(connection),
            }
        }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.source.poll(cx);
        if let Some(call) = self.lease.as_ref().and_then(|lease| lease.call.as_ref()) {
            count(&polled, &call.meter.sent_bytes);
        }
        self.note_failure(&polled);
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                if self.source.is_end() {
                    self.release();
                }
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
                self.cut();
                Poll::Ready(Some(Err(BodyError::Backend(error))))
            }
            Poll::Pending => {
                let idle = self.idle.as_mut();
                let is_over = idle.is_some_and(|idle| idle.until.as_mut().poll(cx).is_ready());
                match is_over {
                    true => {
                        self.cut();
                        Poll::Ready(Some(Err(BodyError::Idle)))
                    }
                    false => Poll::Pending,
                }
            }
        }
    }

    /// An answer that breaks off has failed, and so has a call of gRPC whose last words say so.
    fn note_failure(&self, polled: &Poll<Option<io::Result<Frame<Bytes>>>>) {
        let has_failed = match polled {
            Poll::Ready(Some(Ok(frame))) => frame.trailers_ref().is_some_and(is_failed_grpc),
            Poll::Ready(Some(Err(_))) => true,
            Poll::Ready(None) | Poll::Pending => false,
        };
        if let Some(lease) = self.lease.as_ref().filter(|_| has_failed) {
            lease.fails();
        }
    }

    fn cut(&mut self) {
        self.source = Source::Over;
        self.lease = None;
    }
}

impl Source {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self {
            Self::One(answer) => answer.poll_frame(cx),
            Self::Pumped(frames, _) => frames.poll_recv(cx),
            Self::Two(incoming, _) => Pin::new(incoming).poll_frame(cx).map_err(io::Error::other),
            Self::Over => Poll::Ready(None),
        }
    }

    fn is_end(&self) -> bool {
        match self {
            Self::One(answer) => answer.is_end(),
            Self::Pumped(..) => false,
            Self::Two(incoming, _) => incoming.is_end_stream(),
            Self::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::One(answer) => answer.size_hint(),
            // As it was at the beginning, when it is asked for.
            Self::Pumped(_, size) => *size,
            Self::Two(incoming, _) => incoming.size_hint(),
            Self::Over => SizeHint::with_exact(0),
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
        let mut polled = this.poll(cx);
        if let Some(pace) = &this.pace {
            pace.asked(polled.is_ready());
            polled = polled.map_ok(|frame| this.piece_of(frame));
        }
        if let (Some(access), Poll::Ready(Some(Ok(frame)))) = (&mut this.access, &polled) {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            access.bytes = access
                .bytes
                .saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let is_end = match &self.kind {
            BodyKind::Own(body) => body.is_end_stream(),
            BodyKind::Relayed(relayed) => relayed.source.is_end(),
        };
        is_end && self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Own(body) => body.size_hint(),
            BodyKind::Relayed(relayed) => relayed.source.size_hint(),
        }
    }
}

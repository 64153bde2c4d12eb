//! Connections to one backend: idle ones kept for reuse, and how a new one is made.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use hyper::http::request::Parts;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::RequestBody;
use super::exchange::{AnswerBody, BackendConnection, ExchangeError};
use super::usual::answer::PassedHead;
use super::{BUFFER_MAX_BYTES, PING_INTERVAL, PING_TIMEOUT};
use crate::proxy::backend::BackendState;
use crate::proxy::mesh::Origin;
use crate::proxy::reach::BackendStream;
use crate::proxy::table::Transport;

/// Idle connections kept per backend. More than this many requests at once open further ones, which are
/// closed when they are done.
const IDLE_MAX: usize = 256;
/// How long an idle connection is kept. Few servers let go of theirs earlier, and a connection that was
/// closed is noticed before it is used.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long an idle connection carries a request that cannot be sent again. Servers let go of theirs after two seconds and
/// more, and one that does so just then would cost the request.
pub const FRESH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an idle connection is trusted in without asking the kernel: as long as it takes to hear of everything that has
/// come, even with much to do. A request that finds it closed nevertheless is one that can be sent again.
const TRUST_MAX: Duration = Duration::from_millis(2);
/// What one response of HTTP/2 may have on its way: a client that reads slowly makes the backend wait.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Requests at once on one connection of HTTP/2: every server is asked to let so many in, and what it does not let in
/// would wait for those that are. One more opens a further connection.
const TWO_STREAMS_MAX: u32 = 100;
/// As much as all of its responses may have on their way, 25 MiB: those that nobody reads leave the others theirs.
const CONNECTION_WINDOW_BYTES: u32 = TWO_STREAMS_MAX * STREAM_WINDOW_BYTES;

/// The idle connections to one backend.
#[derive(Default)]
pub struct Pool {
    /// The last is the one that was used last: it is taken first, so that a quiet service keeps few.
    idle: Mutex<Vec<Idle>>,
    /// Connections that were made before this moment carry no further request.
    retired: Mutex<Option<Instant>>,
    /// Connections of HTTP/2, for requests that need it: one, unless that one is full.
    two: Mutex<Vec<Two>>,
}

/// Which idle connections a request may have.
#[derive(Clone, Copy)]
pub struct Reuse {
    /// How long it may have been idle.
    pub idle_max: Duration,
    /// One that was in use a moment ago is not looked at.
    pub trusts: bool,
}

struct Idle {
    connection: Box<BackendConnection>,
    since: Instant,
}

/// A connection of HTTP/2 and the room on it.
struct Two {
    sender: http2::SendRequest<RequestBody>,
    room: Arc<Semaphore>,
}

/// A place for one request on a connection of HTTP/2, which stays open for as long as this is kept.
pub struct TwoPlace {
    sender: http2::SendRequest<RequestBody>,
    _room: OwnedSemaphorePermit,
}

impl Two {
    fn new(sender: http2::SendRequest<RequestBody>) -> Self {
        let room = usize::try_from(TWO_STREAMS_MAX).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            sender,
            room: Arc::new(Semaphore::new(room)),
        }
    }

    /// `None` where it is closed or full.
    fn place(&self) -> Option<TwoPlace> {
        if self.sender.is_closed() {
            return None;
        }
        let room = Arc::clone(&self.room).try_acquire_owned().ok()?;
        Some(TwoPlace {
            sender: self.sender.clone(),
            _room: room,
        })
    }

    fn is_unused(&self) -> bool {
        u32::try_from(self.room.available_permits()).is_ok_and(|free| free == TWO_STREAMS_MAX)
    }
}

impl Pool {
    /// One that has been idle for less than this, and is open.
    pub fn take(&self, reuse: Reuse) -> Option<Box<BackendConnection>> {
        let Reuse { idle_max, trusts } = reuse;
        loop {
            let Idle {
                mut connection,
                since,
            } = self.lock().pop()?;
            let idle = since.elapsed();
            // Those before it have been idle for longer: the next sweep lets go of them.
            if idle >= idle_max {
                let mut idle = self.lock();
                idle.push(Idle { connection, since });
                return None;
            }
            if (trusts && idle < TRUST_MAX && connection.seems_quiet()) || connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    pub fn put(&self, connection: Box<BackendConnection>) {
        let retired = *self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let is_retired = retired.is_some_and(|retired| connection.made() <= retired);
        let since = Instant::now();
        let mut idle = self.lock();
        if is_retired || idle.len() >= IDLE_MAX {
            drop(idle);
            connection.let_go();
        } else {
            idle.push(Idle { connection, since });
        }
    }

    fn take_two(&self) -> Option<TwoPlace> {
        self.lock_two().iter().find_map(Two::place)
    }

    /// Keeps a new connection, with a place on it.
    fn put_two(&self, sender: http2::SendRequest<RequestBody>) -> Option<TwoPlace> {
        let two = Two::new(sender);
        let place = two.place();
        self.lock_two().push(two);
        place
    }

    fn lock_two(&self) -> MutexGuard<'_, Vec<Two>> {
        // Nothing that runs under the lock leaves the list half changed.
        self.two.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of what is idle; requests that are under way finish.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut *self.lock());
        idle.into_iter().for_each(|idle| idle.connection.let_go());
        self.lock_two().clear();
    }

    /// Lets go of what is idle, and of what is in use once it is done: whoever is at the other end finishes and goes.
    pub fn retire(&self) {
        let now = Some(Instant::now());
        *self.retired.lock().unwrap_or_else(PoisonError::into_inner) = now;
        self.clear();
    }

    /// Lets go of connections that nobody has used for a while, and of those that the replica has closed.
    pub fn sweep(&self) {
        let is_over = |idle: &mut Idle| idle.since.elapsed() >= IDLE_TIMEOUT || !idle.connection.is_quiet();
        let over: Vec<Idle> = self.lock().extract_if(.., is_over).collect();
        over.into_iter().for_each(|idle| idle.connection.let_go());
        self.sweep_two();
    }

    /// Of the connections of HTTP/2 that carry nothing, one is kept.
    fn sweep_two(&self) {
        let mut has_spare = false;
        self.lock_two().retain(|two| {
            let is_unused = two.is_unused();
            let is_spare = is_unused && has_spare;
            let is_kept = !two.sender.is_closed() && !is_spare;
            has_spare |= is_kept && is_unused;
            is_kept
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        // Nothing that runs under the lock leaves the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request is sent on.
pub enum Link {
    One(Box<BackendConnection>),
    Two(TwoPlace),
}

/// An answer as it comes from a backend.
pub enum Answered {
    One(AnswerBody),
    /// With what keeps its connection until its end.
    Two(Incoming, TwoPlace),
}

impl Link {
    /// A connection to a backend, an idle one where that may be, and whether it has carried requests before.
    pub async fn open(
        backend: &BackendState,
        origin: impl Fn() -> Origin,
        speaks: Speaks,
        reuse: Reuse,
    ) -> io::Result<(Self, bool)> {
        match speaks {
            Speaks::One => match backend.pool.take(reuse) {
                Some(connection) => Ok((Self::One(connection), true)),
                None => {
                    let stream = backend.reach(&origin(), Transport::Stream).await?;
                    Ok((Self::One(BackendConnection::new(stream)), false))
                }
            },
            Speaks::Two => match backend.pool.take_two() {
                Some(place) => Ok((Self::Two(place), true)),
                None => {
                    let opened = backend.pool.put_two(open_two(backend, &origin()).await?);
                    let place = opened.ok_or(io::ErrorKind::ConnectionReset)?;
                    Ok((Self::Two(place), false))
                }
            },
        }
    }

    /// Sends a usual request, and writes the head of its answer for the client behind what `out` has.
    pub async fn ask(
        self,
        request: &[u8],
        is_head: bool,
        out: &mut Vec<u8>,
    ) -> Result<(PassedHead, AnswerBody), ExchangeError> {
        match self {
            Self::One(connection) => connection.ask(request, is_head, out).await,
            // Usual requests are sent as they come.
            Self::Two(_) => Err(ExchangeError::Bad(None)),
        }
    }

    /// Sends a request. What was taken of its body is put back where nothing of it was sent.
    pub async fn send(
        self,
        parts: &Parts,
        body: &mut RequestBody,
    ) -> Result<Response<Answered>, ExchangeError> {
        match self {
            Self::One(connection) => {
                let (response, answer) = connection.exchange(parts, body).await?;
                Ok(response.map(|()| Answered::One(answer)))
            }
            Self::Two(mut place) => {
                let taken = std::mem::replace(body, RequestBody::Empty);
                let request = Request::from_parts(parts.clone(), taken);
                match place.sender.try_send_request(request).await {
                    Ok(response) => Ok(response.map(|incoming| Answered::Two(incoming, place))),
                    Err(error) => Err(failure_of_two(error, body)),
                }
            }
        }
    }
}

fn failure_of_two(mut error: TrySendError<Request<RequestBody>>, body: &mut RequestBody) -> ExchangeError {
    if let Some(unsent) = error.take_message() {
        *body = unsent.into_body();
        return ExchangeError::Unsent;
    }
    let error = error.into_error();
    let is_io = std::error::Error::source(&error).is_some_and(|source| source.is::<io::Error>());
    if error.is_user() {
        ExchangeError::Body
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() || is_io {
        ExchangeError::Lost
    } else {
        ExchangeError::Bad(None)
    }
}

/// Which version of HTTP a request needs on its way to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    One,
    Two,
}

/// Opens a connection of HTTP/2 in clear, as those who serve gRPC expect it.
async fn open_two(backend: &BackendState, origin: &Origin) -> io::Result<http2::SendRequest<RequestBody>> {
    match backend.reach(origin, Transport::Stream).await? {
        BackendStream::Here(stream) => greet_two(stream).await,
        BackendStream::There(stream) => greet_two(stream).await,
    }
}

async fn greet_two(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<http2::SendRequest<RequestBody>> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_send_buf_size(BUFFER_MAX_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let io = TokioIo::new(stream);
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    // Its errors reach whoever waits for a response on it.
    tokio::spawn(connection);
    Ok(sender)
}

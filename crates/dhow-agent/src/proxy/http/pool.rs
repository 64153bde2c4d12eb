//! Connections to one backend: idle ones kept for reuse, and how a new one is made.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::client::conn::{TrySendError, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::body::RequestBody;
use super::{BUFFER_MAX_BYTES, PING_INTERVAL, PING_TIMEOUT};
use crate::proxy::backend::BackendState;
use crate::proxy::mesh::Origin;
use crate::proxy::reach::BackendStream;
use crate::proxy::shared_stream::{SharedStream, is_quiet};
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
/// What one response of HTTP/2 may have on its way, and all of one connection together: clients that read slowly make
/// the backend wait.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// How many busy ones are passed over before a new connection is made.
const PASSED_MAX: usize = 4;

/// The idle connections to one backend.
#[derive(Default)]
pub struct Pool {
    /// The last is the one that was used last: it is taken first, so that a quiet service keeps few.
    idle: Mutex<Vec<Idle>>,
    /// Connections that were made before this moment carry no further request.
    retired: Mutex<Option<Instant>>,
    /// The one connection of HTTP/2, for requests that need it.
    two: Mutex<Option<http2::SendRequest<RequestBody>>>,
}

struct Idle {
    sender: SendRequest<RequestBody>,
    stream: Weak<TcpStream>,
    made: Instant,
    since: Instant,
}

/// A connection that a request may be sent on.
pub struct PooledConnection {
    pub sender: SendRequest<RequestBody>,
    stream: Weak<TcpStream>,
    made: Instant,
}

impl Pool {
    /// One that has been idle for less than this.
    pub fn take(&self, idle_max: Duration) -> Option<PooledConnection> {
        let mut idle = self.lock();
        let mut passed = 0;
        let mut at = idle.len();
        while at > 0 && passed < PASSED_MAX {
            at -= 1;
            let candidate = idle.get(at)?;
            if candidate.since.elapsed() >= idle_max {
                // Those before it have been idle for longer.
                return None;
            }
            if !candidate.sender.is_closed() && !candidate.sender.is_ready() {
                // Its last response is read, yet its request is still being sent, or its task has not had
                // its turn.
                passed += 1;
                continue;
            }
            let Idle {
                sender, stream, made, ..
            } = idle.remove(at);
            let is_open = !sender.is_closed() && stream.upgrade().is_some_and(|stream| is_quiet(&stream));
            if is_open {
                return Some(PooledConnection { sender, stream, made });
            }
        }
        None
    }

    pub fn put(&self, connection: PooledConnection) {
        let PooledConnection { sender, stream, made } = connection;
        let retired = *self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_closed() || retired.is_some_and(|retired| made <= retired) {
            return;
        }
        let since = Instant::now();
        let mut idle = self.lock();
        if idle.len() < IDLE_MAX {
            idle.push(Idle {
                sender,
                stream,
                made,
                since,
            });
        }
    }

    fn take_two(&self) -> Option<http2::SendRequest<RequestBody>> {
        let two = self.lock_two();
        two.as_ref().filter(|sender| !sender.is_closed()).cloned()
    }

    fn put_two(&self, sender: &http2::SendRequest<RequestBody>) {
        *self.lock_two() = Some(sender.clone());
    }

    fn lock_two(&self) -> MutexGuard<'_, Option<http2::SendRequest<RequestBody>>> {
        // It is replaced as a whole.
        self.two.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of what is idle; requests that are under way finish.
    pub fn clear(&self) {
        self.lock().clear();
        *self.lock_two() = None;
    }

    /// Lets go of what is idle, and of what is in use once it is done: whoever is at the other end finishes and goes.
    pub fn retire(&self) {
        let now = Some(Instant::now());
        *self.retired.lock().unwrap_or_else(PoisonError::into_inner) = now;
        self.clear();
    }

    /// Lets go of connections that nobody has used for a while.
    pub fn sweep(&self) {
        self.lock()
            .retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < IDLE_TIMEOUT);
        self.lock_two().take_if(|sender| sender.is_closed());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        // Nothing that runs under the lock leaves the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request is sent on.
pub enum Link {
    One(PooledConnection),
    /// A backend's one connection of HTTP/2, which carries any number of requests at once.
    Two(http2::SendRequest<RequestBody>),
}

impl Link {
    /// A connection to a backend that has not been idle for longer than this, and whether it has carried requests before.
    pub async fn open(
        backend: &BackendState,
        origin: &Origin,
        speaks: Speaks,
        idle_max: Duration,
    ) -> io::Result<(Self, bool)> {
        match speaks {
            Speaks::One => match backend.pool.take(idle_max) {
                Some(pooled) => Ok((Self::One(pooled), true)),
                None => Ok((Self::One(open(backend, origin).await?), false)),
            },
            Speaks::Two => match backend.pool.take_two() {
                Some(sender) => Ok((Self::Two(sender), true)),
                None => {
                    let sender = open_two(backend, origin).await?;
                    backend.pool.put_two(&sender);
                    Ok((Self::Two(sender), false))
                }
            },
        }
    }

    pub async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match self {
            Self::One(pooled) => pooled.sender.try_send_request(request).await,
            Self::Two(sender) => sender.try_send_request(request).await,
        }
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

/// Opens a connection to a backend.
async fn open(backend: &BackendState, origin: &Origin) -> io::Result<PooledConnection> {
    match backend.reach(origin, Transport::Stream).await? {
        BackendStream::Here(stream) => {
            let stream = Arc::new(stream);
            let socket = Arc::downgrade(&stream);
            greet(SharedStream(stream), socket).await
        }
        BackendStream::There(stream) => {
            let socket = stream.socket();
            greet(stream, socket).await
        }
    }
}

async fn greet(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    socket: Weak<TcpStream>,
) -> io::Result<PooledConnection> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(BUFFER_MAX_BYTES);
    let io = TokioIo::new(stream);
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    // Its errors reach whoever waits for a response on it.
    tokio::spawn(connection.with_upgrades());
    Ok(PooledConnection {
        sender,
        stream: socket,
        made: Instant::now(),
    })
}

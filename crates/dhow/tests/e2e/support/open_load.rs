//! Requests at a fixed rate, whatever becomes of those before them, of every kind that clients send: with and without a
//! body, on kept and on new connections, HTTP/1.1 and HTTP/2. Each failure is kept with its moment, its place and its
//! cause. Nothing is tried again but what was never sent.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::until;

/// Longer than any request may wait for a replica.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Requests to one target that have no answer yet. Who has as many is not served.
const UNANSWERED_MAX: usize = 2_000;
/// What is posted.
const BODY_BYTES: usize = 4 << 10;
/// How often a request that was not sent looks for another connection.
const UNSENT_MAX: u32 = 4;

/// How a request reaches its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    KeptOne,
    NewOne,
    KeptTwo,
    NewTwo,
}

const WAYS: [Way; 4] = [Way::KeptOne, Way::NewOne, Way::KeptTwo, Way::NewTwo];

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was no connection.
    Connect(String),
    /// It was sent, and the connection broke.
    Lost(String),
    /// An answer, and not the one that was asked for.
    Status(u16, String),
    Silent,
    TooMany,
}

/// A request that was not answered as it should have been.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Since the load began.
    pub sent_after: Duration,
    pub failed_after: Duration,
    pub target: SocketAddr,
    pub way: Way,
    pub is_post: bool,
    pub cause: Cause,
}

struct Target {
    addr: SocketAddr,
    is_left: AtomicBool,
    unanswered: AtomicUsize,
    /// The last was used last.
    one: Mutex<Vec<http1::SendRequest<Full<Bytes>>>>,
    two: tokio::sync::Mutex<Option<http2::SendRequest<Full<Bytes>>>>,
}

struct Tally {
    begin: Instant,
    ends: AtomicBool,
    answered: AtomicU64,
    /// Since the last look at them.
    latencies_us: Mutex<Vec<u64>>,
    failures: Mutex<Vec<Failure>>,
}

/// The load, until it is finished.
pub struct OpenLoad {
    runtime: Runtime,
    tally: Arc<Tally>,
    targets: Vec<Arc<Target>>,
}

/// What a step of a test cost.
pub struct Passed {
    pub failures: Vec<Failure>,
}

impl OpenLoad {
    /// So many requests a second to each of these.
    pub fn start(addrs: &[SocketAddr], per_second: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let tally = Arc::new(Tally {
            begin: Instant::now(),
            ends: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            latencies_us: Mutex::default(),
            failures: Mutex::default(),
        });
        let targets = addrs.iter().map(|addr| {
            Arc::new(Target {
                addr: *addr,
                is_left: AtomicBool::new(false),
                unanswered: AtomicUsize::new(0),
                one: Mutex::default(),
                two: tokio::sync::Mutex::default(),
            })
        });
        let targets: Vec<_> = targets.collect();
        for target in &targets {
            runtime.spawn(press(Arc::clone(target), Arc::clone(&tally), per_second));
        }
        let load = Self {
            runtime,
            tally,
            targets,
        };
        load.goes_on(100);
        load
    }

    /// Waits for so many further answers.
    pub fn goes_on(&self, count: u64) {
        let answered = || self.tally.answered.load(Ordering::Relaxed);
        let enough = answered() + count;
        until("requests are answered", || (answered() >= enough).then_some(()));
    }

    /// Sends nothing more to a target, and forgets what it has not answered.
    pub fn leave(&self, addr: SocketAddr) {
        let left = self.targets.iter().filter(|target| target.addr == addr);
        left.for_each(|target| target.is_left.store(true, Ordering::Relaxed));
    }

    /// Says how a step went, and gives what failed in it.
    pub fn passed(&self, step: &str) -> Passed {
        let mut latencies_us = std::mem::take(&mut *self.tally.latencies_us.lock().unwrap());
        let failures = std::mem::take(&mut *self.tally.failures.lock().unwrap());
        latencies_us.sort_unstable();
        let count = latencies_us.len();
        let at = |share: usize| {
            let place = (count * share / 1000).min(count.saturating_sub(1));
            latencies_us.get(place).map_or(0.0, |us| *us as f64 / 1000.0)
        };
        eprintln!(
            "{:7.1} s  {step}: {count} answered, {} failed; p50 {:.1} p99 {:.1} max {:.1} ms",
            self.tally.begin.elapsed().as_secs_f64(),
            failures.len(),
            at(500),
            at(990),
            at(1000),
        );
        for failure in failures.iter().take(20) {
            eprintln!(
                "           sent at {:.3} failed at {:.3} {} {:?} {} {:?}",
                failure.sent_after.as_secs_f64(),
                failure.failed_after.as_secs_f64(),
                failure.target,
                failure.way,
                if failure.is_post { "POST" } else { "GET" },
                failure.cause
            );
        }
        Passed { failures }
    }

    /// Since it began.
    pub fn elapsed(&self) -> Duration {
        self.tally.begin.elapsed()
    }

    /// Ends it; gives the number of answers.
    pub fn finish(self) -> u64 {
        self.tally.ends.store(true, Ordering::Relaxed);
        until("nothing is unanswered", || {
            let mut open = self
                .targets
                .iter()
                .filter(|target| !target.is_left.load(Ordering::Relaxed));
            open.all(|target| target.unanswered.load(Ordering::Relaxed) == 0)
                .then_some(())
        });
        self.runtime.shutdown_background();
        self.tally.answered.load(Ordering::Relaxed)
    }
}

async fn press(target: Arc<Target>, tally: Arc<Tally>, per_second: u32) {
    let mut tick = interval(Duration::from_secs(1) / per_second);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut count = 0usize;
    while !tally.ends.load(Ordering::Relaxed) && !target.is_left.load(Ordering::Relaxed) {
        tick.tick().await;
        let (way, is_post) = (WAYS[count % WAYS.len()], count / WAYS.len() % 2 == 1);
        count += 1;
        let (target, tally) = (Arc::clone(&target), Arc::clone(&tally));
        let unanswered = target.unanswered.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let sent_after = tally.begin.elapsed();
            let done = match unanswered >= UNANSWERED_MAX {
                true => Err(Cause::TooMany),
                false => timeout(ANSWER_WITHIN, target.ask(way, is_post))
                    .await
                    .unwrap_or(Err(Cause::Silent)),
            };
            let failed_after = tally.begin.elapsed();
            match done {
                Ok(()) => {
                    tally.answered.fetch_add(1, Ordering::Relaxed);
                    let took_us = u64::try_from((failed_after - sent_after).as_micros()).unwrap();
                    tally.latencies_us.lock().unwrap().push(took_us);
                }
                Err(_) if target.is_left.load(Ordering::Relaxed) => {}
                Err(cause) => tally.failures.lock().unwrap().push(Failure {
                    sent_after,
                    failed_after,
                    target: target.addr,
                    way,
                    is_post,
                    cause,
                }),
            }
            target.unanswered.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl Target {
    async fn ask(&self, way: Way, is_post: bool) -> Result<(), Cause> {
        let mut unsent = 0;
        loop {
            let asked = match way {
                Way::KeptOne | Way::NewOne => self.ask_one(way, is_post).await,
                Way::KeptTwo | Way::NewTwo => self.ask_two(way, is_post).await,
            };
            match asked? {
                Some(()) => return Ok(()),
                // Closed before a byte was sent, as it may be.
                None if unsent < UNSENT_MAX => unsent += 1,
                None => return Err(Cause::Connect("every connection was closed before use".into())),
            }
        }
    }

    fn request(&self, is_post: bool) -> Request<Full<Bytes>> {
        let uri = format!("http://{}/", self.addr);
        let (method, body) = match is_post {
            true => ("POST", Bytes::from_static(&[b'x'; BODY_BYTES])),
            false => ("GET", Bytes::new()),
        };
        let request = Request::builder().method(method).uri(uri).header("host", "load");
        request.body(Full::new(body)).unwrap()
    }

    async fn stream(&self) -> Result<TokioIo<TcpStream>, Cause> {
        let stream = TcpStream::connect(self.addr).await;
        let stream = stream.map_err(|error| Cause::Connect(error.to_string()))?;
        stream
            .set_nodelay(true)
            .map_err(|error| Cause::Connect(error.to_string()))?;
        Ok(TokioIo::new(stream))
    }

    /// `None` where nothing was sent.
    async fn ask_one(&self, way: Way, is_post: bool) -> Result<Option<()>, Cause> {
        let kept = match way {
            Way::KeptOne => self.kept_one(),
            Way::NewOne | Way::KeptTwo | Way::NewTwo => None,
        };
        let mut sender = match kept {
            Some(sender) => sender,
            None => {
                let made = http1::handshake(self.stream().await?).await;
                let (sender, connection) = made.map_err(|error| Cause::Connect(error.to_string()))?;
                tokio::spawn(connection);
                sender
            }
        };
        let mut request = self.request(is_post);
        *request.uri_mut() = "/".parse().unwrap();
        let response = match sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                return match error.take_message() {
                    Some(_) => Ok(None),
                    None => Err(lost(&error.into_error())),
                };
            }
        };
        read(response).await?;
        if way == Way::KeptOne && sender.ready().await.is_ok() {
            self.one.lock().unwrap().push(sender);
        }
        Ok(Some(()))
    }

    fn kept_one(&self) -> Option<http1::SendRequest<Full<Bytes>>> {
        let mut kept = self.one.lock().unwrap();
        while let Some(sender) = kept.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    async fn ask_two(&self, way: Way, is_post: bool) -> Result<Option<()>, Cause> {
        let mut sender = match way {
            Way::KeptTwo => {
                let mut kept = self.two.lock().await;
                match kept.as_ref().filter(|sender| !sender.is_closed()) {
                    Some(sender) => sender.clone(),
                    None => kept.insert(self.connect_two().await?).clone(),
                }
            }
            Way::KeptOne | Way::NewOne | Way::NewTwo => self.connect_two().await?,
        };
        if sender.ready().await.is_err() {
            return Ok(None);
        }
        let response = match sender.try_send_request(self.request(is_post)).await {
            Ok(response) => response,
            Err(mut error) => {
                return match error.take_message() {
                    Some(_) => Ok(None),
                    None => Err(lost(&error.into_error())),
                };
            }
        };
        read(response).await.map(Some)
    }

    async fn connect_two(&self) -> Result<http2::SendRequest<Full<Bytes>>, Cause> {
        let made = http2::handshake(TokioExecutor::new(), self.stream().await?).await;
        let (sender, connection) = made.map_err(|error| Cause::Connect(error.to_string()))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

async fn read(response: Response<hyper::body::Incoming>) -> Result<(), Cause> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| lost(&error))?.to_bytes();
    match parts.status.as_u16() {
        200 => Ok(()),
        status => Err(Cause::Status(status, String::from_utf8_lossy(&body).into_owned())),
    }
}

fn lost(error: &hyper::Error) -> Cause {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    Cause::Lost(format!("{error}{}", source.unwrap_or_default()))
}

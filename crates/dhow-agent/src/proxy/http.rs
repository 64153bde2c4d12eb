//! HTTP listeners: one task per client connection, which balances each of its requests by itself.

mod access;
mod ahead;
mod attempts;
mod body;
mod challenge;
mod chunks;
mod exchange;
mod extended;
mod failed;
mod forward;
mod head;
mod headers;
mod joined_writes;
mod pace;
mod patience;
pub mod pool;
mod pump;
mod sticky;
mod tunnel;
mod usual;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderValue;
use hyper::http::uri::Scheme;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::ahead::Ahead;
pub use self::attempts::{BACKEND_LOOK_INTERVAL, BACKEND_WAIT};
use self::joined_writes::JoinedWrites;
use self::pace::StreamExecutor;
use self::patience::{Patient, TAKE_TIMEOUT};
use super::access_log::AccessLog;
use super::connect;
use super::idle_clients::HttpClient;
use super::judge::Arrival;
use super::limits::{Limits, ListenerRoom, Permit};
use super::mesh::Origin;
use super::relay::reset;
use super::routes::{Route, RouteSet};
use super::table::{Peer, Rule};
use super::tls::{self, Certificates, TlsDoor};

/// From a connection, or the end of its last request, to the end of the next request's headers. So an idle
/// client is let go after this time too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// The request line with all headers. Browsers stay below 16 KiB; common servers refuse beyond 8 to 64.
const HEADER_MAX_BYTES: usize = 64 << 10;
const HEADERS_MAX: usize = 128;
/// What one direction of one connection may hold in memory: the longest headers fit.
pub const BUFFER_MAX_BYTES: usize = HEADER_MAX_BYTES;
/// Requests at once on one HTTP/2 connection, each of which may hold a window of 64 KiB, and takes a permit of the process
/// as a connection does: it has one to its replica.
const STREAMS_MAX: u32 = 256;
/// An HTTP/2 client that is gone without a word is noticed within both of these.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an idle client of a listener that ends may still send a request, which is then answered and
/// told to connect anew. Closing at once would meet requests that are on their way. So long one has, too, that makes room
/// for others.
const LINGER: Duration = Duration::from_secs(2);

/// What all connections of a listener share.
#[derive(Clone)]
pub struct HttpListener {
    pub routes: watch::Receiver<Arc<RouteSet>>,
    /// No new connections; those that are open finish.
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
    pub limits: Limits,
    /// Room for connections, and for requests that come over HTTP/2.
    pub room: ListenerRoom,
    /// Requests come over TLS.
    pub tls: Option<TlsDoor>,
    /// Those of all listeners: plain requests for a host are sent to HTTPS once it has one.
    pub certificates: Arc<Certificates>,
    pub access_log: AccessLog,
}

/// One client connection.
struct Connection {
    listener: HttpListener,
    scheme: Scheme,
    /// It is a proxy in front, whose word on its clients counts.
    is_trusted: bool,
    peer: HeaderValue,
    arrival: Arrival,
    /// Found out when it first matters.
    caller: OnceLock<Peer>,
    /// Requests that have come.
    begun: AtomicU64,
    /// A response has told the client that this connection ends.
    told: AtomicBool,
    told_notify: Notify,
    client: HttpClient,
    /// Held by tunnels too, which outlive the connection that they grew out of.
    _permit: Permit,
}

impl AsRef<HttpClient> for Connection {
    fn as_ref(&self) -> &HttpClient {
        &self.client
    }
}

impl Connection {
    fn is_ending(&self) -> bool {
        self.listener.stop.is_cancelled()
    }

    /// Whether this client may have its request sent by a route.
    fn may_call(&self, route: &Route) -> bool {
        match &route.who {
            Rule::Anybody => self.arrival.may_call(route, &Peer::Stranger),
            Rule::Judged(_) => {
                let caller = self.caller.get_or_init(|| self.arrival.identify());
                self.arrival.may_call(route, caller)
            }
        }
    }

    /// Whom the request is from, as other nodes are told: where everybody may call it does not matter.
    fn origin(&self, route: &Route) -> Origin {
        match &route.who {
            Rule::Anybody => Origin::Outside,
            Rule::Judged(_) => Origin::of(self.caller.get_or_init(|| self.arrival.identify())),
        }
    }

    /// Whether what the client says of whom it speaks for is believed: where callers are known, and of proxies in front.
    fn is_believed(&self, route: &Route) -> bool {
        match &route.who {
            Rule::Anybody => self.is_trusted,
            Rule::Judged(_) => true,
        }
    }

    /// Returns when no request has come for as long as an idle client is kept. HTTP/1 has its own time for that.
    async fn quiet(&self, version: Version) {
        if version == Version::One {
            return std::future::pending().await;
        }
        let mut seen = 0;
        loop {
            tokio::time::sleep(HEADER_TIMEOUT).await;
            let begun = self.begun.load(Ordering::Relaxed);
            if begun == seen {
                return;
            }
            seen = begun;
        }
    }

    fn tell(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            self.told_notify.notify_one();
        }
    }
}

/// Serves one client to its end. One that may use no route at all is reset.
pub async fn serve(listener: HttpListener, stream: TcpStream, arrival: Arrival, permit: Permit) {
    let caller = OnceLock::new();
    if listener.routes.borrow().is_judged() {
        let peer = caller.get_or_init(|| arrival.identify());
        if let Some(route) = listener.routes.borrow().refusing(peer) {
            arrival.may_call(route, peer);
            reset(stream);
            return;
        }
    }
    connect::set_up(&stream);
    let ip = arrival.peer.ip().to_canonical().to_string();
    let Ok(peer) = HeaderValue::try_from(ip) else {
        return;
    };
    let client = listener.limits.idle_clients.enter(arrival.peer.ip());
    let opened = tokio::select! {
        opened = tokio::time::timeout(HEADER_TIMEOUT, open(&listener, stream)) => opened,
        () = ending(&listener.stop) => return,
        () = client.gone.cancelled() => return,
    };
    let Ok(Some((opened, version))) = opened else {
        return;
    };
    let connection = Arc::new(Connection {
        scheme: match &opened {
            Opened::Plain(_) => Scheme::HTTP,
            Opened::Tls(_) => Scheme::HTTPS,
        },
        is_trusted: arrival.judge.trusts(arrival.peer.ip()),
        listener,
        peer,
        arrival,
        caller,
        begun: AtomicU64::new(0),
        told: AtomicBool::new(false),
        told_notify: Notify::new(),
        client,
        _permit: permit,
    });
    match opened {
        Opened::Plain(stream) => serve_requests(connection, JoinedWrites(stream), version).await,
        Opened::Tls(stream) => serve_requests(connection, *stream, version).await,
    }
}

/// A client's connection that can carry requests.
enum Opened {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Makes a connection ready for requests, and finds out which version of HTTP it speaks.
async fn open(listener: &HttpListener, stream: TcpStream) -> Option<(Opened, Version)> {
    let Some(tls) = &listener.tls else {
        let version = sniff(&stream).await.ok()?;
        return Some((Opened::Plain(stream), version));
    };
    let stream = tls.greet(stream).await?;
    let version = match tls::speaks_two(&stream) {
        true => Version::Two,
        false => Version::One,
    };
    Some((Opened::Tls(Box::new(stream)), version))
}

async fn serve_requests(
    connection: Arc<Connection>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    version: Version,
) {
    let stream = Patient::new(stream);
    let stream = match version {
        Version::One => match usual::serve(&connection, stream).await {
            Some(rest) => rest,
            None => return,
        },
        Version::Two => Ahead::new(Bytes::new(), stream),
    };
    let io = TokioIo::new(stream);
    let shared = connection.clone();
    let service = service_fn(move |request| forward::answer(shared.clone(), request));
    // How a client's connection ended is the client's affair: there is nobody to tell.
    match version {
        Version::One => {
            let served = http1_builder().serve_connection(io, service).with_upgrades();
            let mut served = std::pin::pin!(served);
            drive(served.as_mut(), &connection, version, |served| {
                served.graceful_shutdown()
            })
            .await;
        }
        Version::Two => {
            let mut served = std::pin::pin!(http2_builder().serve_connection(io, service));
            drive(served.as_mut(), &connection, version, |served| {
                served.graceful_shutdown()
            })
            .await;
        }
    }
}

/// Runs a connection; when its listener ends, closes it as gently as the protocol allows. So it does with one that nobody
/// uses, of which requests that are under way finish.
async fn drive<F: Future>(
    mut served: Pin<&mut F>,
    connection: &Connection,
    version: Version,
    shut_down: fn(Pin<&mut F>),
) {
    tokio::select! {
        biased;
        _ = served.as_mut() => return,
        () = connection.listener.stop.cancelled() => {}
        () = connection.client.gone.cancelled() => {
            if connection.begun.load(Ordering::Relaxed) == 0 {
                return;
            }
            shut_down(served.as_mut());
            // What it was sent last may be on its way still, and what it has begun meanwhile is answered.
            let ended = tokio::time::timeout(LINGER, served.as_mut()).await;
            if ended.is_err() && !connection.client.is_idle() {
                finish(served, connection, version).await;
            }
            return;
        }
        // Who has never asked anything, and may never have greeted, waits for nothing.
        () = connection.quiet(version) => {
            if connection.begun.load(Ordering::Relaxed) == 0 {
                return;
            }
            shut_down(served.as_mut());
            return finish(served, connection, version).await;
        }
    }
    tokio::select! {
        biased;
        _ = served.as_mut() => return,
        () = connection.told_notify.notified() => {}
        () = tokio::time::sleep(LINGER) => {}
    }
    shut_down(served.as_mut());
    finish(served, connection, version).await;
}

/// Lets what is under way come to its end. What an HTTP/2 client has been sent then and has not taken is not waited for
/// without end: it may never open the window.
async fn finish<F: Future>(mut served: Pin<&mut F>, connection: &Connection, version: Version) {
    if version == Version::One {
        served.await;
        return;
    }
    let mut was_done = false;
    loop {
        tokio::select! {
            biased;
            _ = served.as_mut() => return,
            () = tokio::time::sleep(TAKE_TIMEOUT) => {}
        }
        let is_done = connection.client.is_idle();
        if is_done && was_done {
            return;
        }
        was_done = is_done;
    }
}

/// A client that has not said a word yet is given the same time as an idle one.
async fn ending(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LINGER).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// HTTP/2 begins with words that no HTTP/1 request can begin with.
async fn sniff(stream: &TcpStream) -> io::Result<Version> {
    const PREFACE: &[u8] = b"PRI ";
    /// A client that sends less than four bytes and pauses is rare, and may wait this long; one that goes on with it, longer
    /// each time.
    const PAUSE: Duration = Duration::from_millis(5);
    const PAUSE_MAX: Duration = Duration::from_millis(320);
    let mut start = [0u8; PREFACE.len()];
    let mut pause = PAUSE;
    loop {
        let has_said_all = stream.ready(Interest::READABLE).await?.is_read_closed();
        let count = stream.peek(&mut start).await?;
        let seen = start.get(..count).unwrap_or_default();
        if !seen.is_empty() && !PREFACE.starts_with(seen) {
            return Ok(Version::One);
        }
        if seen.len() == PREFACE.len() {
            return Ok(Version::Two);
        }
        // What is there stays there, so that the end behind it is not seen by looking.
        if seen.is_empty() || has_said_all {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEADER_MAX_BYTES)
        .max_buf_size(BUFFER_MAX_BYTES)
        // A client that has sent its request and closed its side still wants the answer.
        .half_close(true);
    builder
}

fn http2_builder() -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(StreamExecutor);
    builder
        .timer(TokioTimer::new())
        .enable_connect_protocol()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEADER_MAX_BYTES).unwrap_or(u32::MAX))
        .max_send_buf_size(BUFFER_MAX_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// What a client speaks that sends these bytes and no more.
    async fn sniffed(begin: &[u8], closes: bool) -> Option<io::Result<Version>> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(begin).await.unwrap();
        if closes {
            client.shutdown().await.unwrap();
        }
        let (stream, _) = listener.accept().await.unwrap();
        tokio::time::timeout(HEADER_TIMEOUT, sniff(&stream)).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_said_all_is_not_waited_for() {
        for begin in [&b""[..], b"P", b"PRI"] {
            assert!(matches!(sniffed(begin, true).await, Some(Err(_))), "{begin:?}");
        }
        assert!(sniffed(b"PRI", false).await.is_none());
        assert!(matches!(sniffed(b"PRI *", true).await, Some(Ok(Version::Two))));
        // A client that has closed its side still wants the answer.
        for closes in [true, false] {
            assert!(matches!(
                sniffed(b"POST / HTTP/1.1", closes).await,
                Some(Ok(Version::One))
            ));
        }
    }
}

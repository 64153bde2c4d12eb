//! Backends, a balancer on sockets that are bound beforehand, and a client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::proxy::balancer::{Balancer, ListenerKey};
use crate::proxy::judge::Side;
use crate::proxy::limits::Limits;
use crate::proxy::protocol::{Applied, BackendStatus};
use crate::proxy::table::{Backend, Listener, Protocol, Route, Table};

pub const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// A balancer whose listeners get their sockets by hand, so that no port is guessed.
pub struct Bench {
    pub balancer: Arc<Balancer>,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(Limits::new(4096))
    }

    pub fn with(limits: Limits) -> Self {
        let owner = nix::unistd::geteuid().as_raw();
        Self {
            balancer: Arc::new(Balancer::new(limits, owner, None)),
        }
    }

    /// Applies one listener with these routes on a port of the kernel's choice.
    pub async fn listen(&self, protocol: Protocol, routes: Vec<Route>) -> SocketAddr {
        let (addr, socket) = match protocol {
            Protocol::Tcp | Protocol::Http => {
                let socket = std::net::TcpListener::bind(LOCAL).unwrap();
                (socket.local_addr().unwrap(), socket.into())
            }
            Protocol::Udp => {
                let socket = std::net::UdpSocket::bind(LOCAL).unwrap();
                (socket.local_addr().unwrap(), socket.into())
            }
        };
        let table = table(vec![listener(addr, protocol, routes)]);
        let key = ListenerKey {
            side: Side::Host,
            transport: protocol.transport(),
            addr,
        };
        let inherited = BTreeMap::from([(key, socket)]);
        let applied = self.balancer.apply(table, inherited).await.unwrap();
        assert_eq!(applied.listeners, vec![(addr, Ok(()))]);
        addr
    }

    pub async fn apply(&self, listeners: Vec<Listener>) -> Applied {
        self.balancer
            .apply(table(listeners), BTreeMap::new())
            .await
            .unwrap()
    }

    pub async fn backend(&self, id: &str) -> BackendStatus {
        let status = self.balancer.status().await;
        status
            .backends
            .into_iter()
            .find(|backend| backend.id == id)
            .unwrap()
    }
}

pub fn table(listeners: Vec<Listener>) -> Table {
    Table {
        revision: 1,
        listeners,
        ..Table::empty()
    }
}

pub fn listener(addr: SocketAddr, protocol: Protocol, routes: Vec<Route>) -> Listener {
    Listener::new(addr, protocol, routes)
}

pub fn route(backends: Vec<Backend>) -> Route {
    route_for("all", None, None, backends)
}

pub fn route_for(id: &str, host: Option<&str>, path: Option<&str>, backends: Vec<Backend>) -> Route {
    Route {
        id: id.into(),
        host: host.map(str::to_owned),
        path: path.map(str::to_owned),
        backends,
        ..Route::default()
    }
}

pub fn backend(id: &str, addr: SocketAddr) -> Backend {
    Backend::here(id, addr)
}

/// The control group of this process, where the host has groups of version 2.
pub fn own_cgroup() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let mut mounts = mounts.iter().map(Path::new);
    let mount = mounts.find(|mount| mount.join("cgroup.procs").exists())?;
    Some(std::fs::metadata(mount.join(path)).ok()?.ino())
}

/// An address that refuses: bound by this process and never listened on.
pub fn refusing() -> (tokio::net::TcpSocket, SocketAddr) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(LOCAL.into()).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

/// A small HTTP server that answers with its name, the path and some headers.
pub struct Server {
    pub addr: SocketAddr,
    /// `/gate` answers once a permit is here.
    pub gate: Arc<Semaphore>,
    /// Told when a request for `/gate` has arrived.
    pub arrived: Arc<Notify>,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    pub async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind(LOCAL).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (gate, arrived) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
        let stop = CancellationToken::new();
        let (inner_gate, inner_arrived, stopped) = (gate.clone(), arrived.clone(), stop.clone());
        tokio::spawn(async move {
            loop {
                let stream = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap().0,
                    () = stopped.cancelled() => return,
                };
                let (gate, arrived, stopped) = (inner_gate.clone(), inner_arrived.clone(), stopped.clone());
                tokio::spawn(async move {
                    let service =
                        service_fn(move |request| answer(name, request, gate.clone(), arrived.clone()));
                    let served = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .with_upgrades();
                    tokio::select! {
                        _ = served => {}
                        () = stopped.cancelled() => {}
                    }
                });
            }
        });
        Self {
            addr,
            gate,
            arrived,
            stop,
        }
    }

    /// Closes everything at once, requests in flight included.
    pub fn kill(&self) {
        self.stop.cancel();
    }
}

async fn answer(
    name: &'static str,
    mut request: Request<Incoming>,
    gate: Arc<Semaphore>,
    arrived: Arc<Notify>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let wanted = request.headers().get("upgrade").cloned();
    // There nothing changes, whatever is wanted.
    if let Some(wanted) = wanted.filter(|_| request.uri().path() != "/plain") {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut echo = TokioIo::new(upgraded.await.unwrap());
            let (mut reader, mut writer) = tokio::io::split(&mut echo);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        });
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response
            .headers_mut()
            .insert("connection", "upgrade".parse().unwrap());
        response.headers_mut().insert("upgrade", wanted);
        return Ok(response);
    }
    if request.uri().path() == "/gate" {
        arrived.notify_one();
        gate.acquire().await.unwrap().forget();
    }
    let mut seen: Vec<String> = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
        .collect();
    seen.sort();
    let path = request.uri().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let text = format!(
        "{name} {path} {} {}",
        String::from_utf8_lossy(&body),
        seen.join(" ")
    );
    let mut response = Response::new(Full::new(Bytes::from(text)));
    response
        .headers_mut()
        .insert("keep-alive", "timeout=5".parse().unwrap());
    Ok(response)
}

/// An HTTP/1 client with one connection.
pub struct Client {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: hyper::HeaderMap,
    pub text: String,
}

impl Answer {
    /// The first word of a [`Server`]'s answer.
    pub fn server(&self) -> &str {
        self.text.split(' ').next().unwrap()
    }
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection.with_upgrades());
        Self { sender }
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.get_host(path, "localhost").await
    }

    pub async fn get_host(&mut self, path: &str, host: &str) -> Answer {
        let request = Request::get(path)
            .header("host", host)
            .body(Full::default())
            .unwrap();
        self.send(request).await
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Answer {
        self.sender.ready().await.unwrap();
        read(self.sender.send_request(request).await.unwrap()).await
    }
}

pub async fn read(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status,
        headers: parts.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

/// A connection of HTTP/2 in clear.
pub async fn connect_two(addr: SocketAddr) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let handshake = hyper::client::conn::http2::handshake(executor, TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

/// An HTTP/2 request in clear, on a connection of its own.
pub async fn get_two(addr: SocketAddr, path: &str) -> Answer {
    let mut sender = connect_two(addr).await;
    let request = Request::get(format!("http://two.example{path}"))
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Empty::<Bytes>::new())
        .unwrap();
    read(sender.send_request(request).await.unwrap()).await
}

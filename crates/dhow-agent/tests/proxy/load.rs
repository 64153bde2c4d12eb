//! Clients that send requests one after the other on connections that they keep, and count what failed.
//! They never try again: what fails, failed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// What came of a request: its body, or what went wrong.
pub type Outcome = Result<String, String>;

pub struct Load {
    stop: Arc<AtomicBool>,
    pub done: Arc<AtomicU64>,
    clients: JoinSet<BTreeMap<String, u64>>,
}

impl Load {
    pub fn start(addr: SocketAddr, method: &Method, path: &'static str, clients: usize) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut set = JoinSet::new();
        for _ in 0..clients {
            let (stop, done, method) = (stop.clone(), done.clone(), method.clone());
            set.spawn(async move {
                let mut client = Client::new(addr);
                let mut failures = BTreeMap::new();
                while !stop.load(Ordering::Relaxed) {
                    if let Err(why) = client.send(&method, path).await {
                        *failures.entry(why).or_default() += 1;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                failures
            });
        }
        Self {
            stop,
            done,
            clients: set,
        }
    }

    /// Waits until this many further requests are done.
    pub async fn further(&self, count: u64) {
        let goal = self.done.load(Ordering::Relaxed) + count;
        while self.done.load(Ordering::Relaxed) < goal {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Ends it; gives the failures with their number.
    pub async fn finish(mut self) -> BTreeMap<String, u64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = BTreeMap::new();
        while let Some(failures) = self.clients.join_next().await {
            for (why, count) in failures.unwrap() {
                *all.entry(why).or_default() += count;
            }
        }
        all
    }
}

/// Keeps a connection for as long as the server does.
pub struct Client {
    addr: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, sender: None }
    }

    pub async fn get(&mut self, path: &str) -> Outcome {
        self.send(&Method::GET, path).await
    }

    pub async fn send(&mut self, method: &Method, path: &str) -> Outcome {
        let kept = match self.sender.take() {
            // Ready means that the last response is read; an error, that the server said it would close.
            Some(mut sender) => sender.ready().await.is_ok().then_some(sender),
            None => None,
        };
        let mut sender = match kept {
            Some(sender) => sender,
            None => connect(self.addr).await?,
        };
        let body = if method == Method::POST {
            Full::from("a body")
        } else {
            Full::default()
        };
        let request = Request::builder().method(method).uri(path).header("host", "test");
        let request = request.body(body).map_err(|error| error.to_string())?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| format!("{error:?}"))?;
        let (parts, body) = response.into_parts();
        let bytes = body
            .collect()
            .await
            .map_err(|error| format!("{error:?}"))?
            .to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if !parts.status.is_success() {
            return Err(format!("{} {text}", parts.status));
        }
        self.sender = Some(sender);
        Ok(text)
    }
}

async fn connect(addr: SocketAddr) -> Result<SendRequest<Full<Bytes>>, String> {
    let stream = TcpStream::connect(addr)
        .await
        .map_err(|error| format!("connect: {error}"))?;
    let _ = stream.set_nodelay(true);
    let made = handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.map_err(|error| format!("handshake: {error}"))?;
    tokio::spawn(connection);
    Ok(sender)
}

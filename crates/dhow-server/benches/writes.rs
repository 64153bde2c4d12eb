//! Writes a second that clients of a running cluster get: of Dhow by its API, or of etcd by its gRPC.
//!
//! `bench/write-throughput` starts both and calls this in turns. Each client has one HTTP/2 connection to the leader,
//! writes, waits for the answer and writes again. The client is the same for both: only the request differs. One line
//! comes out: writes a second, then the median and the 99th percentile of a write in milliseconds.
//!
//! `writes dhow|etcd ADDR CLIENTS SECONDS`

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// Of a value in etcd; a scale of Dhow with its key has about as many.
const VALUE_BYTES: usize = 100;

#[derive(Clone, Copy, Debug)]
enum Target {
    Dhow,
    Etcd,
}

type Sender = SendRequest<Full<Bytes>>;

async fn connect(addr: SocketAddr) -> Sender {
    let stream = TcpStream::connect(addr).await.expect("somebody listens there");
    stream.set_nodelay(true).expect("it is a TCP connection");
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .expect("it speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

fn request(addr: SocketAddr, path: &str, media_type: &str, body: Bytes) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://{addr}{path}"))
        .header("content-type", media_type)
        .body(Full::new(body))
        .expect("the parts are right")
}

/// A deployment of the client's own, of which nothing can ever run.
async fn prepare(sender: &mut Sender, addr: SocketAddr, client: usize) {
    let file = format!(
        r#"{{"version": "v1", "deployment": "bench-{client}", "services": {{"it": {{"runtime": "process",
        "command": ["true"], "scale": {{"mode": "manual"}}, "node_selector": {{"labels": {{"no-such": "label"}}}}}}}}}}"#
    );
    let asked = request(addr, "/api/v1/deployments", "application/json", file.into());
    let answer = sender.send_request(asked).await.expect("it answers");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("it answers").to_bytes();
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
}

/// A changed number of replicas.
fn scale(addr: SocketAddr, client: usize, number: u64) -> Request<Full<Bytes>> {
    let body = format!(
        r#"{{"changes": [{{"service": "it", "replicas": {}}}]}}"#,
        1 + number % 2
    );
    let path = format!("/api/v1/deployments/bench-{client}/scale");
    request(addr, &path, "application/json", body.into())
}

/// A `PutRequest` of a key (field 1) and a value (field 2), framed as gRPC does.
fn put(addr: SocketAddr, client: usize, number: u64) -> Request<Full<Bytes>> {
    let key = format!("bench-{client}/it");
    let value = format!("{number:0>VALUE_BYTES$}");
    let mut message = BytesMut::new();
    for (tag, text) in [(0x0a_u8, key), (0x12, value)] {
        message.put_u8(tag);
        message.put_u8(u8::try_from(text.len()).expect("both are short, so that one byte has the length"));
        message.put_slice(text.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("it is short"));
    frame.put_slice(&message);
    let mut request = request(addr, "/etcdserverpb.KV/Put", "application/grpc", frame.freeze());
    let trailers = hyper::header::HeaderValue::from_static("trailers");
    request.headers_mut().insert("te", trailers);
    request
}

async fn write(sender: &mut Sender, target: Target, request: Request<Full<Bytes>>) {
    let answer = sender.send_request(request).await.expect("it answers");
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.expect("it answers");
    let is_done = match target {
        Target::Dhow => parts.status == StatusCode::OK,
        Target::Etcd => body
            .trailers()
            .is_some_and(|trailers| trailers["grpc-status"] == "0"),
    };
    let text = body.to_bytes();
    assert!(is_done, "{}: {}", parts.status, String::from_utf8_lossy(&text));
}

async fn client(
    target: Target,
    addr: SocketAddr,
    client: usize,
    mut sender: Sender,
    end: Instant,
) -> Vec<Duration> {
    let mut took = Vec::new();
    for number in 0.. {
        let request = match target {
            Target::Dhow => scale(addr, client, number),
            Target::Etcd => put(addr, client, number),
        };
        let start = Instant::now();
        if start >= end {
            break;
        }
        write(&mut sender, target, request).await;
        took.push(start.elapsed());
    }
    took
}

async fn measure(target: Target, addr: SocketAddr, clients: usize, lasting: Duration) {
    let mut senders = Vec::new();
    for number in 0..clients {
        let mut sender = connect(addr).await;
        if matches!(target, Target::Dhow) {
            prepare(&mut sender, addr, number).await;
        }
        senders.push(sender);
    }
    let start = Instant::now();
    let end = start + lasting;
    let tasks = senders.into_iter().enumerate();
    let tasks: Vec<_> = tasks
        .map(|(number, sender)| tokio::spawn(client(target, addr, number, sender, end)))
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.expect("no client fails"));
    }
    let rate = took.len() as f64 / start.elapsed().as_secs_f64();
    took.sort();
    let ms = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1_000.0;
    println!("{rate:.0} {:.2} {:.2}", ms(0.5), ms(0.99));
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [target, addr, clients, seconds] = args.as_slice() else {
        eprintln!("writes dhow|etcd ADDR CLIENTS SECONDS; see bench/write-throughput");
        return;
    };
    let target = match target.as_str() {
        "dhow" => Target::Dhow,
        "etcd" => Target::Etcd,
        other => panic!("`{other}` is neither dhow nor etcd"),
    };
    let addr = addr.parse().expect("an address with a port");
    let clients = clients.parse().expect("a number of clients");
    let lasting = Duration::from_secs(seconds.parse().expect("a number of seconds"));
    let runtime = tokio::runtime::Runtime::new().expect("threads can be had");
    runtime.block_on(measure(target, addr, clients, lasting));
}

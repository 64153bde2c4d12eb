//! gRPC: HTTP/2 to the replica, both ways at once, with the trailers that say how it ended.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::support::*;
use crate::proxy::table::Protocol;

type Frames = mpsc::Receiver<Result<Frame<Bytes>, Infallible>>;

/// A body out of a channel.
fn body(
    mut frames: Frames,
) -> StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Unpin> {
    StreamBody::new(futures_util::stream::poll_fn(move |cx| frames.poll_recv(cx)))
}

/// As many calls at once as a server lets in that lets in no more than it is asked to.
const CALLS_AT_ONCE: u32 = 100;
/// Longer than anything here takes, so that what hangs is told.
const PATIENCE: Duration = Duration::from_secs(60);

/// Speaks HTTP/2 and nothing else; sends every message back as it comes, and a trailer at the end.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind(LOCAL).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                builder.max_concurrent_streams(CALLS_AT_ONCE);
                let served = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
                let _ = served.await;
            });
        }
    });
    addr
}

async fn answer(
    request: Request<Incoming>,
) -> Result<
    Response<StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>>>>,
    Infallible,
> {
    assert_eq!(request.version(), Version::HTTP_2);
    assert_eq!(request.headers()["te"], "trailers");
    assert_eq!(request.uri().authority().unwrap(), "shop.test");
    let (sender, frames) = mpsc::channel(4);
    let mut asked = request.into_body();
    tokio::spawn(async move {
        while let Some(Ok(frame)) = asked.frame().await {
            if let Ok(data) = frame.into_data() {
                sender.send(Ok(Frame::data(data))).await.unwrap();
            }
        }
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        let _ = sender.send(Ok(Frame::trailers(trailers))).await;
    });
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(body(frames)).unwrap())
}

#[tokio::test]
async fn messages_pass_both_ways_and_trailers_end_them() {
    let bench = Bench::new();
    let routes = vec![route(vec![backend("a", echo().await)])];
    let addr = bench.listen(Protocol::Http, routes).await;
    let stream = TcpStream::connect(addr).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    // A second call on the same connection uses the backend's connection again.
    for _ in 0..2 {
        let (messages, frames) = mpsc::channel(4);
        let request = Request::post("http://shop.test/echo.Echo/Say")
            .header("content-type", "application/grpc+proto")
            .header("te", "trailers");
        let request = request.body(body(frames)).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let mut answers = response.into_body();
        for word in ["one", "two", "three"] {
            messages.send(Ok(Frame::data(Bytes::from(word)))).await.unwrap();
            // It comes back before the request has ended.
            let frame = answers.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), word);
        }
        drop(messages);
        let trailers = answers.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert!(answers.frame().await.is_none());
    }
    let backend = bench.backend("a").await;
    assert_eq!((backend.total, backend.in_flight), (2, 0));
}

type Messages = futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>;
type Calls = hyper::client::conn::http2::SendRequest<StreamBody<Messages>>;

/// A client that lets so many bytes of one answer be on their way.
async fn client(addr: SocketAddr, window_bytes: u32) -> Calls {
    let stream = TcpStream::connect(addr).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window_bytes);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Begins a call that goes on for as long as the sender is kept.
async fn call(
    calls: &mut Calls,
    path: &str,
) -> (mpsc::Sender<Result<Frame<Bytes>, Infallible>>, Response<Incoming>) {
    let (messages, mut frames) = mpsc::channel(4);
    let frames: Messages = Box::pin(futures_util::stream::poll_fn(move |cx| frames.poll_recv(cx)));
    let request = Request::post(format!("http://shop.test{path}"))
        .header("content-type", "application/grpc")
        .body(StreamBody::new(frames))
        .unwrap();
    let answered = tokio::time::timeout(PATIENCE, calls.send_request(request)).await;
    (messages, answered.expect("it is served").unwrap())
}

#[tokio::test]
async fn calls_that_go_on_keep_nobody_else_out() {
    let bench = Bench::new();
    let routes = vec![route(vec![backend("a", echo().await)])];
    let addr = bench.listen(Protocol::Http, routes).await;
    let mut calls = client(addr, 1 << 16).await;
    let mut open = Vec::new();
    for _ in 0..=CALLS_AT_ONCE {
        open.push(call(&mut calls, "/echo.Echo/Watch").await);
    }
    assert_eq!(bench.backend("a").await.in_flight, CALLS_AT_ONCE + 1);
}

/// Sends without end what is asked for below `/flood`, and counts it; answers everything else at once.
async fn flooding(sent: Arc<AtomicUsize>) -> SocketAddr {
    const PIECE: &[u8] = &[7; 16 << 10];
    let listener = TcpListener::bind(LOCAL).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let sent = Arc::clone(&sent);
            let service = service_fn(move |request: Request<Incoming>| {
                let (sent, floods) = (Arc::clone(&sent), request.uri().path() == "/flood");
                let pieces = std::iter::from_fn(move || {
                    sent.fetch_add(PIECE.len(), Ordering::Relaxed);
                    Some(Ok::<_, Infallible>(Frame::data(Bytes::from_static(PIECE))))
                });
                let pieces = pieces.take(if floods { usize::MAX } else { 0 });
                let body = StreamBody::new(futures_util::stream::iter(pieces));
                std::future::ready(Ok::<_, Infallible>(Response::new(body)))
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    addr
}

#[tokio::test]
async fn answers_of_one_connection_that_nobody_reads_leave_room_for_others() {
    let sent = Arc::new(AtomicUsize::new(0));
    let bench = Bench::new();
    let routes = vec![route(vec![backend("a", flooding(Arc::clone(&sent)).await)])];
    let addr = bench.listen(Protocol::Http, routes).await;
    let mut stalled = client(addr, 1 << 10).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(call(&mut stalled, "/flood").await);
    }
    // More than four of them have on their way.
    while sent.load(Ordering::Relaxed) < 1 << 20 {
        tokio::task::yield_now().await;
    }
    let mut calls = client(addr, 1 << 16).await;
    let (_messages, answer) = call(&mut calls, "/flood").await;
    let mut answer = answer.into_body();
    let first = tokio::time::timeout(PATIENCE, answer.frame()).await;
    assert!(first.expect("it has room").unwrap().unwrap().is_data());
}

#[tokio::test]
async fn what_is_no_grpc_is_asked_by_the_older_version() {
    let server = Server::start("a").await;
    let bench = Bench::new();
    let addr = bench
        .listen(Protocol::Http, vec![route(vec![backend("a", server.addr)])])
        .await;
    let stream = TcpStream::connect(addr).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    for kind in ["application/grpc-web", "application/json"] {
        let request = Request::post("http://shop.test/x").header("content-type", kind);
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answer = read(sender.send_request(request).await.unwrap()).await;
        assert_eq!(answer.server(), "a");
    }
}

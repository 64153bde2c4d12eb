//! A canary gets its share of the requests, and what fails of it and of the version beside it is counted.

use std::net::SocketAddr;

use dhow_core::rollout::{Counted, Figures};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::support::*;
use crate::proxy::table::{Backend, Canary, Protocol};

/// Answers one request after the other with these, each on a connection of its own; nothing closes it without a word.
async fn replica(answers: Vec<&'static str>) -> SocketAddr {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let addr = server.local_addr().unwrap();
    tokio::spawn(async move {
        for answer in answers {
            let (stream, _) = server.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).await.unwrap() > 2 {
                line.clear();
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    addr
}

/// One request on a connection of its own, and all that comes of it.
async fn ask(addr: SocketAddr) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // An answer that breaks off may end in an error.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

fn tried(id: &str, addr: SocketAddr, (share, of): (u32, u32)) -> Backend {
    let number = 7;
    Backend {
        canary: Some(Canary { number, share, of }),
        ..backend(id, addr)
    }
}

fn counted(requests: u64, errors: u64) -> Counted {
    Counted { requests, errors }
}

fn figures(bench: &Bench) -> Option<(u32, Figures)> {
    bench
        .balancer
        .figures()
        .first()
        .and_then(|figures| figures.canary)
}

#[tokio::test]
async fn a_canary_gets_its_share_and_what_fails_of_it_is_counted() {
    let old = Server::start("old").await;
    let answers = vec![
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nnew",
        "HTTP/1.1 500 Failed\r\ncontent-length: 3\r\nconnection: close\r\n\r\nnew",
        // Breaks off.
        "HTTP/1.1 200 OK\r\ncontent-length: 30\r\nconnection: close\r\n\r\nnew",
        // A call of gRPC that failed, as its last words say.
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: grpc-status\r\nconnection: close\r\n\r\n\
         3\r\nnew\r\n0\r\ngrpc-status: 14\r\n\r\n",
        // No answer: the request is sent to the other version, as it changes nothing.
        "",
        // What the caller did wrong.
        "HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\nconnection: close\r\n\r\nnew",
    ];
    let count = answers.len() as u64;
    let canary = replica(answers).await;
    let bench = Bench::new();
    let backends = vec![backend("old@1", old.addr), tried("new@2", canary, (1, 5))];
    let addr = bench.listen(Protocol::Http, vec![route(backends)]).await;
    assert_eq!(figures(&bench), None, "nobody has called");
    let mut by_old = 0;
    for _ in 0..5 * count {
        by_old += u64::from(ask(addr).await.contains("old / "));
    }
    assert_eq!(by_old, 4 * count + 1);
    let all = Figures {
        canary: counted(count, 4),
        base: counted(4 * count + 1, 0),
    };
    assert_eq!(figures(&bench), Some((7, all)));
}

#[tokio::test]
async fn where_a_version_has_nobody_the_other_one_answers() {
    let old = Server::start("old").await;
    let (_held, nobody) = refusing();
    let bench = Bench::new();
    let backends = |canary| vec![backend("old@1", old.addr), tried("new@2", canary, (1, 2))];
    let addr = bench.listen(Protocol::Http, vec![route(backends(nobody))]).await;
    for _ in 0..10 {
        assert!(ask(addr).await.contains("old / "));
    }
    let (_, told) = figures(&bench).unwrap();
    assert_eq!(told.base, counted(10, 0));
    assert!(told.canary.requests > 0, "it was tried");
    assert_eq!(told.canary.requests, told.canary.errors);

    // The old version has gone, and the canary is all there is.
    let new = Server::start("new").await;
    let alone = vec![tried("new@2", new.addr, (1, 2))];
    bench
        .apply(vec![listener(addr, Protocol::Http, vec![route(alone)])])
        .await;
    for _ in 0..4 {
        assert!(ask(addr).await.contains("new / "));
    }
    let (_, after) = figures(&bench).unwrap();
    assert_eq!(
        after.canary.requests,
        told.canary.requests + 4,
        "it is counted on"
    );
}

//! Who is let through on listeners of the host, where the kernel says whose the other end is.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::support::{Bench, Client, Server, backend, listener, own_cgroup, route_for};
use crate::proxy::table::{
    Allowed, EndpointRule, Expose, Names, ProcessCaller, Protocol, Route, Rule, Table,
};

fn judged(server: &Server, expose: Expose, allow: Option<Vec<Allowed>>) -> Route {
    let rule = EndpointRule {
        deployment: "shop".into(),
        expose,
        allow,
    };
    Route {
        who: Rule::Judged(rule),
        ..route_for("shop/db/sql", None, None, vec![backend("a", server.addr)])
    }
}

/// What a client of the listener gets: a word, or how it ended.
async fn call(addr: std::net::SocketAddr) -> Result<String, ErrorKind> {
    let mut stream = TcpStream::connect(addr).await.map_err(|error| error.kind())?;
    let asked = stream.write_all(b"GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    asked.await.map_err(|error| error.kind())?;
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.map_err(|error| error.kind())?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

/// This process as a replica of a service.
fn caller(cgroup: u64, deployment: &str) -> Names {
    Names {
        processes: vec![ProcessCaller {
            deployment: deployment.into(),
            service: "web".into(),
            cgroup: Some(cgroup),
            uid: None,
        }],
        ..Names::default()
    }
}

#[tokio::test]
async fn a_replica_on_the_host_is_judged_by_its_control_group() {
    let Some(cgroup) = own_cgroup() else {
        println!("SKIPPED: this host has no control groups of version 2");
        return;
    };
    let server = Server::start("a").await;
    for protocol in [Protocol::Tcp, Protocol::Http] {
        let bench = Bench::new();
        let addr = bench
            .listen(protocol, vec![judged(&server, Expose::Internal, None)])
            .await;
        // The user who runs the daemon.
        assert!(call(addr).await.unwrap().contains("200"));
        let apply = async |names: Names, expose, allow| {
            let table = Table {
                listeners: vec![listener(addr, protocol, vec![judged(&server, expose, allow)])],
                names: Some(names),
                ..Table::empty()
            };
            bench.balancer.apply(table, Default::default()).await.unwrap();
        };
        apply(caller(cgroup, "shop"), Expose::Internal, None).await;
        assert!(call(addr).await.unwrap().contains("200"));
        apply(caller(cgroup, "blog"), Expose::Internal, None).await;
        assert_eq!(call(addr).await, Err(ErrorKind::ConnectionReset), "{protocol:?}");
        assert_eq!(bench.balancer.status().await.refused_calls, 1);
        apply(caller(cgroup, "blog"), Expose::Cluster, None).await;
        assert!(call(addr).await.unwrap().contains("200"));
        let other = Allowed {
            deployment: "shop".into(),
            service: "admin".into(),
        };
        apply(caller(cgroup, "shop"), Expose::Cluster, Some(vec![other])).await;
        assert_eq!(call(addr).await, Err(ErrorKind::ConnectionReset), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_port_that_is_shared_is_judged_request_by_request() {
    let Some(cgroup) = own_cgroup() else {
        println!("SKIPPED: this host has no control groups of version 2");
        return;
    };
    let server = Server::start("a").await;
    let bench = Bench::new();
    let own = Route {
        path: Some("/own".into()),
        id: "shop/web/http".into(),
        ..judged(&server, Expose::Internal, None)
    };
    let open = route_for("blog/web/http", None, None, vec![backend("a", server.addr)]);
    let addr = bench
        .listen(Protocol::Http, vec![own.clone(), open.clone()])
        .await;
    let table = Table {
        listeners: vec![listener(addr, Protocol::Http, vec![own, open])],
        names: Some(caller(cgroup, "blog")),
        ..Table::empty()
    };
    bench.balancer.apply(table, Default::default()).await.unwrap();
    let mut client = Client::connect(addr).await;
    assert_eq!(client.get("/who").await.status, 200);
    assert_eq!(client.get("/own/x").await.status, 403);
    assert_eq!(client.get("/who").await.status, 200);
}

#[tokio::test]
async fn datagrams_of_those_who_may_not_call_are_dropped() {
    let Some(cgroup) = own_cgroup() else {
        println!("SKIPPED: this host has no control groups of version 2");
        return;
    };
    let echo = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let rule = |deployment: &str| Route {
        who: Rule::Judged(EndpointRule {
            deployment: deployment.into(),
            expose: Expose::Internal,
            allow: None,
        }),
        ..route_for(
            "shop/dns/dns",
            None,
            None,
            vec![backend("a", echo.local_addr().unwrap())],
        )
    };
    let bench = Bench::new();
    let addr = bench.listen(Protocol::Udp, vec![rule("shop")]).await;
    let apply = async |deployment: &str| {
        let table = Table {
            listeners: vec![listener(addr, Protocol::Udp, vec![rule(deployment)])],
            names: Some(caller(cgroup, "blog")),
            ..Table::empty()
        };
        bench.balancer.apply(table, Default::default()).await.unwrap();
    };
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    apply("shop").await;
    client.send_to(b"refused", addr).await.unwrap();
    while bench.balancer.status().await.refused_calls == 0 {
        tokio::task::yield_now().await;
    }
    apply("blog").await;
    client.send_to(b"let through", addr).await.unwrap();
    let mut datagram = [0; 64];
    let (count, _) = echo.recv_from(&mut datagram).await.unwrap();
    assert_eq!(&datagram[..count], b"let through");
}

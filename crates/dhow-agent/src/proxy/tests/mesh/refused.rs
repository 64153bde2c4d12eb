//! Who is not let in, and what the near side does where the far one refuses.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::support::LOCAL;
use super::nodes::*;
use crate::proxy::mesh::{Opening, Origin, Refused};
use crate::proxy::table::{Backend, EndpointRule, Expose, Protocol, Rule, Table, Transport};

/// What the far node says of an opening.
async fn said(near: &Node, far: &Node, opening: Opening) -> String {
    match near.peer(far).connect(opening).await {
        Ok(_) => "accepted".to_owned(),
        Err(Refused::There { why, .. }) => format!("{why:?}"),
        Err(refused) => format!("{refused}"),
    }
}

#[tokio::test]
async fn a_refused_stream_goes_to_another_replica() {
    let cluster = Cluster::new();
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (near, one, two) = (
        Node::start(&cluster, 1),
        Node::start(&cluster, 2),
        Node::start(&cluster, 3),
    );
    let addrs = [(); 3].map(|()| reserve(Protocol::Tcp));
    one.serve(&[], vec![endpoint(addrs[0], Protocol::Tcp, vec![])])
        .await;
    let here = Backend::here(REPLICA, server.local_addr().unwrap());
    two.serve(&[], vec![endpoint(addrs[1], Protocol::Tcp, vec![here])])
        .await;
    // The first node has none of it any more; the near one does not know yet.
    let both = vec![there("shop/db-default-1@1", &one), there(REPLICA, &two)];
    near.serve(&[&one, &two], vec![endpoint(addrs[2], Protocol::Tcp, both)])
        .await;
    for _ in 0..4 {
        let mut client = TcpStream::connect(addrs[2]).await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    }
}

#[tokio::test]
async fn what_is_draining_gone_closed_or_elsewhere_is_refused() {
    let cluster = Cluster::new();
    let (near, far) = (Node::start(&cluster, 1), Node::start(&cluster, 2));
    let (_held, nobody) = super::super::support::refusing();
    let draining = Backend {
        draining: true,
        ..Backend::here("shop/db-default-1@1", nobody)
    };
    let backends = vec![Backend::here(REPLICA, nobody), draining];
    far.serve(
        &[],
        vec![endpoint(reserve(Protocol::Tcp), Protocol::Tcp, backends)],
    )
    .await;
    near.serve(&[&far], vec![]).await;
    assert_eq!(
        said(&near, &far, opening("shop/db-default-1@1")).await,
        "Draining"
    );
    assert_eq!(said(&near, &far, opening("shop/db-default-0@7")).await, "Gone");
    assert_eq!(said(&near, &far, opening("shop/db-default-9@1")).await, "NotMine");
    assert_eq!(
        said(&near, &far, opening("blog/app-default-0@1")).await,
        "NotMine"
    );
    let datagrams = Opening {
        transport: Transport::Datagram,
        ..opening(REPLICA)
    };
    assert_eq!(said(&near, &far, datagrams).await, "NotMine");
    assert_eq!(said(&near, &far, opening(REPLICA)).await, "Unreachable");
}

/// An endpoint of `shop` that is for `shop` alone.
fn internal(node: &Node, backend: std::net::SocketAddr) -> Table {
    let mut listener = endpoint(
        reserve(Protocol::Tcp),
        Protocol::Tcp,
        vec![Backend::here(REPLICA, backend)],
    );
    listener.routes[0].who = Rule::Judged(EndpointRule {
        deployment: "shop".into(),
        expose: Expose::Internal,
        allow: None,
    });
    node.table(&[], vec![listener])
}

#[tokio::test]
async fn a_node_calls_only_for_what_its_ticket_names() {
    let cluster = Cluster::new();
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (near, far) = (Node::start(&cluster, 1), Node::start(&cluster, 2));
    far.apply(internal(&far, server.local_addr().unwrap())).await;
    let shown = |text: Option<String>| {
        let mut table = near.table(&[&far], vec![]);
        table.mesh.as_mut().unwrap().ticket = text;
        near.apply(table)
    };
    let from = |deployment: &str, service: &str| Opening {
        origin: Origin::Replica {
            deployment: deployment.into(),
            service: service.into(),
        },
        ..opening(REPLICA)
    };
    shown(Some(ticket(1, "shop/web,blog/app"))).await;
    assert_eq!(said(&near, &far, from("shop", "web")).await, "accepted");
    assert_eq!(said(&near, &far, from("shop", "db")).await, "Ticket");
    assert_eq!(said(&near, &far, from("blog", "app")).await, "NotAllowed");
    let outside = Opening {
        origin: Origin::Outside,
        ..opening(REPLICA)
    };
    assert_eq!(said(&near, &far, outside).await, "NotAllowed");
    // That of another node, however it came here.
    shown(Some(ticket(3, "shop/web"))).await;
    assert_eq!(said(&near, &far, from("shop", "web")).await, "Ticket");
    shown(None).await;
    assert_eq!(said(&near, &far, from("shop", "web")).await, "Ticket");
    // One that has ended counts no more, unless the far node has none that is good either: then there are no servers.
    shown(Some(ticket_of(1, "shop/web", 1))).await;
    assert_eq!(said(&near, &far, from("shop", "web")).await, "Ticket");
    let mut table = internal(&far, server.local_addr().unwrap());
    table.mesh.as_mut().unwrap().ticket = Some(ticket_of(2, "shop/db", 1));
    far.apply(table).await;
    assert_eq!(said(&near, &far, from("shop", "web")).await, "accepted");
}

#[tokio::test]
async fn a_node_of_another_cluster_is_not_believed_on_either_side() {
    let (ours, theirs) = (Cluster::new(), Cluster::new());
    let (near, far) = (Node::start(&ours, 1), Node::start(&theirs, 2));
    far.serve(&[], vec![]).await;
    near.serve(&[&far], vec![]).await;
    let refused = near.peer(&far).connect(opening(REPLICA)).await;
    assert!(matches!(refused, Err(Refused::Io { .. })));
    // One that believes them and is not believed.
    let mut mixed = ours.identity(1);
    mixed.anchors_pem.push_str(&theirs.identity(9).anchors_pem);
    let near = Node::start(&ours, 1);
    near.balancer.identify(&mixed).unwrap();
    near.serve(&[&far], vec![]).await;
    let refused = near.peer(&far).connect(opening(REPLICA)).await;
    assert!(matches!(refused, Err(Refused::Io { .. })));
}

#[tokio::test]
async fn another_node_in_place_of_the_one_that_is_meant_gets_nothing() {
    let cluster = Cluster::new();
    let (near, far, impostor) = (
        Node::start(&cluster, 1),
        Node::start(&cluster, 2),
        Node::start(&cluster, 3),
    );
    impostor.serve(&[], vec![]).await;
    let mut table = near.table(&[&far], vec![]);
    table.mesh.as_mut().unwrap().peers[0].addr = impostor.mesh;
    near.apply(table).await;
    let refused = near.peer(&far).connect(opening(REPLICA)).await;
    assert!(matches!(refused, Err(Refused::OtherNode { node: 2 })));
}

#[tokio::test]
async fn a_removed_node_is_cut_off_and_stays_out() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (near, far, addr) = pair(Protocol::Tcp, server.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(addr).await.unwrap();
    let (_accepted, _) = server.accept().await.unwrap();
    let here = Backend::here(REPLICA, server.local_addr().unwrap());
    let mut table = far.table(
        &[],
        vec![endpoint(reserve(Protocol::Tcp), Protocol::Tcp, vec![here])],
    );
    table.mesh.as_mut().unwrap().removed = vec![near.number];
    far.apply(table).await;
    assert!(client.read_u8().await.is_err());
    assert_ne!(said(&near, &far, opening(REPLICA)).await, "accepted");
}

#[tokio::test]
async fn strangers_are_let_go_and_nodes_get_in() {
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (_near, far, addr) = pair(Protocol::Tcp, server.local_addr().unwrap()).await;
    let mut strangers = Vec::new();
    // More than there are places, all of which say nothing.
    for _ in 0..300 {
        strangers.push(TcpStream::connect(far.mesh).await.unwrap());
    }
    let mut client = TcpStream::connect(addr).await.unwrap();
    let (mut accepted, _) = server.accept().await.unwrap();
    client.write_all(b"x").await.unwrap();
    assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    // Those that speak nonsense, and those that say nothing, are closed.
    strangers[299].write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    for mut stranger in strangers {
        let mut rest = Vec::new();
        let _ = stranger.read_to_end(&mut rest).await;
    }
}

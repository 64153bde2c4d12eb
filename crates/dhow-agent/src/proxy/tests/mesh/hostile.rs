//! Nodes that lie: each is refused with a line in the log, and those beside it are served as before.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::support::LOCAL;
use super::nodes::*;
use crate::proxy::mesh::{Opening, Origin, Refused};
use crate::proxy::table::{Backend, EndpointRule, Expose, Protocol, Rule, Table};

/// A node with a replica of `shop/db` for `shop` alone, a node that calls it well, and one that lies.
struct Stage {
    cluster: Cluster,
    server: TcpListener,
    far: Node,
    good: Node,
    bad: Node,
}

impl Stage {
    async fn set() -> Self {
        let cluster = Cluster::new();
        let server = TcpListener::bind(LOCAL).await.unwrap();
        let (far, good, bad) = (
            Node::start(&cluster, 1),
            Node::start(&cluster, 2),
            Node::start(&cluster, 3),
        );
        let stage = Self {
            cluster,
            server,
            far,
            good,
            bad,
        };
        stage.far.apply(stage.table(&[])).await;
        stage.good.serve(&[&stage.far], vec![]).await;
        stage.bad.serve(&[&stage.far], vec![]).await;
        stage
    }

    fn table(&self, removed: &[u64]) -> Table {
        let here = Backend::here(REPLICA, self.server.local_addr().unwrap());
        let mut listener = endpoint(reserve(Protocol::Tcp), Protocol::Tcp, vec![here]);
        listener.routes[0].who = Rule::Judged(EndpointRule {
            deployment: "shop".into(),
            expose: Expose::Internal,
            allow: None,
        });
        let mut table = self.far.table(&[], vec![listener]);
        table.mesh.as_mut().unwrap().removed = removed.to_vec();
        table
    }

    /// The lying node shows this ticket from now on.
    async fn shows(&self, ticket: Option<String>) {
        let mut table = self.bad.table(&[&self.far], vec![]);
        table.mesh.as_mut().unwrap().ticket = ticket;
        self.bad.apply(table).await;
    }

    async fn is_refused(&self, opening: Opening, line: &str) {
        let refused = self.bad.peer(&self.far).connect(opening).await;
        let Err(Refused::There { .. }) = refused else {
            panic!("{:?}", refused.err());
        };
        let said = self.far.balancer.mesh.said();
        assert!(said.iter().any(|said| said.contains(line)), "{said:#?}");
        self.is_undisturbed().await;
    }

    /// The other node's call is served.
    async fn is_undisturbed(&self) {
        let peer = self.good.peer(&self.far);
        let (stream, accepted) = tokio::join!(peer.connect(opening(REPLICA)), self.server.accept());
        let (mut stream, (mut accepted, _)) = (stream.unwrap(), accepted.unwrap());
        stream.write_all(b"x").await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    }
}

fn from(deployment: &str, service: &str) -> Opening {
    Opening {
        origin: Origin::Replica {
            deployment: deployment.into(),
            service: service.into(),
        },
        ..opening(REPLICA)
    }
}

#[tokio::test]
async fn a_node_that_calls_in_anothers_name_is_refused_and_named() {
    let stage = Stage::set().await;
    stage.shows(Some(ticket(3, "blog/app"))).await;
    stage
        .is_refused(
            from("shop", "web"),
            "node 3 is refused: as \"shop/web\" it asks for",
        )
        .await;
    stage
        .is_refused(
            from("blog", "app"),
            "node 3 is refused: as \"blog/app\" it asks for endpoint \"main\" of \"shop/db-default-0@1\": the endpoint is \
             not for this caller",
        )
        .await;
    let unknown = Opening {
        replica: "shop/db-default-9@1".into(),
        ..opening(REPLICA)
    };
    stage
        .is_refused(
            unknown,
            "of \"shop/db-default-9@1\": the node does not run such a replica",
        )
        .await;
}

#[tokio::test]
async fn tickets_of_others_of_nobody_and_of_yesterday_are_refused_and_named() {
    for (shown, line) in [
        (
            Some(ticket(2, "shop/web")),
            "the ticket is that of node 2, and node 3 shows it",
        ),
        (None, "its node has shown no ticket on this connection"),
        (
            Some(ticket_of(3, "shop/web", 1)),
            "the time of its node's ticket is over",
        ),
        (
            Some("AQ".into()),
            "the ticket has no form that this version knows",
        ),
    ] {
        let stage = Stage::set().await;
        stage.shows(shown).await;
        stage.is_refused(from("shop", "web"), line).await;
    }
}

#[tokio::test]
async fn a_removed_node_is_named_and_others_stay() {
    let stage = Stage::set().await;
    stage.far.apply(stage.table(&[3])).await;
    let refused = stage.bad.peer(&stage.far).connect(opening(REPLICA)).await;
    assert!(refused.is_err());
    let said = stage.far.balancer.mesh.said();
    assert!(
        said[0].starts_with("node 3 is refused: it was removed from the cluster"),
        "{said:?}"
    );
    stage.is_undisturbed().await;
}

#[tokio::test]
async fn a_node_of_cas_that_are_believed_from_now_on_gets_in_and_one_that_is_not_is_named() {
    let stage = Stage::set().await;
    let others = Cluster::new();
    let newcomer = Node::start(&others, 4);
    let both = format!(
        "{}{}",
        stage.cluster.identity(1).anchors_pem,
        others.identity(1).anchors_pem
    );
    let believing = |mut table: Table| {
        table.mesh.as_mut().unwrap().believed_cas = Some(both.clone());
        table
    };
    newcomer
        .apply(believing(newcomer.table(&[&stage.far], vec![])))
        .await;
    assert!(newcomer.peer(&stage.far).connect(opening(REPLICA)).await.is_err());
    let said = stage.far.balancer.mesh.said();
    assert!(
        said[0]
            .starts_with("somebody at 127.0.0.1 is refused: it does not prove to be a node of this cluster"),
        "{said:?}"
    );
    stage.far.apply(believing(stage.table(&[]))).await;
    // Its control connection has seen the node refuse; it tries again by itself.
    let accepted = stage.server.accept();
    let calling = async {
        loop {
            if let Ok(stream) = newcomer.peer(&stage.far).connect(opening(REPLICA)).await {
                return stream;
            }
            tokio::task::yield_now().await;
        }
    };
    let _ = tokio::join!(accepted, calling);
    stage.is_undisturbed().await;
}

#[tokio::test]
async fn a_node_that_offers_what_it_does_not_have_costs_nobody_a_request() {
    let cluster = Cluster::new();
    let server = TcpListener::bind(LOCAL).await.unwrap();
    let (near, liar, honest) = (
        Node::start(&cluster, 1),
        Node::start(&cluster, 2),
        Node::start(&cluster, 3),
    );
    liar.serve(&[], vec![]).await;
    let here = Backend::here(REPLICA, server.local_addr().unwrap());
    let addr = reserve(Protocol::Tcp);
    honest
        .serve(
            &[],
            vec![endpoint(reserve(Protocol::Tcp), Protocol::Tcp, vec![here])],
        )
        .await;
    let offered = vec![there("shop/db-default-1@1", &liar), there(REPLICA, &honest)];
    near.serve(&[&liar, &honest], vec![endpoint(addr, Protocol::Tcp, offered)])
        .await;
    for _ in 0..8 {
        let mut client = TcpStream::connect(addr).await.unwrap();
        let (mut accepted, _) = server.accept().await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    }
}

//! Workers that nobody can dial: they ask whether that is so, and are asked to dial back.

use dhow_wire::grpc::proto::session_event::Event;
use dhow_wire::grpc::proto::{ReachReply, ReachRequest, SessionRequest};
use futures_util::StreamExt;

use super::*;
use crate::gateway::ReachWorker;
use crate::gateway::limits::REACHES_BURST;
use crate::net::tunnels::Tunnels;

/// A worker is found where the port is 1.
pub fn only_at_port_one() -> Arc<ReachWorker> {
    Arc::new(|_, addr| {
        let found = match addr.port() {
            1 => Ok(()),
            _ => Err("nobody is there".to_owned()),
        };
        Box::pin(std::future::ready(found))
    })
}

fn of<T>(message: T, identity: Identity) -> Request<T> {
    let mut request = Request::new(message);
    let addr = ([10, 0, 0, 9], 1).into();
    request.extensions_mut().insert(Peer::Tls {
        addr,
        identity: Some(identity),
    });
    request
}

impl Harbour {
    async fn worker(&self) -> NodeId {
        let token = self.token(self.claims(1, 1)).await;
        NodeId(self.register(&token, &csr()).await.unwrap().node_id)
    }

    async fn reach(&self, identity: Identity, api_addr: &str) -> Result<ReachReply, Refusal> {
        let request = ReachRequest {
            api_addr: api_addr.to_owned(),
        };
        let reply = self.gateway.reach(of(request, identity)).await;
        reply
            .map(tonic::Response::into_inner)
            .map_err(|status| Refusal::from_status(&status).unwrap())
    }

    fn tunnels(&self) -> Tunnels {
        self.gateway.inner.options.tunnels.clone()
    }
}

#[tokio::test]
async fn a_worker_learns_whether_it_can_be_dialled_and_not_often() {
    let harbour = Harbour::open().await;
    let worker = Identity::Worker(harbour.worker().await);
    assert!(harbour.reach(worker, "10.0.0.9:1").await.unwrap().reached);
    let not = harbour.reach(worker, "10.0.0.9:2").await.unwrap();
    assert_eq!((not.reached, not.why.as_str()), (false, "nobody is there"));
    let odd = harbour.reach(worker, "a-name:1").await;
    assert!(matches!(odd, Err(Refusal::Malformed(_))), "{odd:?}");
    let member = harbour.reach(Identity::Member(OWN), "10.0.0.9:1").await;
    assert!(matches!(member, Err(Refusal::NotGiven(_))), "{member:?}");
    let stranger = harbour.reach(Identity::Worker(NodeId(77)), "10.0.0.9:1").await;
    assert_eq!(stranger, Err(Refusal::UnknownNode));
    for _ in 3..REACHES_BURST {
        assert!(harbour.reach(worker, "10.0.0.9:1").await.is_ok());
    }
    assert_eq!(harbour.reach(worker, "10.0.0.9:1").await, Err(Refusal::TooOften));
}

#[tokio::test]
async fn a_session_asks_the_worker_to_dial_back() {
    let harbour = Harbour::open().await;
    let node = harbour.worker().await;
    let open = async |takes_tunnels| {
        let request = SessionRequest {
            node_id: node.0,
            takes_tunnels,
            ..SessionRequest::default()
        };
        let opened = harbour.gateway.session(of(request, Identity::Worker(node))).await;
        opened.unwrap().into_inner()
    };
    // One of an older version is never asked.
    let older = open(false).await;
    assert!(harbour.tunnels().ask(node).await.is_err());
    drop(older);
    let mut events = open(true).await;
    let asking = tokio::spawn({
        let tunnels = harbour.tunnels();
        async move { tunnels.ask(node).await }
    });
    let number = loop {
        if let Some(Event::DialBack(asked)) = events.next().await.unwrap().unwrap().event {
            break asked.number;
        }
    };
    let number = number.try_into().unwrap();
    let (ours, _theirs) = tokio::io::duplex(64);
    assert!(harbour.tunnels().arrive(node, &number, Box::new(ours)).is_some());
    assert!(asking.await.unwrap().is_ok());
    drop(events);
    let gone = harbour.tunnels().ask(node).await.err().unwrap();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotConnected);
}

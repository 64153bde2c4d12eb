//! What one worker may cost the servers.

use dhow_core::ids::{Generation, ReplicaName, RoleName};
use dhow_core::replica::{Machine, ReplicaEvent};
use dhow_wire::grpc::proto::StatusReport;
use dhow_wire::grpc::to_body;

use super::*;
use crate::gateway::limits::{JOINS_BURST, MESSAGE_CHARS_MAX, REPORT_BYTES_BURST};
use crate::plane::runtime::ReportBody;

impl Harbour {
    async fn joined(&self) -> NodeId {
        let token = self.token(self.claims(1, 1)).await;
        NodeId(self.register(&token, &csr()).await.unwrap().node_id)
    }

    async fn report(&self, node: NodeId, body: &ReportBody) -> Result<(), Refusal> {
        let report = StatusReport {
            node_id: node.0,
            incarnation: Some(1),
            body: Some(to_body(body).unwrap()),
            ..StatusReport::default()
        };
        let mut request = Request::new(report);
        request.extensions_mut().insert(Peer::Tls {
            addr: ([10, 0, 0, 1], 1).into(),
            identity: Some(Identity::Worker(node)),
        });
        let answered = self.gateway.report_status(request).await;
        answered
            .map(drop)
            .map_err(|status| Refusal::from_status(&status).unwrap())
    }
}

fn web(index: u32) -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index,
        generation: Generation(1),
    }
}

#[test]
fn a_message_is_one_line() {
    let told = |text: &str| crate::gateway::status::short_message(text.into()).to_string();
    assert_eq!(
        told("boom \u{1b}[2J\r\n  it runs, and is healthy\nnode: 1"),
        "boom [2J it runs, and is healthy node: 1"
    );
    assert_eq!(told("two  blanks stay"), "two  blanks stay");
}

#[tokio::test]
async fn messages_have_the_same_length_in_both_forms() {
    let harbour = Harbour::open().await;
    let node = harbour.joined().await;
    deploy_web(&harbour).await;
    harbour.server.write(place(&harbour.server.state(), node)).await;
    let long: Arc<str> = "ä".repeat(100_000).into();
    let kept = |harbour: &Harbour| {
        let state = harbour.server.state();
        let message = state.replicas.values().next().unwrap().machine.message.clone();
        message.unwrap().chars().count()
    };
    let machine = Machine {
        message: Some(Arc::clone(&long)),
        ..Machine::default()
    };
    let whole = ReportBody::Inventory {
        seq: 0,
        replicas: vec![(web(0), machine)],
    };
    harbour.report(node, &whole).await.unwrap();
    assert_eq!(kept(&harbour), MESSAGE_CHARS_MAX);
    let events = [
        ReplicaEvent::StartBegan,
        ReplicaEvent::CouldNotStart { message: long },
    ];
    let events = ReportBody::Events {
        first_seq: 1,
        events: events.into_iter().map(|event| (web(0), event)).collect(),
    };
    harbour.report(node, &events).await.unwrap();
    assert_eq!(kept(&harbour), MESSAGE_CHARS_MAX);
}

#[tokio::test]
async fn a_worker_cannot_write_faster_than_old_entries_are_dropped() {
    let harbour = Harbour::open().await;
    let node = harbour.joined().await;
    let machine = Machine {
        message: Some("x".repeat(7 << 20).into()),
        ..Machine::default()
    };
    let whole = ReportBody::Inventory {
        seq: 0,
        replicas: vec![(web(0), machine)],
    };
    let mut taken = 0;
    while harbour.report(node, &whole).await.is_ok() {
        taken += 7 << 20;
        assert!(taken <= REPORT_BYTES_BURST, "{taken}");
    }
    assert!(taken > REPORT_BYTES_BURST / 2);
    assert_eq!(harbour.report(node, &whole).await, Err(Refusal::TooOften));
    harbour.server.clock.advance(3_600_000);
    harbour.report(node, &whole).await.unwrap();
}

#[tokio::test]
async fn strangers_who_ask_to_join_keep_nobody_out_who_has_a_token() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let another_key = SigningKey::from_bytes(&[6; 32]);
    let forged = WorkerBootstrapToken::issue(&another_key, harbour.claims(7, 1)).unwrap();
    let mut refused = None;
    for _ in 0..=JOINS_BURST {
        refused = harbour.register(&forged.reveal(), "no request").await.err();
    }
    assert_eq!(refused, Some(Refusal::Busy), "what they cost is bounded");
    let check = |token: &str| {
        harbour.gateway.inner.check_joining(&RegisterRequest {
            token: token.into(),
            info: Some(to_node_info(&info(NodeRole::Worker))),
            ..RegisterRequest::default()
        })
    };
    assert_eq!(check(&forged.reveal()), Err(Refusal::Busy));
    assert_eq!(check(&token), Ok(()), "a holder lets it pass");
    assert!(harbour.register(&token, &csr()).await.is_ok());
}

#[tokio::test]
async fn a_holder_passes_on_only_who_has_a_token() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let good = RegisterRequest {
        token,
        desired_node_id: None,
        info: Some(to_node_info(&info(NodeRole::Server))),
        csr_pem: Some(csr()),
    };
    let check = |request: &RegisterRequest| harbour.gateway.inner.check_joining(request);
    assert_eq!(check(&good), Ok(()));
    let (mut stranger, mut long, mut large) = (good.clone(), good.clone(), good);
    stranger.token = "x".repeat(1024 * 1024);
    assert!(matches!(check(&stranger), Err(Refusal::Credential(_))));
    long.csr_pem = Some("x".repeat(1024 * 1024));
    assert!(matches!(check(&long), Err(Refusal::Credential(_))));
    large.info.as_mut().unwrap().os = "x".repeat(1024 * 1024);
    assert!(matches!(check(&large), Err(Refusal::Malformed(_))));
}

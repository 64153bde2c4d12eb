//! Joining, renewing, and the JSON form.

mod identities;
mod limits;
mod plain;
mod reverse;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Request as HttpRequest, StatusCode, header};
use dhow_core::command::{ClusterCommand, Command, DeploymentCommand, NodeCommand, Placement, PlanCommand};
use dhow_core::ids::{DeploymentName, NodeId, ServiceName};
use dhow_core::replica::ReplicaState;
use dhow_core::state::{NodeRole, State};
use dhow_wire::grpc::proto::{RegisterReply, RegisterRequest, RenewRequest};
use dhow_wire::grpc::{Nodes, Refusal, to_node_info};
use dhow_wire::token::{CaFingerprint, TokenClaims, TokenNonce};
use dhow_wire::{
    Problem, WorkerAssignmentEvent, WorkerBootstrapToken, WorkerContainerStatus, WorkerPollResponse,
    WorkerRegisterResponse, WorkerStatusAck,
};
use ed25519_dalek::SigningKey;
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tower::ServiceExt;

use super::{
    CertificateError, ExpiredIdentity, InternalTokens, WorkerCertificates, WorkerTier, worker_poll_routes,
    worker_routes,
};
use crate::clock::Clock;
use crate::gateway::{GatewayOptions, NodeGateway, ServerIds};
use crate::net::identity::{Identity, Peer};
use crate::plane::leases::tests::support::{OWN, TestServer, info};
use crate::plane::secrets::SecretBox;

mod ex_leader;

const CLUSTER: &str = "harbour";

struct Ca;

impl WorkerCertificates for Ca {
    fn issue(&self, _csr_pem: &str, node: NodeId) -> Result<String, CertificateError> {
        Ok(format!("chain of {node}"))
    }

    fn issue_proxy(&self, _csr_pem: &str, node: NodeId) -> Result<String, CertificateError> {
        Ok(format!("proxy of {node}"))
    }
}

struct Harbour {
    server: TestServer,
    gateway: NodeGateway,
    key: SigningKey,
    _dir: tempfile::TempDir,
}

fn csr() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.serialize_request(&key).unwrap().pem().unwrap()
}

impl Harbour {
    async fn open() -> Self {
        Self::open_with(Arc::new(BTreeSet::new)).await
    }

    async fn open_with(server_ids: Arc<ServerIds>) -> Self {
        Self::at_level(State::FEATURE_LEVEL, server_ids).await
    }

    async fn at_level(feature_level: u32, server_ids: Arc<ServerIds>) -> Self {
        let server = TestServer::start(&[OWN.0]).await;
        server
            .write(Command::Cluster(ClusterCommand::Bootstrap {
                cluster_id: CLUSTER.into(),
                feature_level,
                nodes_limit: Some(State::NODES_LIMIT),
            }))
            .await;
        let (dir, key) = (tempfile::tempdir().unwrap(), SigningKey::from_bytes(&[5; 32]));
        let gateway = NodeGateway::new(GatewayOptions {
            view: server.handle.view(),
            input: server.handle.input(),
            clock: Arc::new(server.clock.clone()),
            leases: server.leases.clone(),
            secrets: Arc::new(SecretBox::open(dir.path()).unwrap()),
            session_address: Arc::new(|_| None),
            server_ids,
            members: Arc::new(std::collections::BTreeSet::new),
            carries_assignments: true,
            tickets: None,
            leader_door: None,
            tunnels: crate::net::tunnels::Tunnels::default(),
            reach: Some(reverse::only_at_port_one()),
            move_after_ms: 60_000,
            workers: Some(WorkerTier {
                token_key: key.verifying_key(),
                certificates: Arc::new(Ca),
                internal_tokens: InternalTokens::new([3; 32]),
                renew_expired_secs: 7 * 86_400,
                event_log: server.handle.event_log(),
            }),
            end: CancellationToken::new(),
        });
        Self {
            server,
            gateway,
            key,
            _dir: dir,
        }
    }

    fn workers(&self) -> usize {
        self.server.state().nodes.len() - 1
    }

    fn now_unix_secs(&self) -> i64 {
        self.server.clock.wall_unix_ms() / 1_000
    }

    fn claims(&self, nonce: u8, uses: u32) -> TokenClaims {
        TokenClaims {
            cluster_id: CLUSTER.into(),
            issued_unix_secs: self.now_unix_secs(),
            expires_unix_secs: self.now_unix_secs() + 3_600,
            uses,
            nonce: TokenNonce([nonce; 16]),
            ca_fingerprint: CaFingerprint([1; 32]),
            allowed_labels: None,
            allowed_node_ids: BTreeSet::new(),
        }
    }

    /// A token that the state knows.
    async fn token(&self, claims: TokenClaims) -> String {
        let issue = ClusterCommand::IssueToken {
            nonce: claims.nonce.to_string().into(),
            uses_allowed: claims.uses,
            expires_unix_secs: claims.expires_unix_secs,
        };
        self.server.write(Command::Cluster(issue)).await;
        WorkerBootstrapToken::issue(&self.key, claims).unwrap().reveal()
    }

    async fn register(&self, token: &str, csr_pem: &str) -> Result<RegisterReply, Refusal> {
        self.register_as(token, csr_pem, &[], None).await
    }

    async fn register_as(
        &self,
        token: &str,
        csr_pem: &str,
        labels: &[(&str, &str)],
        wish: Option<u64>,
    ) -> Result<RegisterReply, Refusal> {
        let mut told = info(NodeRole::Server);
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        told.labels = Arc::new(labels.collect());
        let request = RegisterRequest {
            token: token.to_owned(),
            desired_node_id: wish,
            info: Some(to_node_info(&told)),
            csr_pem: Some(csr_pem.to_owned()),
        };
        let reply = self.gateway.register(Request::new(request)).await;
        reply
            .map(tonic::Response::into_inner)
            .map_err(|status| Refusal::from_status(&status).unwrap())
    }

    async fn renew(&self, extend: impl FnOnce(&mut Request<RenewRequest>)) -> Result<String, Refusal> {
        let mut request = Request::new(RenewRequest {
            csr_pem: csr(),
            for_proxy: false,
        });
        extend(&mut request);
        let reply = self.gateway.renew(request).await;
        reply
            .map(|reply| reply.into_inner().certificate_chain_pem)
            .map_err(|status| Refusal::from_status(&status).unwrap())
    }

    async fn post(&self, path: &str, token: Option<&str>, body: String) -> (StatusCode, Vec<u8>) {
        let mut request = HttpRequest::post(format!("/api/v1/workers/{path}"))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header("X-Dhow-Internal-Token", token);
        }
        let request = request.body(Body::from(body)).unwrap();
        let (status, _, bytes) = self.send(request).await;
        (status, bytes)
    }

    async fn send(&self, request: HttpRequest<Body>) -> (StatusCode, HeaderMap, Vec<u8>) {
        let routes = worker_routes(self.gateway.clone()).merge(worker_poll_routes(self.gateway.clone()));
        let response = routes.oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        (head.status, head.headers, bytes)
    }
}

fn why(refused: Result<RegisterReply, Refusal>) -> String {
    match refused {
        Err(Refusal::Credential(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn proved(identity: Identity) -> impl FnOnce(&mut Request<RenewRequest>) {
    move |request| {
        request.extensions_mut().insert(Peer::Tls {
            addr: ([10, 0, 0, 1], 1).into(),
            identity: Some(identity),
        });
    }
}

#[tokio::test]
async fn a_worker_joins_and_joins_again_with_the_same_key() {
    let harbour = Harbour::open().await;
    let (token, key) = (harbour.token(harbour.claims(1, 1)).await, csr());
    let joined = harbour.register(&token, &key).await.unwrap();
    assert_eq!(
        (joined.cluster_id.as_str(), joined.heartbeat_grace_secs),
        (CLUSTER, 10)
    );
    assert!(joined.heartbeat_ttl_secs >= 10);
    let chain = format!("chain of {}", joined.node_id);
    assert_eq!(joined.certificate_chain_pem.as_deref(), Some(chain.as_str()));
    let state = harbour.server.state();
    let node = state.node(NodeId(joined.node_id)).unwrap();
    assert_eq!(node.info.role, NodeRole::Worker, "whatever it says of itself");
    assert!(
        harbour.server.leases.deadline_ms(node.id).is_some(),
        "it is given up should it never come"
    );
    // The reply was lost: the same key asks again.
    let again = harbour.register(&token, &key).await.unwrap();
    assert_eq!(again.node_id, joined.node_id);
    assert!(why(harbour.register(&token, &csr()).await).contains("used up"));
    assert_eq!(harbour.workers(), 1);
}

#[tokio::test]
async fn a_wish_is_a_wish() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 5)).await;
    let given = async |token: &str, wish| {
        let joined = harbour.register_as(token, &csr(), &[], wish).await;
        joined.unwrap().node_id
    };
    for (wish, id) in [(Some(40), 2), (Some(u64::MAX), 3), (Some(u64::MAX), 4), (None, 5)] {
        assert_eq!(given(&token, wish).await, id, "the token names no id");
    }
    let named = harbour.token(TokenClaims {
        allowed_node_ids: BTreeSet::from([40, 50]),
        ..harbour.claims(2, 5)
    });
    let named = named.await;
    for (wish, id) in [
        (Some(40), 40),
        (Some(40), 6),
        (Some(41), 7),
        (None, 50),
        (None, 8),
    ] {
        assert_eq!(given(&named, wish).await, id, "{wish:?}");
    }
}

/// The servers' ids are kept before anybody is given one.
#[tokio::test]
async fn a_worker_waits_until_the_ids_of_servers_are_kept() {
    let harbour = Harbour::open_with(Arc::new(|| (1..=3).map(NodeId).collect())).await;
    let token = harbour.token(harbour.claims(1, 5)).await;
    assert_eq!(harbour.register(&token, &csr()).await, Err(Refusal::Busy));
    let keep = ClusterCommand::KeepServerIds {
        nodes: (1..=3).map(NodeId).collect(),
    };
    harbour.server.write(Command::Cluster(keep)).await;
    assert_eq!(harbour.register(&token, &csr()).await.unwrap().node_id, 4);
    assert_eq!(
        harbour.server.state().tokens.values().next().unwrap().uses.len(),
        1
    );
}

/// Servers of the version before count ids upwards from the last one: they are told one that is no server's.
#[tokio::test]
async fn below_the_level_of_kept_ids_a_worker_gets_none_of_a_server() {
    let harbour = Harbour::at_level(1, Arc::new(|| (1..=3).map(NodeId).collect())).await;
    let token = harbour.token(harbour.claims(1, 5)).await;
    assert_eq!(harbour.register(&token, &csr()).await.unwrap().node_id, 4);
    assert_eq!(harbour.register(&token, &csr()).await.unwrap().node_id, 5);
}

/// A certificate of a worker says nothing about a server of the same id, and the other way round.
#[tokio::test]
async fn a_certificate_is_of_one_role() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let node = NodeId(harbour.register(&token, &csr()).await.unwrap().node_id);
    let renewed = harbour.renew(proved(Identity::Worker(OWN))).await;
    assert!(matches!(renewed, Err(Refusal::Identity(_))), "{renewed:?}");
    assert!(harbour.gateway.inner.check_role(Identity::Worker(node)).is_ok());
    for wrong in [Identity::Member(node), Identity::Worker(OWN)] {
        assert!(harbour.gateway.inner.check_role(wrong).is_err());
    }
}

/// Whoever asks again and again writes nothing.
#[tokio::test]
async fn asking_again_costs_the_servers_no_disk() {
    let harbour = Harbour::open().await;
    let (token, key) = (harbour.token(harbour.claims(1, 1)).await, csr());
    harbour.register(&token, &key).await.unwrap();
    let revision = harbour.server.state().revision;
    harbour.register(&token, &key).await.unwrap();
    why(harbour.register(&token, &csr()).await);
    assert_eq!(harbour.server.state().revision, revision);
}

#[tokio::test]
async fn every_bad_token_has_its_own_message() {
    let harbour = Harbour::open().await;
    let good = harbour.token(harbour.claims(1, 1)).await;
    let issue = |key: &SigningKey, claims| WorkerBootstrapToken::issue(key, claims).unwrap().reveal();
    let forged = issue(&SigningKey::from_bytes(&[6; 32]), harbour.claims(1, 1));
    let mut foreign = harbour.claims(1, 1);
    foreign.cluster_id = "another".into();
    let foreign = issue(&harbour.key, foreign);
    let unknown = issue(&harbour.key, harbour.claims(9, 1));
    let mut expired = harbour.claims(2, 1);
    (expired.issued_unix_secs, expired.expires_unix_secs) = (0, 10);
    let expired = harbour.token(expired).await;
    let revoked = harbour.token(harbour.claims(3, 1)).await;
    let nonce = TokenNonce([3; 16]).to_string().into();
    harbour
        .server
        .write(Command::Cluster(ClusterCommand::RevokeToken { nonce }))
        .await;
    let before = harbour.server.state().nodes.len();
    let mut messages = BTreeSet::new();
    for token in [
        "",
        "nonsense!",
        &good[..40],
        &forged,
        &foreign,
        &unknown,
        &expired,
        &revoked,
    ] {
        messages.insert(why(harbour.register(token, &csr()).await));
    }
    let words = [
        "malformed",
        "bad signature",
        "another cluster",
        "not given out",
        "expired",
        "revoked",
    ];
    for word in words {
        assert!(
            messages.iter().any(|message| message.contains(word)),
            "{word}: {messages:#?}"
        );
    }
    assert_eq!(messages.len(), words.len(), "{messages:#?}");
    assert_eq!(harbour.server.state().nodes.len(), before);
}

#[tokio::test]
async fn flipped_bits_are_never_taken() {
    let harbour = Harbour::open().await;
    let (good, key) = (harbour.token(harbour.claims(1, 1)).await, csr());
    for at in (0..good.len()).step_by(7) {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let flipped = String::from_utf8(bytes).unwrap();
        why(harbour.register(&flipped, &key).await);
    }
    assert_eq!(harbour.workers(), 0);
    harbour.register(&good, &key).await.unwrap();
}

#[tokio::test]
async fn labels_are_those_of_the_token() {
    let harbour = Harbour::open().await;
    let mut claims = harbour.claims(1, 5);
    claims.allowed_labels = Some(BTreeMap::from([(
        "zone".to_owned(),
        BTreeSet::from(["a".to_owned()]),
    )]));
    let token = harbour.token(claims).await;
    assert!(why(harbour.register_as(&token, &csr(), &[("zone", "b")], None).await).contains("zone=b"));
    assert!(why(harbour.register_as(&token, &csr(), &[("gpu", "yes")], None).await).contains("gpu=yes"));
    harbour
        .register_as(&token, &csr(), &[("zone", "a")], None)
        .await
        .unwrap();
}

#[tokio::test]
async fn one_use_is_one_worker_however_many_ask_at_once() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let keys: Vec<String> = (0..100).map(|_| csr()).collect();
    let asked = keys.iter().map(|key| harbour.register(&token, key));
    let answers = futures_util::future::join_all(asked).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(harbour.workers(), 1);
}

#[tokio::test]
async fn a_bad_request_for_a_certificate_costs_no_use() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let mut tampered = csr();
    let middle = tampered.len() / 2;
    let other = if tampered.as_bytes()[middle] == b'A' {
        "B"
    } else {
        "A"
    };
    tampered.replace_range(middle..=middle, other);
    for bad in ["", "no pem", &tampered, &"x".repeat(100_000)] {
        why(harbour.register(&token, bad).await);
    }
    harbour.register(&token, &csr()).await.unwrap();
}

#[tokio::test]
async fn a_worker_renews_with_what_it_has() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let node = NodeId(harbour.register(&token, &csr()).await.unwrap().node_id);
    let chain = harbour.renew(proved(Identity::Worker(node))).await.unwrap();
    assert_eq!(chain, format!("chain of {node}"));
    assert!(matches!(harbour.renew(|_| ()).await, Err(Refusal::Identity(_))));
    assert!(matches!(
        harbour.renew(proved(Identity::Member(node))).await,
        Err(Refusal::Identity(_))
    ));
    let other = harbour.renew(proved(Identity::Worker(NodeId(77)))).await;
    assert_eq!(other, Err(Refusal::UnknownNode));
    // Its proxy gets one of its own, and not by a certificate that has expired.
    let for_proxy = |request: &mut Request<RenewRequest>| request.get_mut().for_proxy = true;
    let leaf = harbour.renew(|request| {
        for_proxy(request);
        proved(Identity::Worker(node))(request);
    });
    assert_eq!(leaf.await.unwrap(), format!("proxy of {node}"));
    let late = harbour.renew(|request| {
        for_proxy(request);
        request.extensions_mut().insert(ExpiredIdentity {
            node,
            expired_unix_secs: harbour.now_unix_secs() - 60,
        });
    });
    assert!(matches!(late.await, Err(Refusal::Identity(_))));
    let expired = |days: i64| {
        let expired_unix_secs = harbour.now_unix_secs() - days * 86_400;
        harbour.renew(move |request| {
            request.extensions_mut().insert(ExpiredIdentity {
                node,
                expired_unix_secs,
            });
        })
    };
    assert!(expired(7).await.is_ok());
    assert!(matches!(expired(8).await, Err(Refusal::Credential(why)) if why.contains("8 days")));
    let lost = NodeCommand::Lost { node };
    harbour.server.write(Command::Node(lost)).await;
    harbour
        .server
        .write(Command::Node(NodeCommand::Remove { node }))
        .await;
    assert_eq!(
        expired(1).await,
        Err(Refusal::UnknownNode),
        "one that was removed is out at once"
    );
    assert!(why(harbour.register(&token, &csr()).await).contains("used up"));
}

fn place(state: &State, node: NodeId) -> Command {
    let shop = DeploymentName::new("shop").unwrap();
    let service = state
        .service_named(&shop, &ServiceName::new("web").unwrap())
        .unwrap();
    let eligibility = state.node(node).unwrap().eligibility;
    let placements = service.wanted_slots().map(|slot| Placement {
        slot,
        node,
        eligibility,
    });
    Command::Plan(PlanCommand::Place {
        service: service.id,
        generation: service.target,
        placements: placements.collect(),
    })
}

/// A service of one replica, so that there is something to place.
async fn deploy_web(harbour: &Harbour) {
    let spec = r#"{"version":"v1","deployment":"shop","services":{"web":{"image":"nginx:1.27"}}}"#;
    let deploy = DeploymentCommand::Deploy {
        spec: Arc::new(serde_json::from_str(spec).unwrap()),
        author: "test".into(),
        wall_unix_secs: 0,
        force: false,
    };
    harbour.server.write(Command::Deployment(deploy)).await;
}

/// The report of a worker that runs the one replica that it was told of.
fn running_report(node: u64, news: &WorkerPollResponse) -> String {
    let [
        WorkerAssignmentEvent::Set {
            service,
            assignments,
            spec,
            deployment,
            ..
        },
    ] = news.events.as_slice()
    else {
        panic!("{news:?}");
    };
    assert_eq!((service.as_str(), deployment.as_deref()), ("web", Some("shop")));
    assert!(spec.is_some());
    let container = WorkerContainerStatus {
        service: "web".into(),
        role: assignments[0].role.clone(),
        replica: assignments[0].indices[0],
        generation: assignments[0].generation,
        deployment: Some("shop".into()),
        state: "running".into(),
        ..WorkerContainerStatus::default()
    };
    let container = serde_json::to_string(&container).unwrap();
    format!(
        r#"{{"node_id":{node},"ts_ns":1,"containers":[{container}],"resources":{{"cpu_used":0.5,"memory_used_bytes":1,"gpu_used":0}}}}"#
    )
}

/// The whole life over HTTP: register, poll, report, poll again.
#[tokio::test]
async fn the_json_form_does_the_same() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let profile = r#"{"api_addr":"10.0.0.1:1","os":"linux","arch":"x86_64","cpu_total":4,"memory_total_bytes":8000000}"#;
    let body = format!(r#"{{"token":"{token}","profile":{profile}}}"#);
    let (status, bytes) = harbour.post("register", None, body).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&bytes));
    let joined: WorkerRegisterResponse = serde_json::from_slice(&bytes).unwrap();
    let (node, shown) = (joined.node_id, Some(joined.internal_token.as_str()));
    let state = harbour.server.state();
    assert_eq!(state.node(NodeId(node)).unwrap().info.capacity.cpu_milli, 4_000);
    deploy_web(&harbour).await;
    let waiting = harbour.post("poll", shown, format!(r#"{{"node_id":{node}}}"#));
    let placing = async {
        let place = place(&harbour.server.state(), NodeId(node));
        harbour.server.write(place).await;
    };
    let ((status, bytes), ()) = tokio::join!(waiting, placing);
    assert_eq!(status, StatusCode::OK);
    let news: WorkerPollResponse = serde_json::from_slice(&bytes).unwrap();
    let report = running_report(node, &news);
    let (status, bytes) = harbour.post("status", shown, report.clone()).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&bytes));
    let ack: WorkerStatusAck = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(ack.next_ttl_secs, 10);
    let state = harbour.server.state();
    let mut machines = state.replicas.values().map(|replica| replica.machine.state);
    assert!(machines.all(|machine| machine == ReplicaState::Running));
    harbour.post("status", shown, report).await;
    assert_eq!(
        harbour.server.state().revision,
        state.revision,
        "the same again writes nothing"
    );
    let last = news.revision;
    let poll = format!(r#"{{"node_id":{node},"last_revision":{last},"max_wait_secs":0}}"#);
    let (_, bytes) = harbour.post("poll", shown, poll).await;
    let none: WorkerPollResponse = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((none.events.len(), none.revision), (0, last));
}

#[tokio::test]
async fn the_json_form_believes_its_token_alone() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 2)).await;
    let node = harbour.register(&token, &csr()).await.unwrap();
    let poll = |node: u64| format!(r#"{{"node_id":{node},"max_wait_secs":0}}"#);
    let cases = [
        (None, poll(node.node_id), StatusCode::UNAUTHORIZED),
        (Some("nonsense"), poll(node.node_id), StatusCode::UNAUTHORIZED),
        (
            Some(node.internal_token.as_str()),
            poll(node.node_id + 1),
            StatusCode::FORBIDDEN,
        ),
        (
            Some(node.internal_token.as_str()),
            "{".to_owned(),
            StatusCode::BAD_REQUEST,
        ),
        (
            Some(node.internal_token.as_str()),
            poll(node.node_id),
            StatusCode::OK,
        ),
    ];
    for (shown, body, wanted) in cases {
        let (status, bytes) = harbour.post("poll", shown, body).await;
        assert_eq!(status, wanted, "{}", String::from_utf8_lossy(&bytes));
    }
    let (status, bytes) = harbour.post("register", None, r#"{"token":"x"}"#.into()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let problem: Problem = serde_json::from_slice(&bytes).unwrap();
    assert!(problem.detail.contains("profile"), "{problem}");
    let profile = r#"{"api_addr":"10.0.0.1:1","os":"linux","arch":"x86_64"}"#;
    let (status, bytes) = harbour
        .post(
            "register",
            None,
            format!(r#"{{"token":"x","profile":{profile}}}"#),
        )
        .await;
    let problem: Problem = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        (status, problem.code.as_ref()),
        (StatusCode::UNAUTHORIZED, "token_malformed")
    );
    let large = "x".repeat(5 * 1024 * 1024);
    assert_eq!(
        harbour.post("status", None, large).await.0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
}

//! Who a worker is stays so, whoever leads and whatever is sent again.

use serde_json::{Value, json};

use super::plain::{Plain, registration};
use super::*;
use crate::plane::runtime::EventKind;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

impl Harbour {
    /// Another server leads, which remembers nothing but the state.
    fn change_leader(&mut self) {
        self.gateway = NodeGateway::new(self.gateway.inner.options.clone());
    }

    fn uses(&self) -> usize {
        self.server
            .state()
            .tokens
            .values()
            .map(|token| token.uses.len())
            .sum()
    }

    async fn registered(&self, body: &Value) -> Value {
        let (status, answer) = self.ask("register", None, body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    /// The status of a poll, its body, and the token that it handed over.
    async fn polled(&self, worker: &Plain) -> (StatusCode, Value, Option<String>) {
        let body = json!({ "node_id": worker.node, "max_wait_secs": 0 });
        let request = HttpRequest::post("/api/v1/workers/poll")
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-dhow-internal-token", &worker.token);
        let request = request.body(Body::from(body.to_string())).unwrap();
        let (status, headers, bytes) = self.send(request).await;
        let next = headers.get("x-dhow-internal-token").cloned();
        let next = next.map(|next| next.to_str().unwrap().to_owned());
        (status, serde_json::from_slice(&bytes).unwrap(), next)
    }
}

#[tokio::test]
async fn a_lost_answer_is_given_again_by_the_next_leader_and_one_that_came_is_not() {
    let mut harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 2)).await;
    let body = registration(&token, "10.0.0.1:1");
    let first = harbour.join(&token, "10.0.0.1:1").await;
    harbour.change_leader();
    let again = harbour.join(&token, "10.0.0.1:1").await;
    assert_eq!(
        (again.node, harbour.uses()),
        (first.node, 1),
        "the answer was lost"
    );
    harbour.poll(&again, 0).await;
    harbour.change_leader();
    let other = harbour.registered(&body).await;
    assert_ne!(
        other["node_id"],
        json!(first.node),
        "nobody is handed the first one's token"
    );
    assert_eq!((harbour.uses(), harbour.workers()), (2, 2));
}

#[tokio::test]
async fn a_name_that_was_heard_stays_taken_under_the_next_leader() {
    let mut harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 2)).await;
    let mut body = registration(&token, "10.0.0.1:1");
    body["client_id"] = json!("a");
    let answer = harbour.registered(&body).await;
    let worker = Plain {
        node: answer["node_id"].as_u64().unwrap(),
        token: answer["internal_token"].as_str().unwrap().to_owned(),
    };
    harbour.poll(&worker, 0).await;
    harbour.change_leader();
    let (status, problem) = harbour.ask("register", None, &body).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("refused"))
    );
    assert_eq!((harbour.uses(), harbour.workers()), (1, 1));
}

/// A request for a certificate is no secret, and proves nothing when it is sent again.
#[tokio::test]
async fn a_request_for_a_certificate_that_is_sent_again_gives_no_internal_token() {
    let mut harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 2)).await;
    let key = csr();
    let with_session = harbour.register(&token, &key).await.unwrap();
    let known = harbour
        .server
        .state()
        .node(NodeId(with_session.node_id))
        .unwrap()
        .info
        .clone();
    let mut body = registration(&token, "10.9.9.9:1");
    body["csr_pem"] = json!(key);
    let replayed = harbour.registered(&body).await;
    assert_eq!(replayed["node_id"], json!(with_session.node_id));
    assert_eq!(replayed["internal_token"], json!(""));
    assert_eq!(harbour.register(&token, &key).await.unwrap().internal_token, "");
    let now = harbour
        .server
        .state()
        .node(NodeId(with_session.node_id))
        .unwrap()
        .info
        .clone();
    assert_eq!(now, known, "nobody says where the worker is but itself");

    body["csr_pem"] = json!(csr());
    let first = harbour.registered(&body).await;
    let worker = Plain {
        node: first["node_id"].as_u64().unwrap(),
        token: first["internal_token"].as_str().unwrap().to_owned(),
    };
    assert_ne!(
        harbour.registered(&body).await["internal_token"],
        json!(""),
        "it may be lost"
    );
    harbour.poll(&worker, 0).await;
    harbour.change_leader();
    let later = harbour.registered(&body).await;
    assert_eq!(
        (later["node_id"].as_u64(), &later["internal_token"]),
        (Some(worker.node), &json!(""))
    );
    assert!(later["certificate_chain_pem"].is_string());
    assert_eq!(harbour.uses(), 2);
}

#[tokio::test]
async fn an_internal_token_ends_soon_after_the_next_one_was_shown() {
    let mut harbour = Harbour::open().await;
    let mut worker = harbour.plain().await;
    assert_eq!(harbour.polled(&worker).await.2, None);
    harbour.server.clock.advance(DAY_MS);
    let (_, _, next) = harbour.polled(&worker).await;
    harbour.change_leader();
    let (status, _, again) = harbour.polled(&worker).await;
    assert_eq!(status, StatusCode::OK, "the answer with the next one was lost");
    assert_eq!(again, next, "and is given again");
    let old = std::mem::replace(&mut worker.token, next.unwrap());
    assert_eq!(harbour.polled(&worker).await.0, StatusCode::OK);
    assert_eq!(harbour.polled(&worker).await.0, StatusCode::OK);
    let view = harbour.server.handle.view();
    view.settle_events().await;
    let told = view.events().since(harbour.server.first_event, 1_000).unwrap();
    let renewals: Vec<_> = told
        .iter()
        .filter(|record| record.event.kind == EventKind::InternalTokenRenewed)
        .map(|record| record.event.author.clone())
        .collect();
    assert_eq!(
        renewals,
        [Some(format!("worker {}", worker.node))],
        "once, with who it was"
    );
    let earlier = Plain {
        node: worker.node,
        token: old,
    };
    let (status, _, handed) = harbour.polled(&earlier).await;
    assert_eq!(
        (status, handed),
        (StatusCode::OK, None),
        "what was under way ends in peace"
    );
    harbour.server.clock.advance(120 * 1_000);
    harbour.change_leader();
    let (status, problem, _) = harbour.polled(&earlier).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNAUTHORIZED, &json!("unauthorized"))
    );
    assert!(
        problem["detail"].as_str().unwrap().contains("was replaced"),
        "{problem}"
    );
    assert_eq!(harbour.polled(&worker).await.0, StatusCode::OK);
    harbour.server.clock.advance(7 * DAY_MS);
    let (status, problem, _) = harbour.polled(&worker).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNAUTHORIZED, &json!("token_expired"))
    );
}

#[tokio::test]
async fn that_a_token_was_replaced_is_said_by_a_leader_alone() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    harbour.poll(&worker, 0).await;
    let shown = NodeCommand::InternalTokenShown {
        node: NodeId(worker.node),
        number: 2,
        earlier_until_unix_secs: 0,
    };
    harbour.server.write(Command::Node(shown)).await;
    assert_eq!(harbour.polled(&worker).await.0, StatusCode::UNAUTHORIZED);
    harbour.server.log.depose();
    assert_eq!(harbour.polled(&worker).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn answers_say_the_term_that_they_are_of() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    let term = harbour.server.leases.term();
    assert_eq!(harbour.poll(&worker, 0).await["term"].as_u64(), term);
    let resources = json!({ "cpu_used": 0.0, "memory_used_bytes": 0, "gpu_used": 0 });
    let status = json!({ "node_id": worker.node, "ts_ns": 1, "containers": [], "resources": resources });
    let ack = harbour.ask_well(&worker, "status", &status).await;
    assert_eq!(ack["term"].as_u64(), term);
}

/// What the answer tells a removed worker to do is what works.
#[tokio::test]
async fn a_removed_worker_is_told_how_it_comes_back() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 2)).await;
    let mut body = registration(&token, "10.0.0.1:1");
    body["client_id"] = json!("a");
    let answer = harbour.registered(&body).await;
    let worker = Plain {
        node: answer["node_id"].as_u64().unwrap(),
        token: answer["internal_token"].as_str().unwrap().to_owned(),
    };
    harbour.poll(&worker, 0).await;
    let node = NodeId(worker.node);
    harbour
        .server
        .write(Command::Node(NodeCommand::Remove { node }))
        .await;
    let (status, problem, _) = harbour.polled(&worker).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let told = problem["detail"].as_str().unwrap();
    assert!(
        told.contains("a bootstrap token that it has not joined with"),
        "{told}"
    );
    assert_eq!(harbour.ask("register", None, &body).await.0, StatusCode::CONFLICT);
    let other = harbour.token(harbour.claims(2, 1)).await;
    let mut body = registration(&other, "10.0.0.1:1");
    body["client_id"] = json!("b");
    assert_ne!(harbour.registered(&body).await["node_id"], json!(worker.node));
}

#[tokio::test]
async fn profiles_of_no_machine_cost_no_use() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let fields = [
        ("os", json!("beos"), "operating system"),
        ("arch", json!("x86 64"), "architecture"),
        ("labels", json!({ "dhow.replicas": "true" }), "the cluster's own"),
        ("labels", json!({ "a b": "c" }), "holds no"),
        ("labels", json!({ "zone": "x".repeat(4_097) }), "text of the node"),
        ("cpu_total", json!(u32::MAX), "cores"),
        ("memory_total_bytes", json!(u64::MAX), "memory"),
    ];
    for (field, value, why) in fields {
        let mut body = registration(&token, "10.0.0.1:1");
        body["profile"][field] = value;
        let (status, problem) = harbour.ask("register", None, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
    assert_eq!((harbour.uses(), harbour.workers()), (0, 0));
    harbour.join(&token, "10.0.0.1:1").await;
}

#[tokio::test]
async fn renewals_are_told_with_who_it_was_and_for_how_long_is_a_setting() {
    let mut harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let node = NodeId(harbour.register(&token, &csr()).await.unwrap().node_id);
    harbour
        .renew(super::proved(Identity::Worker(node)))
        .await
        .unwrap();
    let expired = |harbour: &Harbour, ago_secs: i64| {
        let expired_unix_secs = harbour.now_unix_secs() - ago_secs;
        move |request: &mut Request<RenewRequest>| {
            request.extensions_mut().insert(ExpiredIdentity {
                node,
                expired_unix_secs,
            });
        }
    };
    harbour.renew(expired(&harbour, 60)).await.unwrap();
    let mut options = harbour.gateway.inner.options.clone();
    options.workers.as_mut().unwrap().renew_expired_secs = 30;
    harbour.gateway = NodeGateway::new(options);
    let refused = harbour.renew(expired(&harbour, 60)).await;
    assert!(matches!(refused, Err(Refusal::Credential(why)) if why.contains("more than the 30 seconds")));
    harbour.renew(expired(&harbour, 30)).await.unwrap();
    let view = harbour.server.handle.view();
    view.settle_events().await;
    let told = view.events().since(harbour.server.first_event, 1_000).unwrap();
    let renewals: Vec<_> = told
        .iter()
        .filter(|record| record.event.kind == EventKind::CertificateRenewed)
        .map(|record| (record.event.author.clone(), record.event.message.clone()))
        .collect();
    let author = Some(format!("worker {node}"));
    let ago = |secs: i64| Some(format!("it had expired {secs} s ago"));
    assert_eq!(
        renewals,
        [
            (author.clone(), None),
            (author.clone(), ago(60)),
            (author, ago(30))
        ]
    );
}

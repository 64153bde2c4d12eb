//! A worker that knows the protocol's first table and nothing else: bodies here have exactly its fields.

use serde_json::{Value, json};

use super::*;

/// A worker that has joined.
pub(super) struct Plain {
    pub node: u64,
    pub token: String,
}

impl Harbour {
    pub(super) async fn ask(&self, route: &str, token: Option<&str>, body: &Value) -> (StatusCode, Value) {
        let (status, bytes) = self.post(route, token, body.to_string()).await;
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    pub(super) async fn ask_well(&self, worker: &Plain, route: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(route, Some(&worker.token), body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }

    pub(super) async fn join(&self, token: &str, addr: &str) -> Plain {
        let (status, answer) = self.ask("register", None, &registration(token, addr)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        Plain {
            node: answer["node_id"].as_u64().unwrap(),
            token: answer["internal_token"].as_str().unwrap().to_owned(),
        }
    }

    pub(super) async fn plain(&self) -> Plain {
        let token = self.token(self.claims(1, 1)).await;
        self.join(&token, "10.0.0.1:1").await
    }

    pub(super) async fn poll(&self, worker: &Plain, last_revision: u64) -> Value {
        let body = json!({ "node_id": worker.node, "last_revision": last_revision, "max_wait_secs": 0 });
        self.ask_well(worker, "poll", &body).await
    }

    async fn tell(&self, worker: &Plain, containers: &Value) -> Value {
        let body = json!({
            "node_id": worker.node,
            "ts_ns": 1,
            "containers": containers,
            "resources": { "cpu_used": 0.5, "memory_used_bytes": 1, "gpu_used": 0 },
        });
        self.ask_well(worker, "status", &body).await
    }

    async fn deploy(&self, services: &Value) {
        let spec = json!({ "version": "v1", "deployment": "shop", "services": services });
        let deploy = DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_value(spec).unwrap()),
            author: "test".into(),
            wall_unix_secs: 0,
            force: false,
        };
        self.server.write(Command::Deployment(deploy)).await;
    }

    /// Puts everything that is wanted on the worker.
    async fn place_all(&self, worker: &Plain) {
        let state = self.server.state();
        let node = state.node(NodeId(worker.node)).unwrap();
        for service in state.services.values() {
            let placements = service.wanted_slots().map(|slot| Placement {
                slot,
                node: node.id,
                eligibility: node.eligibility,
            });
            let place = PlanCommand::Place {
                service: service.id,
                generation: service.target,
                placements: placements.collect(),
            };
            self.server.write(Command::Plan(place)).await;
        }
    }

    fn states(&self) -> Vec<ReplicaState> {
        let state = self.server.state();
        state
            .replicas
            .values()
            .map(|replica| replica.machine.state)
            .collect()
    }
}

pub(super) fn registration(token: &str, addr: &str) -> Value {
    json!({
        "token": token,
        "profile": {
            "api_addr": addr, "os": "linux", "arch": "x86_64", "cpu_total": 4, "memory_total_bytes": 8_000_000,
        },
    })
}

fn container(role: &str, replica: u32, state: &str) -> Value {
    json!({ "service": "web", "role": role, "replica": replica, "state": state })
}

#[tokio::test]
async fn a_lost_reply_costs_no_second_use() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 2)).await;
    let first = harbour.join(&token, "10.0.0.1:1").await;
    let again = harbour.join(&token, "10.0.0.1:1").await;
    assert_eq!(again.node, first.node);
    // It has its answer: whoever says the same now is another one.
    harbour.poll(&again, 0).await;
    let other = harbour.join(&token, "10.0.0.1:1").await;
    assert_ne!(other.node, first.node);
    assert_eq!(harbour.workers(), 2);
    harbour.poll(&other, 0).await;
    let (status, problem) = harbour
        .ask("register", None, &registration(&token, "10.0.0.1:1"))
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::UNAUTHORIZED, &json!("token_used_up"))
    );
    assert_eq!(harbour.workers(), 2);
}

#[tokio::test]
async fn a_client_with_a_name_is_known_by_it_and_others_by_what_they_say() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 3)).await;
    let named = |id: &str| {
        let mut body = registration(&token, "10.0.0.1:1");
        body["client_id"] = json!(id);
        body
    };
    let join = async |body: Value| harbour.ask("register", None, &body).await.1["node_id"].as_u64();
    let first = join(named("a")).await;
    assert_ne!(join(named("b")).await, first);
    assert_eq!(join(named("a")).await, first);
    let (_, joined) = harbour.ask("register", None, &named("a")).await;
    let shown = joined["internal_token"].as_str().unwrap();
    let resources = json!({ "cpu_used": 0.0, "memory_used_bytes": 0, "gpu_used": 0 });
    let status = json!({ "node_id": first, "ts_ns": 1, "containers": [], "resources": resources });
    assert_eq!(
        harbour.ask("status", Some(shown), &status).await.0,
        StatusCode::OK
    );
    let (status, problem) = harbour.ask("register", None, &named("a")).await;
    assert_eq!(status, StatusCode::CONFLICT, "its answer was not lost: {problem}");
    let (status, _) = harbour.ask("register", None, &named("")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_ne!(Some(harbour.join(&token, "10.0.0.2:1").await.node), first);
    assert_eq!(harbour.workers(), 3);
}

#[tokio::test]
async fn refused_labels_and_profiles_cost_no_use() {
    let harbour = Harbour::open().await;
    let mut claims = harbour.claims(1, 1);
    claims.allowed_labels = Some(BTreeMap::new());
    let token = harbour.token(claims).await;
    let mut body = registration(&token, "10.0.0.1:1");
    body["profile"]["labels"] = json!({ "zone": "a" });
    let (status, problem) = harbour.ask("register", None, &body).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::FORBIDDEN, &json!("token_labels"))
    );
    let mut body = registration(&token, "10.0.0.1:1");
    body["profile"]["os"] = json!("x".repeat(100_000));
    assert_eq!(
        harbour.ask("register", None, &body).await.0,
        StatusCode::BAD_REQUEST
    );
    harbour.join(&token, "10.0.0.1:1").await;
}

/// What is not said is as it was assigned; running is healthy.
#[tokio::test]
async fn a_status_without_the_additions_is_believed_and_written_once() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    harbour
        .deploy(&json!({ "web": { "image": "web:1", "scale": { "mode": "fixed", "replicas": 2 } } }))
        .await;
    harbour.place_all(&worker).await;
    let both = json!([
        container("default", 0, "running"),
        container("default", 1, "running")
    ]);
    let ack = harbour.tell(&worker, &both).await;
    assert_eq!(ack["next_ttl_secs"], json!(10));
    let state = harbour.server.state();
    assert!(state.replicas.values().all(|replica| replica.is_healthy()));
    harbour.tell(&worker, &both).await;
    // What is none of the cluster's, and what nobody understands, changes nothing.
    let mut more = both.clone();
    more.as_array_mut()
        .unwrap()
        .push(container("default", 7, "running"));
    more[0]["state"] = json!("frozen");
    harbour.tell(&worker, &more).await;
    assert_eq!(
        harbour.server.state().revision,
        state.revision,
        "nothing was written"
    );
    let one = json!([
        container("default", 0, "running"),
        container("default", 1, "failed")
    ]);
    harbour.tell(&worker, &one).await;
    assert_eq!(harbour.states(), [ReplicaState::Running, ReplicaState::Failed]);
    // One that it does not have any more.
    harbour
        .tell(&worker, &json!([container("default", 1, "failed")]))
        .await;
    assert_eq!(harbour.states(), [ReplicaState::Pending, ReplicaState::Failed]);
}

/// What is open for it is handed to it until it is named, with all that it takes to prepare.
#[tokio::test]
async fn open_rollouts_are_handed_with_the_answer() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    assert_eq!(
        harbour.tell(&worker, &json!([])).await,
        json!({ "next_ttl_secs": 10, "term": 1 })
    );
    harbour.deploy(&json!({ "web": { "image": "web:1" } })).await;
    harbour.place_all(&worker).await;
    let ack = harbour.tell(&worker, &json!([])).await;
    let [open] = &ack["bootstrap"].as_array().unwrap()[..] else {
        panic!("{ack}");
    };
    assert_eq!(
        (&open["rollout_id"], &open["service"], &open["deployment"]),
        (&json!("shop@1"), &json!("web"), &json!("shop"))
    );
    assert_eq!(
        (&open["generation"], &open["specs"][0]["image"]),
        (&json!(1), &json!("web:1"))
    );
    let body = json!({
        "node_id": worker.node, "ts_ns": 1, "rollouts": ["shop@1", "no rollout"],
        "resources": { "cpu_used": 0.0, "memory_used_bytes": 0, "gpu_used": 0 },
    });
    let ack = harbour.ask_well(&worker, "status", &body).await;
    assert_eq!(ack, json!({ "next_ttl_secs": 10, "term": 1 }), "it has named it");
}

#[tokio::test]
async fn what_replicas_use_is_shown_where_it_is_told() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    harbour
        .deploy(&json!({ "web": { "image": "web:1", "scale": { "mode": "fixed", "replicas": 2 } } }))
        .await;
    harbour.place_all(&worker).await;
    let mut told = json!([
        container("default", 0, "running"),
        container("default", 1, "running")
    ]);
    told[1]["cpu_used_milli"] = json!(250);
    told[1]["memory_used_bytes"] = json!(4_096);
    harbour.tell(&worker, &told).await;
    let view = harbour.server.handle.view();
    let usage = view.observed().usage(NodeId(worker.node)).unwrap();
    assert_eq!((usage.cpu_milli, usage.memory_bytes), (500, 1));
    let [(name, used)] = &usage.replicas[..] else {
        panic!("{usage:?}");
    };
    assert_eq!(name.to_string(), "shop/web-default-1");
    assert_eq!(
        (name.generation.0, used.cpu_milli, used.memory_bytes),
        (1, 250, 4_096)
    );
}

#[tokio::test]
async fn a_job_that_exited_is_done() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    harbour
        .deploy(&json!({ "web": { "image": "web:1", "rtype": "job" } }))
        .await;
    harbour.place_all(&worker).await;
    harbour
        .tell(&worker, &json!([container("default", 0, "exited")]))
        .await;
    let state = harbour.server.state();
    assert!(state.replicas.values().all(|replica| replica.is_completed()));
}

#[tokio::test]
async fn what_is_to_run_always_has_failed_where_it_exited() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    harbour.deploy(&json!({ "web": { "image": "web:1" } })).await;
    harbour.place_all(&worker).await;
    let ended = json!([container("default", 0, "exited")]);
    harbour.tell(&worker, &ended).await;
    assert_eq!(harbour.states(), [ReplicaState::Failed]);
    let revision = harbour.server.state().revision;
    harbour.tell(&worker, &ended).await;
    assert_eq!(
        harbour.server.state().revision,
        revision,
        "said again, it is no news"
    );
    harbour
        .tell(&worker, &json!([container("default", 0, "running")]))
        .await;
    assert_eq!(harbour.states(), [ReplicaState::Running]);
    let state = harbour.server.state();
    let machine = &state.replicas.values().next().unwrap().machine;
    assert_eq!(
        machine.exit, None,
        "it runs again, and how it ended before is over"
    );
}

#[tokio::test]
async fn each_role_is_told_its_own_spec() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    harbour
        .deploy(&json!({ "web": { "image": "web:1", "replica_groups": [
            { "role": "primary", "count": 1, "image": "db:1" },
            { "role": "reader", "count": 2 },
        ] } }))
        .await;
    harbour.place_all(&worker).await;
    let answer = harbour.poll(&worker, 0).await;
    let set = &answer["events"][0];
    let image = |role: &str| set["role_specs"][role]["1"]["image"].clone();
    assert_eq!(
        (image("primary"), image("reader")),
        (json!("db:1"), json!("web:1")),
        "{set}"
    );
    harbour
        .tell(
            &worker,
            &json!([
                container("primary", 0, "running"),
                container("reader", 0, "running"),
                container("reader", 1, "starting")
            ]),
        )
        .await;
    let running = harbour
        .states()
        .into_iter()
        .filter(|state| *state == ReplicaState::Running);
    assert_eq!(running.count(), 2);
}

#[tokio::test]
async fn whoever_was_away_for_long_or_is_ahead_is_told_everything() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    let services: serde_json::Map<String, Value> = (0..70)
        .map(|number| (format!("s{number:02}"), json!({ "image": "web:1" })))
        .collect();
    harbour.deploy(&Value::Object(services)).await;
    harbour.place_all(&worker).await;
    let all = harbour.poll(&worker, 0).await;
    assert_eq!(
        (all["events"].as_array().unwrap().len(), &all["whole"]),
        (70, &json!(true))
    );
    let seen = all["revision"].as_u64().unwrap();
    assert_eq!(
        harbour.poll(&worker, seen).await,
        json!({ "revision": seen, "term": 1 })
    );
    // Everything but one goes: more than is remembered.
    let state = harbour.server.state();
    for service in state.services.values().skip(1) {
        let stop = PlanCommand::Stop {
            service: service.id,
            generation: service.target,
            replicas: state.replicas_of(service.id).map(|(key, _)| *key).collect(),
            why: dhow_core::command::StopReason::Removed,
        };
        harbour.server.write(Command::Plan(stop)).await;
    }
    for last in [seen, u64::MAX] {
        let news = harbour.poll(&worker, last).await;
        let [event] = &news["events"].as_array().unwrap()[..] else {
            panic!("{news}");
        };
        assert_eq!(
            (&event["service"], &event["whole"]),
            (&json!("s00"), &json!(true))
        );
        assert_eq!(news["whole"], json!(true));
        let recorded = news["revision"].as_u64().unwrap();
        assert_eq!(
            harbour.poll(&worker, recorded).await,
            json!({ "revision": recorded, "term": 1 })
        );
    }
}

#[tokio::test]
async fn a_drain_is_told_once() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    harbour.deploy(&json!({ "web": { "image": "web:1" } })).await;
    harbour.place_all(&worker).await;
    let seen = harbour.poll(&worker, 0).await["revision"].as_u64().unwrap();
    let drain = NodeCommand::SetDrain {
        node: NodeId(worker.node),
        drain: dhow_core::state::Drain::Draining { shutdown: true },
    };
    harbour.server.write(Command::Node(drain)).await;
    let told = harbour.poll(&worker, seen).await;
    assert_eq!(told["events"][0]["kind"], json!("drain"));
    let last = told["revision"].as_u64().unwrap();
    assert!(last > seen);
    assert_eq!(
        harbour.poll(&worker, last).await,
        json!({ "revision": last, "term": 1 })
    );
}

#[tokio::test]
async fn a_worker_that_names_generations_is_plain_no_more() {
    let harbour = Harbour::open().await;
    let worker = harbour.plain().await;
    let is_plain = |harbour: &Harbour| harbour.server.state().node(NodeId(worker.node)).unwrap().is_plain;
    harbour.deploy(&json!({ "web": { "image": "web:1" } })).await;
    harbour.place_all(&worker).await;
    harbour
        .tell(&worker, &json!([container("default", 0, "running")]))
        .await;
    assert!(is_plain(&harbour));
    let mut told = container("default", 0, "running");
    told["generation"] = json!(1);
    told["deployment"] = json!("shop");
    harbour.tell(&worker, &json!([told])).await;
    assert!(!is_plain(&harbour));
}

//! A server that was paused gives no certificate and calls no worker unknown before the others have confirmed it.

use super::*;

async fn joined(harbour: &Harbour) -> WorkerRegisterResponse {
    let token = harbour.token(harbour.claims(1, 1)).await;
    let profile = r#"{"api_addr":"10.0.0.1:1","os":"linux","arch":"x86_64"}"#;
    let body = format!(r#"{{"token":"{token}","profile":{profile}}}"#);
    let (status, bytes) = harbour.post("register", None, body).await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&bytes));
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn no_certificate_is_renewed_by_an_ex_leader() {
    let harbour = Harbour::open().await;
    let token = harbour.token(harbour.claims(1, 1)).await;
    let node = NodeId(harbour.register(&token, &csr()).await.unwrap().node_id);
    assert!(harbour.renew(proved(Identity::Worker(node))).await.is_ok());
    harbour.server.log.depose();
    for node in [node, NodeId(77)] {
        let refused = harbour.renew(proved(Identity::Worker(node))).await;
        assert_eq!(refused, Err(Refusal::NotLeader { leader: None }));
    }
}

#[tokio::test]
async fn a_worker_over_http_is_unknown_to_a_leader_alone() {
    let harbour = Harbour::open().await;
    let joined = joined(&harbour).await;
    let (node, shown) = (joined.node_id, Some(joined.internal_token.as_str()));
    let remove = NodeCommand::Remove { node: NodeId(node) };
    harbour.server.write(Command::Node(remove)).await;
    let ask = async |path| {
        let resources = r#"{"cpu_used":0.5,"memory_used_bytes":1,"gpu_used":0}"#;
        let body = format!(r#"{{"node_id":{node},"ts_ns":1,"containers":[],"resources":{resources}}}"#);
        harbour.post(path, shown, body).await.0
    };
    for path in ["poll", "status"] {
        assert_eq!(ask(path).await, StatusCode::NOT_FOUND, "{path}");
    }
    harbour.server.log.depose();
    for path in ["poll", "status"] {
        assert_eq!(ask(path).await, StatusCode::SERVICE_UNAVAILABLE, "{path}");
    }
}

#[tokio::test]
async fn everything_is_told_by_a_leader_alone() {
    let harbour = Harbour::open().await;
    let joined = joined(&harbour).await;
    let shown = Some(joined.internal_token.as_str());
    harbour.server.log.depose();
    let body = format!(
        r#"{{"node_id":{},"last_revision":0,"max_wait_secs":1}}"#,
        joined.node_id
    );
    let (status, _) = harbour.post("poll", shown, body).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

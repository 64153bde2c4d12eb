//! The description lists every route, and says what each may answer.

use std::collections::BTreeSet;

use serde_json::Value;

use super::support::World;
use crate::api::document;

const ROUTES: &str = "\
DELETE /api/v1/cluster/members/{id}
DELETE /api/v1/deployments/{name}
DELETE /api/v1/images
DELETE /api/v1/nodes/{id}
DELETE /api/v1/notify/{name}
DELETE /api/v1/registries/{host}
DELETE /api/v1/secrets/{name}
DELETE /api/v1/sources/{name}
DELETE /api/v1/tokens/{id}
DELETE /api/v1/volumes/{deployment}/{name}
GET /api/v1/cluster
GET /api/v1/cluster/backup
GET /api/v1/cluster/upgrade
GET /api/v1/crons
GET /api/v1/deployments
GET /api/v1/deployments/{name}
GET /api/v1/deployments/{name}/explain
GET /api/v1/deployments/{name}/history
GET /api/v1/deployments/{name}/net-check
GET /api/v1/deployments/{name}/progress
GET /api/v1/events
GET /api/v1/images
GET /api/v1/logs
GET /api/v1/nodes
GET /api/v1/nodes/{id}
GET /api/v1/notify
GET /api/v1/openapi.json
GET /api/v1/past
GET /api/v1/past/at
GET /api/v1/past/difference
GET /api/v1/rebalance
GET /api/v1/registries
GET /api/v1/replicas
GET /api/v1/rollouts
GET /api/v1/secrets
GET /api/v1/sources
GET /api/v1/tokens
GET /api/v1/volumes
GET /api/v1/volumes/{deployment}/{name}/content
GET /health
GET /metrics
GET /ready
POST /api/v1/cluster/members
POST /api/v1/cluster/worker-ca/rotate
POST /api/v1/deployments
POST /api/v1/deployments/{name}/replicas/{id}/exec
POST /api/v1/deployments/{name}/restart
POST /api/v1/deployments/{name}/rollback
POST /api/v1/deployments/{name}/rollout
POST /api/v1/deployments/{name}/runs
POST /api/v1/deployments/{name}/scale
POST /api/v1/deployments/{name}/start
POST /api/v1/deployments/{name}/stop
POST /api/v1/images/import
POST /api/v1/images/prune
POST /api/v1/images/pull
POST /api/v1/nodes/{id}/drain
POST /api/v1/nodes/{id}/labels
POST /api/v1/nodes/{id}/undrain
POST /api/v1/notify/{name}/test
POST /api/v1/plan
POST /api/v1/rebalance
POST /api/v1/sources/{name}/accept
POST /api/v1/sources/{name}/hook
POST /api/v1/sources/{name}/retry
POST /api/v1/sources/{name}/sync
POST /api/v1/tokens
POST /api/v1/tokens/workers
POST /api/v1/volumes/{deployment}/{name}/home
POST /api/v1/workers/poll
POST /api/v1/workers/register
POST /api/v1/workers/status
PUT /api/v1/notify/{name}
PUT /api/v1/registries/{host}
PUT /api/v1/secrets/{name}
PUT /api/v1/sources/{name}
PUT /api/v1/volumes/{deployment}/{name}/content
";

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            all.push((format!("{} {path}", method.to_uppercase()), operation));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[tokio::test]
async fn every_route_is_described() {
    let world = World::new().await;
    let served: Value = world.get("/api/v1/openapi.json").await.json();
    assert_eq!(served, serde_json::to_value(document()).unwrap());
    let lines: String = operations(&served)
        .iter()
        .map(|(route, _)| format!("{route}\n"))
        .collect();
    assert_eq!(lines, ROUTES);
    let ids: BTreeSet<&str> = operations(&served)
        .iter()
        .map(|(_, operation)| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids.len(),
        ROUTES.lines().count(),
        "every operation has a name of its own"
    );
    for (route, operation) in operations(&served) {
        let responses = operation["responses"].as_object().unwrap();
        let problem = &responses["400"]["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(problem, "#/components/schemas/Problem", "{route}");
        let writes = !route.starts_with("GET");
        assert_eq!(
            responses.contains_key("409"),
            writes || route == "GET /api/v1/images",
            "{route}"
        );
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(parameter["schema"]["type"].is_string(), "{route}: {parameter}");
        }
        let has_body = operation.get("requestBody").is_some();
        assert_eq!(responses.contains_key("413"), has_body, "{route}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    found.insert(reference.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = serde_json::to_value(document()).unwrap();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

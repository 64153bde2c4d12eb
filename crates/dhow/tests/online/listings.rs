//! What listings print, for people and as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::server::{Daemon, Step};

const DAY_SECS: u64 = 86_400;

/// A moment that stays the same number of days ago for as long as a test takes.
fn days_ago(days: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    now - days * DAY_SECS - DAY_SECS / 2
}

/// Runs the verb twice: for people, and as JSON, which must be the API's document.
fn both(name: &str, args: &[&str], expect: &str, body: &Value) -> String {
    let daemon = Daemon::new(
        name,
        vec![Step::json(expect, body.clone()), Step::json(expect, body.clone())],
    );
    let people = daemon.run(args);
    assert_eq!((people.code, people.stderr.as_str()), (0, ""));
    let json = daemon.run(&[args, &["--json"]].concat());
    assert_eq!((json.code, json.stderr.as_str(), &json.json()), (0, "", body));
    daemon.seen();
    people.stdout
}

fn shop() -> Value {
    json!({
        "deployment": "shop", "revision": 3, "state": "degraded", "message": "web: 2 of 3 run",
        "services": [
            { "name": "db", "running": 1, "desired": 1, "healthy": true, "endpoints": [] },
            { "name": "web", "running": 2, "desired": 3, "healthy": false,
              "endpoints": ["http://localhost:8080", "tcp://localhost:9000"] },
        ],
    })
}

#[test]
fn status_of_one_deployment() {
    let text = both(
        "status",
        &["status", "shop"],
        "GET /api/v1/deployments/shop",
        &shop(),
    );
    let expected = "\
shop: degraded, revision 3
  web: 2 of 3 run
SERVICE  RUNNING  HEALTHY  ENDPOINTS
db       1/1      yes      -
web      2/3      no       http://localhost:8080 tcp://localhost:9000
";
    assert_eq!(text, expected);
}

#[test]
fn status_of_all() {
    let empty = json!({ "deployment": "old", "revision": 1, "state": "removing", "services": [] });
    let text = both(
        "status-all",
        &["status"],
        "GET /api/v1/deployments",
        &json!([empty, shop()]),
    );
    let expected = "\
DEPLOYMENT  REVISION  STATE     SERVICE  RUNNING  HEALTHY  ENDPOINTS
old         1         removing  -        -        -        -
shop        3         degraded  db       1/1      yes      -
shop        3         degraded  web      2/3      no       http://localhost:8080 tcp://localhost:9000
";
    assert_eq!(text, expected);
}

#[test]
fn nothing_is_said_on_stderr_alone() {
    let daemon = Daemon::new("none", vec![Step::json("GET /api/v1/deployments", json!([]))]);
    let status = daemon.run(&["status"]);
    assert_eq!((status.code, status.stdout.as_str()), (0, ""));
    assert!(status.stderr.contains("nothing is deployed"), "{}", status.stderr);
}

fn replica(index: u32, state: &str) -> Value {
    json!({
        "deployment": "shop", "service": "web", "role": "default", "replica": index,
        "id": format!("web-default-{index}"), "node_id": 1, "image": "nginx:1.27", "state": state,
        "healthy": state == "running", "restarts": index, "pid": null, "exit_code": null,
    })
}

#[test]
fn ps_shows_replicas() {
    let (mut running, mut failed, mut pending) =
        (replica(0, "running"), replica(1, "failed"), replica(2, "pending"));
    running["started_unix_secs"] = days_ago(3).into();
    running["revision"] = 12.into();
    failed["exit_code"] = 42.into();
    pending["node_id"] = Value::Null;
    let list = json!([running, failed, pending]);
    let text = both(
        "ps",
        &["ps", "shop", "--all"],
        "GET /api/v1/replicas?deployment=shop&all=true",
        &list,
    );
    let expected = "\
REPLICA             NODE  REVISION  STATE       HEALTHY  RESTARTS  AGE  IMAGE
shop/web-default-0  1     12        running     yes      0         3d   nginx:1.27
shop/web-default-1  1     -         failed(42)  no       1         -    nginx:1.27
shop/web-default-2  -     -         pending     no       2         -    nginx:1.27
";
    assert_eq!(text, expected);
}

#[test]
fn ps_has_a_column_of_messages_where_there_are_any() {
    let mut failed = replica(0, "failed");
    failed["message"] = "cannot open\nconfig".into();
    let text = both("ps-message", &["ps"], "GET /api/v1/replicas", &json!([failed]));
    let mut long = replica(0, "failed");
    long["message"] = "x".repeat(100).into();
    let whole = both("ps-long", &["ps"], "GET /api/v1/replicas", &json!([long]));
    assert!(
        whole.trim_end().ends_with(&"x".repeat(100)),
        "a pipe gets all of it: {whole}"
    );
    assert!(
        text.lines().next().unwrap().ends_with("IMAGE       MESSAGE"),
        "{text}"
    );
    assert!(text.ends_with("nginx:1.27  cannot open config\n"), "{text}");
}

#[test]
fn history_shows_what_became_of_revisions() {
    let list = json!([
        { "revision": 1, "state": "good", "author": "ann", "created_unix_secs": days_ago(2), "current": true,
          "images": ["nginx:1.26", "postgres:16"] },
        { "revision": 2, "state": "reverted", "author": "bob", "created_unix_secs": days_ago(1), "current": false,
          "cause": "web-default-0 exited with 1", "images": ["nginx:1.27"] },
        { "revision": 3, "state": "good", "author": "-", "created_unix_secs": days_ago(0), "current": false,
          "brings_back": 1, "images": [] },
    ]);
    let text = both(
        "history",
        &["history", "shop"],
        "GET /api/v1/deployments/shop/history",
        &list,
    );
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "REVISION  STATE     AGE  AUTHOR  IMAGES                  NOTE"
    );
    assert_eq!(
        lines.next().unwrap(),
        "1         good      2d   ann     nginx:1.26 postgres:16  current"
    );
    assert_eq!(
        lines.next().unwrap(),
        "2         reverted  1d   bob     nginx:1.27              web-default-0 exited with 1"
    );
    assert_eq!(
        lines.next().unwrap(),
        "3         good      12h  -       -                       brings back 1"
    );
}

#[test]
fn explain_prints_sentences() {
    let body = json!({
        "subject": "shop/web", "lines": ["2 of 3 run", "web-default-2 waits: no node has 4 GiB left"],
        "replicas": [], "waiting": [],
    });
    let expect = "GET /api/v1/deployments/shop/explain?name=web";
    let text = both("explain", &["explain", "shop/web"], expect, &body);
    assert_eq!(
        text,
        "shop/web\n  2 of 3 run\n  web-default-2 waits: no node has 4 GiB left\n"
    );
}

fn node(id: u64) -> Value {
    json!({
        "node_id": id, "role": "peer", "status": "ready", "leader": id == 1, "labels": { "zone": "a", "disk": "ssd" },
        "replicas": 2, "os": "linux", "arch": "x86_64", "api_addr": "127.0.0.1:3669",
    })
}

/// A node with all that can be known of it.
fn measured() -> Value {
    let mut node = node(1);
    let amount =
        |cpu_milli: u64, memory_bytes: u64| json!({ "cpu_milli": cpu_milli, "memory_bytes": memory_bytes });
    node["resources"] = json!({
        "capacity": amount(4_000, 8 << 30), "reserved": amount(1_500, 512 << 20), "used": amount(250, 1 << 30),
    });
    node["lease"] = json!({
        "node_id": 1, "profile": { "api_addr": "127.0.0.1:3669", "os": "linux", "arch": "x86_64" },
        "acquired_unix_secs": days_ago(3), "renewed_unix_secs": days_ago(1), "ttl_secs": 20, "grace_secs": 10,
    });
    node
}

#[test]
fn nodes_are_listed() {
    let mut bare = json!({ "node_id": 12, "role": "worker", "status": "unreachable", "leader": false, "labels": {}, "replicas": 0 });
    bare["os"] = "linux".into();
    let text = both(
        "nodes",
        &["node", "ls"],
        "GET /api/v1/nodes",
        &json!([measured(), bare]),
    );
    let expected = "\
NODE  ROLE    STATUS       LEADER  REPLICAS  CPU    MEMORY           PLATFORM      ADDRESS         LABELS
1     peer    ready        yes     2         1.5/4  512 MiB/8.0 GiB  linux/x86_64  127.0.0.1:3669  disk=ssd,zone=a
12    worker  unreachable  no      0         -      -                linux         -               -
";
    assert_eq!(text, expected);
}

#[test]
fn a_node_is_shown_with_its_replicas() {
    let mut elsewhere = replica(1, "running");
    elsewhere["node_id"] = 2.into();
    let replicas = json!([replica(0, "running"), elsewhere]);
    let script = vec![
        Step::json("GET /api/v1/nodes/1", node(1)),
        Step::json("GET /api/v1/replicas", replicas),
    ];
    let daemon = Daemon::new("node", script);
    let shown = daemon.run(&["node", "show", "1"]);
    let expected = "\
node:      1
role:      peer
status:    ready
leader:    yes
platform:  linux/x86_64
address:   127.0.0.1:3669
labels:    disk=ssd,zone=a
replicas:  2

REPLICA             NODE  REVISION  STATE    HEALTHY  RESTARTS  AGE  IMAGE
shop/web-default-0  1     -         running  yes      0         -    nginx:1.27
";
    assert_eq!(
        (shown.code, shown.stdout.as_str(), shown.stderr.as_str()),
        (0, expected, "")
    );
    daemon.seen();
}

#[test]
fn a_node_shows_what_it_offers_and_its_lease() {
    let mut used = replica(0, "running");
    (used["cpu_used_milli"], used["memory_used_bytes"]) = (120.into(), (64 << 20).into());
    let script = vec![
        Step::json("GET /api/v1/nodes/1", measured()),
        Step::json("GET /api/v1/replicas", json!([used])),
    ];
    let daemon = Daemon::new("node-more", script);
    let shown = daemon.run(&["node", "show", "1"]);
    let expected = "\
cpu:       4, 1.5 reserved, 0.25 used
memory:    8.0 GiB, 512 MiB reserved, 1.0 GiB used
lease:     run out, renewed 1d ago for 20s and 10s of grace, held for 3d

REPLICA             NODE  REVISION  STATE    HEALTHY  RESTARTS  AGE  CPU   MEMORY  IMAGE
shop/web-default-0  1     -         running  yes      0         -    0.12  64 MiB  nginx:1.27
";
    assert!(shown.stdout.ends_with(expected), "{}", shown.stdout);
    daemon.seen();
}

#[test]
fn a_node_where_services_fail_says_so() {
    let fails = |services: &[&str], suspect: bool, line: &str| {
        let mut failing = node(1);
        failing["failures"] = json!({ "services": services, "suspect": suspect });
        let script = vec![
            Step::json("GET /api/v1/nodes/1", failing),
            Step::json("GET /api/v1/replicas", json!([])),
        ];
        let daemon = Daemon::new(&format!("node-failing-{suspect}"), script);
        let shown = daemon.run(&["node", "show", "1"]);
        assert_eq!(shown.stdout.lines().last(), Some(line));
        daemon.seen();
    };
    fails(&["shop/web"], false, "failing:   shop/web kept failing here");
    fails(
        &["shop/db", "shop/web", "sums/all"],
        true,
        "failing:   shop/db, shop/web, sums/all kept failing here; the node itself may be at fault",
    );
}

#[test]
fn ps_compares_the_cluster_with_its_nodes() {
    let (same, mut other) = (replica(0, "running"), replica(1, "running"));
    other["live"] = "exited".into();
    let text = both(
        "ps-live",
        &["ps", "--live"],
        "GET /api/v1/replicas?live=true",
        &json!([same, other]),
    );
    let expected = "\
REPLICA             NODE  REVISION  STATE    HEALTHY  RESTARTS  AGE  LIVE    IMAGE
shop/web-default-0  1     -         running  yes      0         -    same    nginx:1.27
shop/web-default-1  1     -         running  yes      1         -    exited  nginx:1.27
";
    assert_eq!(text, expected);
}

#[test]
fn the_cluster_is_told() {
    let body = json!({
        "mode": "single-node", "cluster_id": "c-1", "node_id": 1, "leader_id": null, "term": 1, "revision": 42, "nodes": 1,
    });
    let text = both("cluster", &["cluster", "status"], "GET /api/v1/cluster", &body);
    let expected = "\
mode:      single-node
cluster:   c-1
node:      1
leader:    none
term:      1
revision:  42
nodes:     1
";
    assert_eq!(text, expected);
}

#[test]
fn images_are_listed() {
    let list = json!([
        { "name": "nginx:1.27", "digest": "sha256:0123456789abcdef", "size_bytes": 50 << 20,
          "last_used_unix_secs": days_ago(9), "in_use": true },
        { "name": "oci:/x", "digest": "sha256:ffff", "size_bytes": 10, "in_use": false },
    ]);
    let text = both("images", &["image", "ls"], "GET /api/v1/images", &list);
    let expected = "\
IMAGE       DIGEST        SIZE    LAST USED  IN USE
nginx:1.27  0123456789ab  50 MiB  9d         yes
oci:/x      ffff          10 B    -          no
";
    assert_eq!(text, expected);
}

#[test]
fn secrets_are_listed_by_name() {
    let list = json!([{ "name": "db-password", "revision": 2 }]);
    let text = both("secrets", &["secret", "ls"], "GET /api/v1/secrets", &list);
    assert_eq!(text, "NAME         REVISION\ndb-password  2\n");
}

#[test]
fn plan_asks_the_daemon() {
    let body = json!({
        "deployment": "shop",
        "services": [
            { "name": "db", "change": "unchanged", "from": 1, "to": 1, "after": [], "waiting": [] },
            { "name": "web", "change": "rolls", "from": 2, "to": 3, "after": ["db"],
              "waiting": [{ "first": "web-default-2", "slots": 1, "why": "no node has 4 GiB left" }] },
        ],
        "placements": [{ "replica": "web-default-0", "node_id": 2 }],
        "stops": ["web-default-1"],
    });
    let daemon = Daemon::new("plan", vec![Step::json("POST /api/v1/plan?source=", body)]);
    let file = daemon.file(
        "shop.yaml",
        "version: v1\ndeployment: shop\nservices:\n  web: { image: nginx }\n  db: { image: postgres }\n",
    );
    let plan = daemon.run(&["plan", &file]);
    let expected = "\
deployment shop
  db   unchanged
  web  replaces its replicas, 2 to 3 replicas, after db
       1 replica not placed: no node has 4 GiB left
node 2: web-default-0
would end: web-default-1
";
    assert_eq!(
        (plan.code, plan.stdout.as_str(), plan.stderr.as_str()),
        (0, expected, "")
    );
    assert_eq!(daemon.seen()[0].json()["deployment"], "shop");
}

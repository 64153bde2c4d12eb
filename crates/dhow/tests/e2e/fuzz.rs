//! Malformed deployment files: refused with a reason and without a trace, never with a failure of the server.

use serde_json::{Value, json};

use crate::support::{Daemon, Seed, rounds};

/// Nothing of it runs: what a mutant happens to say is not to be tried.
const VALID: &str = "\
version: v1
deployment: shop
services:
  web:
    runtime: process
    command: [sleep, '3600']
    env: { COLOUR: blue, TOKEN: \"$S:token\" }
    resources: { cpu: 0.5, memory: 256Mi, pids: 200 }
    endpoints:
      - { name: http, protocol: http, port: 8080, target_port: 80, expose: public }
    scale: { mode: manual }
    health: { check: { type: http, url: /healthz }, interval: 5s, retries: 3 }
    rollout: { max_surge: 1, max_unavailable: 0, min_healthy: 10s, on_failure: revert }
    depends: [{ service: db, condition: healthy, timeout: 300s }]
    restart: { policy: on_failure, max_attempts: 3, backoff: { initial: 1s, max: 60s } }
    stop: { signal: SIGTERM, grace: 10s }
    labels: { tier: front }
    priority: 60
  db:
    image: { name: 'postgres:16', pull_policy: if_not_present }
    storage: [{ type: named, name: pgdata, target: /var/lib/postgresql/data }]
    scale: { mode: manual }
    affinity: spread
    node_selector: { labels: { disk: ssd } }
    reschedule: { delay: 5s }
";

const PIECES: &[&str] = &[
    "\0",
    "\u{feff}",
    "\t",
    "&a ",
    "*a",
    "<<: ",
    "!!binary ",
    "? ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "|",
    ">",
    "'",
    "\"",
    "%YAML 9\n",
    "---\n",
    "...\n",
    "#",
    "\u{202e}",
    "é",
    "-1",
    "1e999",
    "0x7f",
    "99999999999999999999",
    ".nan",
    "null",
    "~",
    "true",
    "$E:HOME",
    "$S:",
    "../../etc",
    "18446744073709551616",
];

fn mutate_bytes(seed: &mut Seed, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=seed.below(3) {
        let at = seed.below(bytes.len());
        match seed.below(5) {
            0 => bytes[at] = u8::try_from(seed.below(256)).unwrap(),
            1 => drop(bytes.drain(at..(at + seed.below(40)).min(bytes.len()))),
            2 => {
                let piece = seed.one_of(PIECES).bytes();
                drop(bytes.splice(at..at, piece).collect::<Vec<_>>());
            }
            3 => bytes.truncate(at.max(1)),
            _ => {
                let copy = bytes[at..(at + seed.below(200)).min(bytes.len())].to_vec();
                let to = seed.below(bytes.len());
                drop(bytes.splice(to..to, copy).collect::<Vec<_>>());
            }
        }
        if bytes.is_empty() {
            bytes.push(b'x');
        }
    }
    bytes
}

fn strange(seed: &mut Seed) -> Value {
    match seed.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(1e300),
        5 => json!(""),
        6 => json!("x".repeat(seed.below(5_000))),
        7 => json!([]),
        8 => json!({}),
        9 => json!([[[[[[[[{ "a": null }]]]]]]]]),
        10 => json!(*seed.one_of(PIECES)),
        _ => json!({ "mode": "fixed", "type": "tcp", "port": 0, "name": "a/b" }),
    }
}

/// Changes one place of a document, found by walking down at random.
fn mutate_structure(seed: &mut Seed, value: &mut Value) {
    let stop = seed.below(3) == 0;
    match value {
        Value::Object(map) if !map.is_empty() => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = seed.one_of(&keys).clone();
            if !stop {
                return mutate_structure(seed, map.get_mut(&key).unwrap());
            }
            let taken = map.get(&key).cloned().unwrap();
            match seed.below(4) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(key, strange(seed))),
                2 => drop(map.insert(format!("{key}s"), taken)),
                _ => drop(map.insert((*seed.one_of(PIECES)).to_owned(), taken)),
            }
        }
        Value::Array(list) if !list.is_empty() => {
            let at = seed.below(list.len());
            match (stop, seed.below(3)) {
                (false, _) => mutate_structure(seed, &mut list[at]),
                (true, 0) => drop(list.remove(at)),
                (true, 1) => list.insert(at, strange(seed)),
                (true, _) => list.extend(vec![list[at].clone(); seed.below(300)]),
            }
        }
        other => *other = strange(seed),
    }
}

#[test]
fn malformed_files_are_refused_without_a_trace() {
    let mut seed = Seed::new("malformed_files_are_refused_without_a_trace");
    let daemon = Daemon::start("fuzz");
    let spec = dhow_wire::parse_deployment(VALID, "valid", &|_| None).unwrap();
    let valid = serde_json::to_value(&spec).unwrap();
    let deploy = |body: &[u8]| {
        daemon
            .ask("POST", "/api/v1/deployments", "application/yaml", body)
            .unwrap()
    };
    assert_eq!(
        deploy(VALID.as_bytes()).status,
        200,
        "the file that is mutated is a good one"
    );
    remove_all(&daemon);
    let (mut refused, mut taken) = (0, 0);
    for round in 0..rounds(200, 1_000) {
        let body = match round % 2 {
            0 => mutate_bytes(&mut seed, VALID),
            _ => {
                let mut mutant = valid.clone();
                mutate_structure(&mut seed, &mut mutant);
                serde_json::to_vec(&mutant).unwrap()
            }
        };
        let before = daemon.revision();
        let reply = deploy(&body);
        let shown = || {
            format!(
                "{}\n{}",
                String::from_utf8_lossy(&body),
                String::from_utf8_lossy(&reply.body)
            )
        };
        assert!(reply.status < 500, "{}: {}", reply.status, shown());
        if reply.status == 200 {
            taken += 1;
            remove_all(&daemon);
            continue;
        }
        refused += 1;
        let problem = reply.json();
        assert!(
            problem["code"].is_string() && problem["detail"].is_string(),
            "{}",
            shown()
        );
        assert_eq!(
            daemon.revision(),
            before,
            "a refused file changed the state: {}",
            shown()
        );
    }
    eprintln!("{refused} refused, {taken} taken");
    assert!(
        refused > taken / 4,
        "{refused} refused, {taken} taken: the mutants are too tame"
    );
    daemon.finish();
}

/// Waits until they are gone, so that nothing happens by itself in the next round.
fn remove_all(daemon: &Daemon) {
    crate::support::until("everything is removed", || {
        let listed = daemon.get("/api/v1/deployments").unwrap().json();
        let listed = listed.as_array().unwrap().clone();
        for deployment in &listed {
            let path = format!(
                "/api/v1/deployments/{}",
                deployment["deployment"].as_str().unwrap()
            );
            daemon.ask("DELETE", &path, "application/json", b"").unwrap();
        }
        listed.is_empty().then_some(())
    });
}

//! Services of other deployments: a node finds them when somebody there asks, and keeps them while no server answers.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Stage, on, site};
use crate::support::{Daemon, container, helpers, signal, until};

/// A container finds a service of another deployment that is open to all and has no replica on its node; and what there is
/// not, or not for it, is not there.
pub fn services_of_others_are_found(stage: &mut Stage, layout: &Path, node: u64) {
    let endpoint = |expose: &str| json!([{ "name": "http", "protocol": "tcp", "port": 5433, "target_port": 8000, "expose": expose }]);
    let open = [
        (
            "site",
            on(site(layout, "for all"), "data").with("endpoints", endpoint("cluster")),
        ),
        (
            "own",
            on(site(layout, "for own"), "data").with("endpoints", endpoint("internal")),
        ),
    ];
    stage.server().deploy("open", &open).ends_with(0);
    stage.label(node, "guest");
    let guest = [("guest", on(container(layout, "exec sleep 3600"), "guest"))];
    stage.server().deploy("shop", &guest).ends_with(0);
    let wget = |name: &str| format!("timeout 5 wget -qO- http://{name}:5433/ 2>&1");
    stage.says("guest", node, &wget("site.open"), "for all");
    stage.says("guest", node, &wget("own.open"), "bad address");
    let lookup = |name: &str| format!("timeout 5 nslookup -type=a {name} 2>&1");
    stage.says("guest", node, &lookup("nothing.open.dhow"), "NXDOMAIN");
    stage.says("guest", node, &lookup("example.com.dhow"), "NXDOMAIN");
    assert_eq!(
        known(stage.daemon(node)),
        ["site"],
        "it knows what it uses and nothing else"
    );
    without_servers(stage, node);
    stage.says("guest", node, &lookup("new.open.dhow"), "NXDOMAIN");
    // A daemon that was killed goes on with what the proxy's callers use.
    let mut workers = stage.cluster.workers.iter_mut();
    let worker = workers.find(|worker| worker.node_id == Some(node)).unwrap();
    worker.kill9();
    worker.restart();
    stage.says("guest", node, &wget("site.open"), "for all");
    assert_eq!(known(stage.daemon(node)), ["site"]);
    for deployment in ["open", "shop"] {
        stage.server().dhow(&["rm", deployment]).ends_with(0);
    }
    until("nothing of it runs", || {
        stage.server().replicas().is_empty().then_some(())
    });
}

/// What was known is known to a new proxy too, while no server answers; whatever else there may be is a failure, and not
/// said to be absent.
fn without_servers(stage: &Stage, node: u64) {
    let replicas = stage.server().replicas_of("guest").into_iter();
    let guest = replicas.filter_map(|replica| replica.pid).next().unwrap();
    let (place, folder) = (stage.place(node), &stage.daemon(node).scratch.path);
    let proxy = || match helpers(folder, "proxy")[..] {
        [one] => Some(one),
        _ => None,
    };
    stage.cluster.network().cut(place);
    let before = until("the node has one proxy", proxy);
    signal(before, Signal::KILL);
    until("another one serves", || proxy().filter(|one| *one != before));
    for (name, wanted) in [
        ("site.open.dhow", "Address"),
        ("nothing.open.dhow", "NXDOMAIN"),
        ("other.com.dhow", "NXDOMAIN"),
    ] {
        until(&format!("{name} is answered with {wanted}"), || {
            asked(guest, name).contains(wanted).then_some(())
        });
    }
    // Of a failure nslookup says nothing but that it had no answer.
    let unknown = asked(guest, "new.open.dhow");
    assert!(
        !unknown.contains("NXDOMAIN") && !unknown.contains("Address"),
        "{unknown}"
    );
    stage.cluster.network().heal(place);
}

/// What the name server of a container says.
fn asked(pid: u32, name: &str) -> String {
    let conf = std::fs::read_to_string(format!("/proc/{pid}/root/etc/resolv.conf")).unwrap();
    let server = conf.lines().find_map(|line| line.strip_prefix("nameserver "));
    let asked = Command::new("nsenter")
        .args(["-t", &pid.to_string(), "-n"])
        .args(["busybox", "timeout", "5", "busybox", "nslookup", "-type=a", name])
        .arg(server.expect("a container has a name server").trim())
        .output()
        .unwrap();
    // The first two lines are about the server.
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    said.lines().skip(2).collect::<Vec<_>>().join("\n")
}

/// The services that a node knows.
fn known(daemon: &Daemon) -> Vec<String> {
    let directory = daemon.data_dir().join("network/directory.json");
    let written: Value = serde_json::from_slice(&std::fs::read(directory).unwrap()).unwrap();
    let services = written["services"].as_array().unwrap().iter();
    services
        .map(|service| service["service"].as_str().unwrap().to_owned())
        .collect()
}

//! Requests at a constant rate through each of three nodes, while everything that a user or an accident can do to a
//! service is done: none fails that did not have to. With `DHOW_TEST_LONG=1` at five hundred a second and node.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Alone, Cause, Cluster, Failure, OpenLoad, Replica, Service, Where, free_port, get_from, helpers, rounds,
    signal, until,
};

/// The cluster under load, and what has failed so far that must not.
struct Trial {
    cluster: Cluster,
    load: OpenLoad,
    targets: Vec<SocketAddr>,
    wrong: Vec<(String, Failure)>,
}

fn addr_of(node: usize, port: u16) -> SocketAddr {
    let last = u8::try_from(node + 1).unwrap();
    SocketAddr::from(([127, 0, 0, last], port))
}

impl Trial {
    fn begin() -> Self {
        let mut cluster = Cluster::prepare("steady", 3, Where::Loopback, "raft", &json!({}));
        for (node, daemon) in cluster.nodes.iter_mut().enumerate() {
            let mut config: Value = serde_json::from_str(daemon.config.as_ref().unwrap()).unwrap();
            let (ingress, mesh) = (addr_of(node, 0).ip(), addr_of(node, free_port()));
            config["network"] = json!({ "ingress_addr": ingress, "mesh_addr": mesh });
            daemon.config = Some(config.to_string());
            daemon.restart();
        }
        cluster.until_complete();
        let port = free_port();
        cluster.nodes[0]
            .deploy("shop", &[("web", web("v1", port))])
            .ends_with(0);
        let targets: Vec<_> = (0..3).map(|node| addr_of(node, port)).collect();
        for target in &targets {
            until("every node serves", || {
                get_from(*target, "/").ok().filter(|(status, _)| *status == 200)
            });
        }
        let load = OpenLoad::start(&targets, rounds(40, 500));
        Self {
            cluster,
            load,
            targets,
            wrong: Vec::new(),
        }
    }

    fn port(&self) -> u16 {
        self.targets[0].port()
    }

    /// Does something, lets requests go on, and keeps what failed although it must not.
    fn step(&mut self, name: &str, may_fail: impl Fn(&Failure) -> bool, act: impl FnOnce(&mut Self)) {
        act(self);
        self.load.goes_on(u64::from(rounds(150, 6_000)));
        let failures = self.load.passed(name).failures.into_iter();
        let wrong = failures.filter(|failure| !may_fail(failure));
        self.wrong.extend(wrong.map(|failure| (name.to_owned(), failure)));
    }

    fn dhow(&self, args: &[&str]) {
        let node = &self.cluster.nodes[self.cluster.until_leader()];
        node.dhow(args).ends_with(0);
    }

    fn web(&self) -> Vec<Replica> {
        self.cluster.nodes[self.cluster.until_leader()].replicas_of("web")
    }
}

fn web(version: &str, port: u16) -> Service {
    Service::web(version, port).replicas(4)
}

fn nothing(_: &Failure) -> bool {
    false
}

/// The process of a node's proxy: its number and when it was made do not matter, its command line does.
fn proxy_of(trial: &Trial, node: usize) -> u32 {
    let folder = &trial.cluster.nodes[node].scratch.path;
    until("the node has one proxy", || {
        let found = helpers(folder, "proxy");
        match found[..] {
            [one] => Some(one),
            _ => None,
        }
    })
}

#[test]
fn nothing_fails_whatever_is_done_to_a_service() {
    let alone = Alone::wait();
    let mut trial = Trial::begin();
    trial.step("nothing is done", nothing, |_| {});
    trial.step("rolled out", nothing, |trial| {
        let leader = trial.cluster.until_leader();
        let web = web("v2", trial.port());
        trial.cluster.nodes[leader]
            .deploy("shop", &[("web", web)])
            .ends_with(0);
    });
    trial.step("rolled back", nothing, |trial| {
        trial.dhow(&["rollback", "shop", "--wait"])
    });
    trial.step("scaled to 8", nothing, |trial| {
        trial.dhow(&["scale", "shop/web=8", "--wait"])
    });
    trial.step("scaled to 2", nothing, |trial| {
        trial.dhow(&["scale", "shop/web=2", "--wait"])
    });
    trial.step("scaled to 4", nothing, |trial| {
        trial.dhow(&["scale", "shop/web=4", "--wait"])
    });
    trial.step("a node is drained", nothing, |trial| {
        trial.dhow(&["node", "drain", "2"])
    });
    trial.step("and used again", nothing, |trial| {
        trial.dhow(&["node", "undrain", "2"]);
        trial.dhow(&["scale", "shop/web=6", "--wait"]);
    });
    trial.step("a daemon is killed", nothing, |trial| {
        trial.cluster.nodes[0].kill9();
        trial.load.goes_on(100);
        trial.cluster.nodes[0].restart();
        trial.cluster.until_complete();
    });
    trial.step("a proxy is upgraded", nothing, |trial| {
        let before = proxy_of(trial, 1);
        let other = trial.cluster.nodes[1].scratch.path.join("dhow");
        std::fs::copy(env!("CARGO_BIN_EXE_dhow"), &other).unwrap();
        trial.cluster.nodes[1].binary = other;
        trial.cluster.nodes[1].term();
        trial.cluster.nodes[1].restart();
        until("another proxy serves", || {
            (proxy_of(trial, 1) != before).then_some(())
        });
        trial.cluster.until_complete();
    });
    killed(&mut trial);
    trial.step("the control plane is stopped", nothing, |trial| {
        trial.cluster.nodes.iter_mut().for_each(|node| node.kill9());
        std::thread::sleep(Duration::from_secs(u64::from(rounds(5, 60))));
        trial.cluster.nodes.iter_mut().for_each(|node| node.begin());
        trial.cluster.until_complete();
    });
    silenced(&mut trial);
    let Trial {
        cluster, load, wrong, ..
    } = trial;
    let answered = load.finish();
    eprintln!("{answered} requests were answered");
    assert!(
        wrong.is_empty(),
        "{} requests failed: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
    drop(cluster);
    drop(alone);
}

/// What was on its way through a process that is killed is lost, and nothing else.
fn killed(trial: &mut Trial) {
    let victim = trial
        .web()
        .into_iter()
        .find(|replica| replica.pid.is_some())
        .unwrap();
    let of_a_replica = |failure: &Failure| {
        let is_lost = matches!(&failure.cause, Cause::Status(502, _));
        failure.is_post && is_lost
    };
    trial.step("a replica is killed", of_a_replica, |trial| {
        signal(victim.pid.unwrap(), Signal::KILL);
        until("it is replaced", || {
            let replicas = trial.web();
            let healed = replicas.iter().find(|replica| replica.id == victim.id)?;
            (healed.healthy && healed.pid != victim.pid).then_some(())
        });
    });
    let proxy = proxy_of(trial, 2);
    let target = trial.targets[2];
    let of_a_proxy = |failure: &Failure| match &failure.cause {
        // What its clients had on their way, and what other nodes had on their way to its replicas.
        Cause::Lost(_) => failure.target == target,
        Cause::Status(502, _) => failure.is_post && failure.target != target,
        Cause::Connect(_) | Cause::Status(..) | Cause::Silent | Cause::TooMany => false,
    };
    trial.step("a proxy is killed", of_a_proxy, |trial| {
        signal(proxy, Signal::KILL);
        until("another one serves", || {
            (proxy_of(trial, 2) != proxy).then_some(())
        });
    });
}

/// A node that says nothing any more, as one whose power is gone: its neighbours notice within two seconds.
fn silenced(trial: &mut Trial) {
    let gone = trial.cluster.nodes.len() - 1;
    let target = trial.targets[gone];
    trial.load.leave(target);
    let before = std::cell::Cell::new(Duration::ZERO);
    // On a busy machine what is shown is that it ends.
    let notice = Duration::from_secs(u64::from(rounds(10, 3)));
    let soon = |failure: &Failure| failure.sent_after < before.get() + notice;
    trial.step("a node is powered off", soon, |trial| {
        before.set(trial.load.elapsed());
        trial.cluster.freeze(gone);
        std::thread::sleep(Duration::from_secs(4));
    });
    trial.step("and stays off", nothing, |_| {});
}

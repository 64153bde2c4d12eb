//! The verbs, each with its effect on real processes.

use std::fs;

use serde_json::json;

use crate::support::{Daemon, Scratch, Service, is_alive, until};

#[test]
fn services_are_scaled_restarted_rolled_back_and_removed() {
    let daemon = Daemon::start("verbs");
    let version = |version: &str| {
        let rollout = json!({ "min_healthy": "0s", "max_surge": 4 });
        Service::sleeper()
            .env("VERSION", version)
            .with("rollout", rollout)
            .manual()
    };
    daemon.deploy("shop", &[("web", version("1"))]).ends_with(0);
    let pids = || -> Vec<u32> {
        let replicas = daemon.replicas_of("web");
        let running = replicas.iter().filter(|replica| replica.runs());
        running.filter_map(|replica| replica.pid).collect()
    };
    daemon.dhow(&["scale", "shop/web=3", "--wait"]).ends_with(0);
    let three = pids();
    assert_eq!(three.len(), 3);
    daemon.dhow(&["scale", "shop/web=5", "--wait"]).ends_with(0);
    assert_eq!(pids()[..3], three, "scaling restarts nothing");
    daemon.dhow(&["scale", "shop/web=2", "--wait"]).ends_with(0);
    until("the surplus has ended", || {
        (daemon.workloads().len() == 2).then_some(())
    });
    assert_eq!(pids(), three[..2]);

    daemon.dhow(&["restart", "shop/web", "--wait"]).ends_with(0);
    let restarted = pids();
    assert_eq!(restarted.len(), 2);
    assert!(restarted.iter().all(|pid| !three.contains(pid)), "{restarted:?}");

    daemon.deploy("shop", &[("web", version("2"))]).ends_with(0);
    assert_eq!(versions(&daemon), ["2", "2"]);
    daemon.dhow(&["rollback", "shop", "--wait"]).ends_with(0);
    assert_eq!(versions(&daemon), ["1", "1"]);
    daemon.dhow(&["rollback", "shop", "--to", "99"]).ends_with(4);

    let last = pids();
    daemon.dhow(&["rm", "shop", "--wait"]).ends_with(0);
    assert!(
        last.iter().all(|pid| !is_alive(*pid)),
        "they run after `rm --wait`"
    );
    daemon.dhow(&["status", "shop"]).ends_with(4);
    daemon.finish();
}

#[test]
fn what_is_stopped_stays_so_until_it_is_started() {
    let mut daemon = Daemon::start("stop");
    daemon
        .deploy("shop", &[("web", Service::sleeper().manual())])
        .ends_with(0);
    daemon.dhow(&["scale", "shop/web=2", "--wait"]).ends_with(0);
    let before = daemon.workloads();
    assert_eq!(before.len(), 2);

    let said = daemon.dhow(&["stop", "shop/web", "--wait"]).ends_with(0).stderr;
    assert!(said.contains("`dhow start shop/web` runs it again"), "{said}");
    assert!(
        before.iter().all(|pid| !is_alive(*pid)),
        "they run after `stop --wait`"
    );
    let said = daemon.dhow(&["stop", "shop"]).ends_with(0).stderr;
    assert!(said.contains("shop is stopped already"), "{said}");

    // Neither the death of the daemon nor a count runs it again.
    daemon.kill9();
    daemon.restart();
    daemon.dhow(&["scale", "shop/web=3", "--wait"]).ends_with(0);
    let status = daemon.dhow(&["status", "shop", "--json"]).json();
    assert_eq!(status["state"], "stopped");
    assert_eq!(status["services"][0]["stopped"]["replicas"], 3);
    assert_eq!(status["services"][0]["desired"], 0);
    assert!(daemon.workloads().is_empty());
    let why = daemon.dhow(&["explain", "shop/web"]).ends_with(0).stdout;
    assert!(why.contains("shop/web was stopped by "), "{why}");

    daemon.dhow(&["start", "shop", "--wait"]).ends_with(0);
    assert_eq!(daemon.workloads().len(), 3);
    assert_eq!(daemon.dhow(&["status", "shop", "--json"]).json()["revision"], 1);

    // The same file again is one that is to run.
    daemon.dhow(&["stop", "shop", "--wait"]).ends_with(0);
    let file = daemon.deployment("shop", &[("web", Service::sleeper().manual())]);
    daemon.dhow(&["deploy", &file]).ends_with(0);
    assert_eq!(daemon.workloads().len(), 3);
    daemon.dhow(&["stop", "nothing"]).ends_with(4);
    daemon.finish();
}

#[test]
fn a_hangup_reads_the_configuration_again_and_ends_nothing() {
    let mut daemon = Daemon::at(Scratch::new("hangup"));
    let config = format!("api_addr: 127.0.0.1:{}\n", daemon.api_port);
    daemon.config = Some(config.clone());
    daemon.restart();
    let tells = |file: &str, words: &str| {
        daemon.file("dhow.yaml", file);
        daemon.hang_up();
        until("the daemon tells it", || {
            daemon.said().contains(words).then_some(())
        });
    };
    tells(
        &format!("{config}log: {{ level: debug }}\n"),
        "the configuration was read again log_level=\"debug\"",
    );
    tells(&format!("{config}labels: {{ zone: a }}\n"), "settings=\"labels\"");
    tells(&format!("{config}bogus: 1\n"), "`bogus` is not a field");
    daemon.dhow(&["ps"]).ends_with(0);
    daemon.finish();
}

/// What the running processes were started with.
fn versions(daemon: &Daemon) -> Vec<String> {
    let replicas = daemon.replicas_of("web");
    let running = replicas.iter().filter(|replica| replica.runs());
    let version = |pid: u32| {
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        let mut pairs = environment.split('\0').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == "VERSION").unwrap().1.to_owned()
    };
    running.map(|replica| version(replica.pid.unwrap())).collect()
}

#[test]
fn jobs_end_and_dependents_wait() {
    let daemon = Daemon::start("jobs");
    let folder = daemon.scratch.path.to_str().unwrap().to_owned();
    let order = format!("{folder}/order");
    let ready = format!("{folder}/ready");
    let says = |name: &str| format!("echo {name} >> {order}; exec sleep 3600");
    let health = json!({
        "check": { "type": "command", "command": ["test", "-e", ready] },
        "interval": "100ms", "start_grace": "60s",
    });
    let services = [
        ("db", Service::shell(&says("db")).with("health", health)),
        (
            "web",
            Service::shell(&says("web"))
                .with("depends", json!([{ "service": "db", "condition": "healthy" }])),
        ),
    ];
    let file = daemon.deployment("shop", &services);
    daemon.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    until("the first runs", || {
        daemon.replicas_of("db").iter().any(|r| r.runs()).then_some(())
    });
    let waits = daemon.dhow(&["explain", "shop/web"]).ends_with(0).stdout;
    assert!(waits.contains("waits for `db` to be healthy"), "{waits}");
    assert_eq!(fs::read_to_string(&order).unwrap(), "db\n");
    fs::write(&ready, "").unwrap();
    daemon.dhow(&["deploy", &file]).ends_with(0);
    assert_eq!(fs::read_to_string(&order).unwrap(), "db\nweb\n");

    let job = Service::shell(&format!("echo done >> {folder}/job; exit 0")).with("rtype", json!("job"));
    daemon.deploy("work", &[("once", job)]).ends_with(0);
    let all = daemon.dhow(&["ps", "work", "--all", "--json"]).json();
    let ended = all.as_array().unwrap().iter();
    let ended: Vec<_> = ended.filter(|replica| replica["service"] == "once").collect();
    assert_eq!(ended[0]["exit_code"], 0, "a deploy waits for its job: {all}");
    assert_eq!(
        fs::read_to_string(format!("{folder}/job")).unwrap(),
        "done\n",
        "it ran once"
    );

    // One that takes its time: who waits too short hears so, and the job goes on to its end.
    let go = format!("{folder}/go");
    let slow = format!("until test -e {go}; do sleep 0.05; done; exit 3");
    let slow = Service::shell(&slow)
        .with("rtype", json!("job"))
        .with("restart", json!({ "policy": "never" }));
    let file = daemon.deployment("slow", &[("once", slow)]);
    daemon.dhow(&["deploy", &file, "--timeout", "1s"]).ends_with(1);
    let status = daemon.dhow(&["status", "slow", "--json"]).json();
    assert_eq!(
        (&status["state"], &status["revision"]),
        (&json!("deploying"), &json!(1))
    );
    fs::write(&go, "").unwrap();
    let failed = daemon.dhow(&["deploy", &file]).ends_with(1);
    assert!(failed.stderr.contains("exited with 3"), "{}", failed.stderr);
    let history = daemon.dhow(&["history", "slow"]).ends_with(0).stdout;
    assert!(!history.contains("good"), "{history}");
    daemon.finish();
}

#[test]
fn services_wait_until_jobs_complete() {
    let daemon = Daemon::start("completed");
    let folder = daemon.scratch.path.to_str().unwrap().to_owned();
    let order = format!("{folder}/order");
    let services = |exit: u8, version: &str| {
        let work = format!(
            "until test -e {folder}/go; do sleep 0.05; done; echo work {version} >> {order}; echo sorry; exit {exit}"
        );
        [
            (
                "migrate",
                Service::shell(&work)
                    .with("rtype", json!("job"))
                    .with("restart", json!({ "policy": "never" })),
            ),
            (
                "web",
                Service::shell(&format!("echo web {version} >> {order}; exec sleep 3600")).with(
                    "depends",
                    json!([{ "service": "migrate", "condition": "completed" }]),
                ),
            ),
        ]
    };
    let file = daemon.deployment("shop", &services(0, "1"));
    daemon.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    until("the job is healthy and not done", || {
        daemon
            .replicas_of("migrate")
            .iter()
            .any(|r| r.runs())
            .then_some(())
    });
    let waits = daemon.dhow(&["explain", "shop/web"]).ends_with(0).stdout;
    assert!(waits.contains("waits for `migrate` to complete"), "{waits}");
    fs::write(format!("{folder}/go"), "").unwrap();
    daemon.dhow(&["deploy", &file]).ends_with(0);
    assert_eq!(fs::read_to_string(&order).unwrap(), "work 1\nweb 1\n");

    // The same job is done, whatever else changes.
    let [(_, job), _] = services(0, "1");
    let [_, (_, web)] = services(0, "2");
    daemon
        .deploy("shop", &[("migrate", job), ("web", web)])
        .ends_with(0);
    assert_eq!(fs::read_to_string(&order).unwrap(), "work 1\nweb 1\nweb 2\n");

    // One that fails for good fails the deployment, with what it said, and nobody starts after it.
    let failed = daemon.deploy("shop", &services(3, "3")).ends_with(1).stderr;
    assert!(failed.contains("exited with 3"), "{failed}");
    assert!(failed.contains("sorry"), "{failed}");
    assert!(!fs::read_to_string(&order).unwrap().contains("web 3"));
    daemon.finish();
}

#[test]
fn wrong_usage_changes_nothing() {
    let mut daemon = Daemon::start("usage");
    for (args, code) in [
        (vec!["frobnicate"], 2),
        (vec!["deploy"], 2),
        (vec!["deploy", "--nope", "x.yaml"], 2),
        (vec!["deploy", "not-there.yaml"], 2),
        (vec!["scale", "shop/web"], 2),
        (vec!["scale", "shop/web=-1"], 2),
        (vec!["exec", "shop/web-default-0"], 2),
        (vec!["logs", "shop", "-n", "many"], 2),
        (vec!["status", "nobody"], 4),
        (vec!["logs", "nobody"], 4),
        (vec!["rm", "nobody"], 4),
        (vec!["restart", "nobody"], 4),
        (vec!["history", "nobody"], 4),
        (vec!["explain", "nobody/web"], 4),
        (vec!["scale", "nobody/web=1"], 4),
        (vec!["--host", "unix:///not/there.sock", "ps"], 3),
    ] {
        let answer = daemon.dhow(&args).ends_with(code);
        assert_eq!(answer.stdout, "", "{args:?}");
        assert!(!answer.stderr.is_empty(), "{args:?}");
    }
    let before = daemon.revision();
    let typo = daemon.file(
        "typo.yaml",
        "version: v1\ndeployment: shop\nservices:\n  web: { runtime: process, comand: [a] }\n",
    );
    daemon
        .dhow(&["deploy", &typo])
        .ends_with(2)
        .says(&["typo.yaml", "comand", "command"]);
    assert_eq!(daemon.revision(), before);

    let second = daemon.command().output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(
        said.contains("another daemon") && said.contains(&daemon.pid().to_string()),
        "{said}"
    );
    assert_eq!(daemon.revision(), before);
    assert_eq!(daemon.term().code(), Some(0));
    daemon.dhow(&["ps"]).ends_with(3);
    daemon.nothing_is_left();
}

//! Jobs, schedules and steps before a program, with real programs and a daemon that is killed.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::support::{Daemon, Service, until};

fn runs(daemon: &Daemon) -> Vec<Value> {
    let listed = daemon
        .dhow(&["cron", "ls", "clock/tick", "--json"])
        .ends_with(0)
        .json();
    listed[0]["runs"].as_array().unwrap().clone()
}

fn lines(path: &str) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Each run that is kept has its log, through any daemon.
fn check_logs(daemon: &Daemon, last: u64) {
    for run in [1, last] {
        let (index, run) = (run - 1, run.to_string());
        let log = daemon
            .dhow(&["logs", "clock/tick", "--run", &run, "--no-prefix"])
            .ends_with(0);
        assert_eq!(log.stdout, format!("this is run {index}\n"));
    }
    let unknown = (last + 1).to_string();
    daemon
        .dhow(&["logs", "clock/tick", "--run", &unknown])
        .ends_with(4)
        .says(&["`clock/tick` has no run", "dhow cron ls"]);
}

/// A run that somebody asks for, and when the schedule comes next.
fn check_by_hand(daemon: &Daemon) {
    daemon.dhow(&["cron", "run", "clock/tick", "--wait"]).ends_with(0);
    let next = daemon
        .dhow(&["cron", "next", "clock/tick", "-n", "2"])
        .ends_with(0)
        .stdout;
    let is_new_year = next.contains("-01-01 00:00:00 CET") && next.contains("-12-31 23:00:00 UTC");
    assert!(is_new_year, "{next}");
    daemon.dhow(&["cron", "run", "clock/tock"]).ends_with(4);
}

#[test]
fn each_moment_of_a_schedule_has_one_run_whatever_happens_to_the_daemon() {
    let mut daemon = Daemon::start("cron");
    let fired = format!("{}/fired", daemon.scratch.path.display());
    let tick = |schedule: &str| {
        Service::shell(&format!(
            "echo this is run $DHOW_REPLICA; echo $DHOW_REPLICA >> {fired}"
        ))
        .with("rtype", json!("cron"))
        .with("schedule", json!(schedule))
        .with("zone", json!("Europe/Berlin"))
        .with("job", json!({ "keep": 100 }))
    };
    daemon
        .deploy("clock", &[("tick", tick("* * * * * *"))])
        .ends_with(0);
    for _ in 0..3 {
        let before = runs(&daemon).len();
        until("it runs again", || {
            (runs(&daemon).len() >= before + 2).then_some(())
        });
        daemon.kill9();
        daemon.restart();
    }
    daemon
        .deploy("clock", &[("tick", tick("0 0 1 1 *"))])
        .ends_with(0);
    let all = until("every run has ended", || {
        let runs = runs(&daemon);
        runs.iter().all(|run| run["state"] == "done").then_some(runs)
    });
    let due: BTreeSet<i64> = all
        .iter()
        .filter_map(|run| run["due_unix_secs"].as_i64())
        .collect();
    assert_eq!(due.len(), all.len(), "two runs are for one moment: {all:?}");
    let began = lines(&fired);
    let once: BTreeSet<&String> = began.iter().collect();
    assert_eq!(
        (began.len(), once.len()),
        (all.len(), all.len()),
        "{began:?} of {all:?}"
    );

    check_logs(&daemon, all[0]["run"].as_u64().unwrap());
    check_by_hand(&daemon);
    assert_eq!(lines(&fired).len(), all.len() + 1);
    daemon.finish();
}

#[test]
fn a_job_keeps_to_its_parallelism_and_its_deadline() {
    let daemon = Daemon::start("counts");
    let folder = daemon.scratch.path.to_str().unwrap().to_owned();
    fs::create_dir(format!("{folder}/busy")).unwrap();
    let work = format!(
        "cd {folder}; touch busy/$DHOW_REPLICA; ls busy | wc -l >> seen; sleep 0.3; rm busy/$DHOW_REPLICA; echo $DHOW_REPLICA >> done"
    );
    let job = Service::shell(&work)
        .with("rtype", json!("job"))
        .with("job", json!({ "completions": 6, "parallelism": 2 }));
    daemon.deploy("work", &[("cut", job)]).ends_with(0);
    let seen: Vec<u32> = lines(&format!("{folder}/seen"))
        .iter()
        .map(|line| line.trim().parse().unwrap())
        .collect();
    assert_eq!(seen.len(), 6);
    assert!(seen.iter().all(|busy| *busy <= 2), "{seen:?}");
    let mut done = lines(&format!("{folder}/done"));
    done.sort();
    assert_eq!(done, ["0", "1", "2", "3", "4", "5"]);

    let endless = Service::sleeper()
        .with("rtype", json!("job"))
        .with("job", json!({ "deadline": "1s" }));
    let said = daemon.deploy("late", &[("import", endless)]).ends_with(1).stderr;
    assert!(
        said.contains("`import` was not done by its deadline, 1s after it began"),
        "{said}"
    );
    until("nothing of it runs", || {
        let left = daemon.replicas_of("import");
        left.iter().all(|replica| !replica.runs()).then_some(())
    });
    daemon.finish();
}

#[test]
fn steps_run_before_the_program_and_again_after_a_daemon_that_died() {
    let mut daemon = Daemon::start("steps");
    let folder = daemon.scratch.path.to_str().unwrap().to_owned();
    let order = format!("{folder}/order");
    let step = |script: String| json!({ "command": ["sh", "-c", script] });
    let service = |second: &str| {
        Service::shell(&format!("echo program >> {order}; exec sleep 3600")).with(
            "init",
            json!([step(format!("echo first >> {order}")), step(second.to_owned())]),
        )
    };
    let second = format!(
        "echo begins $NAME >> {order}; until test -e {folder}/go; do sleep 0.05; done; echo second >> {order}"
    );
    let file = daemon.deployment("shop", &[("web", service(&second).env("NAME", "here"))]);
    daemon.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    until("its second step runs", || {
        lines(&order).contains(&"begins here".to_owned()).then_some(())
    });
    until("it is starting, and no program runs", || {
        let replicas = daemon.replicas_of("web");
        let is_starting = replicas.iter().any(|replica| replica.state == "starting");
        is_starting.then_some(())
    });
    daemon.kill9();
    fs::write(format!("{folder}/go"), "").unwrap();
    daemon.restart();
    daemon.dhow(&["deploy", &file]).ends_with(0);
    let told = lines(&order);
    assert_eq!(
        told.iter().filter(|line| *line == "program").count(),
        1,
        "{told:?}"
    );
    assert_eq!(told.last().unwrap(), "program", "{told:?}");
    assert_eq!(told[told.len() - 2], "second", "{told:?}");

    // A step that fails is the failure of its replica, with what it said; the version before goes on.
    let failing = daemon.deploy("shop", &[("web", service("echo no such table; exit 3"))]);
    let said = failing.ends_with(1).stderr;
    assert!(said.contains("its step `2` failed: exit code 3"), "{said}");
    assert!(said.contains("no such table"), "{said}");
    assert_eq!(lines(&order).iter().filter(|line| *line == "program").count(), 1);
    daemon.finish();
}

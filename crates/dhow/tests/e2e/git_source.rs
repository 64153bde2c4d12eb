//! A git repository is followed by the real binary: a push is deployed, a bad commit is taken back and not applied again, a
//! rewritten history waits for a yes, and people have the last word only where they suspend the source.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::git_server::GitServer;
use crate::support::{Daemon, PATIENCE, Service, ask_with, deployment, until};

/// A repository with a work tree, whose publisher signs what is in `deploy`.
struct Publisher<'a> {
    daemon: &'a Daemon,
    work: PathBuf,
    version: std::cell::Cell<u64>,
}

impl<'a> Publisher<'a> {
    fn new(daemon: &'a Daemon) -> Self {
        let work = daemon.scratch.path.join("repositories/shop.git");
        fs::create_dir_all(work.join("deploy")).unwrap();
        let publisher = Self {
            daemon,
            work,
            version: std::cell::Cell::new(0),
        };
        publisher.git(&["init", "--quiet", "--initial-branch=main"]);
        publisher
    }

    fn git(&self, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
            .args(args)
            .current_dir(&self.work)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Signs these deployments and commits them.
    fn publish(&self, services: &[(&str, Service)]) -> String {
        let dir = self.work.join("deploy");
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if !path.ends_with("index.json") {
                fs::remove_file(path).unwrap();
            }
        }
        for (name, service) in services {
            let file = deployment(&self.daemon.mark, name, &[("it", service.clone())]);
            fs::write(dir.join(format!("{name}.json")), file).unwrap();
        }
        self.version.set(self.version.get() + 1);
        let (dir, version) = (dir.to_str().unwrap(), self.version.get().to_string());
        let sign = [
            "source",
            "sign",
            dir,
            "--key-file",
            "publisher.key",
            "--version",
            &version,
        ];
        self.daemon.dhow(&sign).ends_with(0);
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "-m", "publish"]);
        self.git(&["rev-parse", "HEAD"])
    }
}

#[test]
fn a_repository_is_followed() {
    if Command::new("git").arg("--version").output().is_err() {
        println!("SKIPPED: there is no git on this host");
        return;
    }
    let daemon = Daemon::start("git");
    let made = daemon.dhow(&["source", "keygen", "publisher.key"]).ends_with(0);
    let key = made.stdout.trim();
    let publisher = Publisher::new(&daemon);
    let first = publisher.publish(&[("shop", Service::sleeper())]);
    let server = GitServer::start(publisher.work.parent().unwrap());
    let url = format!("{}/shop.git", server.url);
    let add = [
        "source", "add", "shop", &url, "--git", "--ref", "main", "--path", "deploy",
    ];
    daemon.dhow(&[&add[..], &["--key", key]].concat()).ends_with(0);
    daemon.dhow(&["source", "sync", "shop"]).ends_with(0);
    until("what was pushed runs", || {
        (daemon.workloads().len() == 1).then_some(())
    });
    let status = daemon.dhow(&["status", "shop", "--json"]).ends_with(0).json();
    assert_eq!(status["source"]["commit"], first.as_str());
    daemon
        .dhow(&["history", "shop"])
        .ends_with(0)
        .shows(&[&format!("at {}", &first[..12])]);

    wins(&daemon);
    rewritten(&daemon, &publisher);
    taken_back(&daemon, &publisher);
    called(&daemon, &publisher, &url, key);

    // What would remove most of it waits as well.
    publisher.publish(&[("wiki", Service::sleeper())]);
    daemon
        .dhow(&["source", "sync", "shop"])
        .ends_with(4)
        .says(&["would remove 2 of 3 deployments (blog, shop)"]);
    assert_eq!(daemon.workloads().len(), 3);
    daemon.dhow(&["source", "rm", "shop"]).ends_with(0);
    for name in ["blog", "shop", "wiki"] {
        daemon.dhow(&["rm", name, "--wait"]).ends_with(0);
    }
    daemon.finish();
}

/// A call of the webhook with the secret's token brings what was pushed, and one without it nothing.
fn called(daemon: &Daemon, publisher: &Publisher<'_>, url: &str, key: &str) {
    daemon
        .dhow_with_stdin(&["secret", "set", "hook"], b"s3cret\n")
        .ends_with(0);
    let add = [
        "source", "add", "shop", url, "--git", "--ref", "main", "--path", "deploy", "--key", key,
    ];
    daemon
        .dhow(&[&add[..], &["--hook-secret", "hook"]].concat())
        .ends_with(0);
    // The poll has looked with the new settings or will; a look that is over does not see what comes now.
    daemon.dhow(&["source", "sync", "shop"]).ends_with(0);
    let sleeper = Service::sleeper;
    publisher.publish(&[("shop", sleeper()), ("blog", sleeper()), ("wiki", sleeper())]);
    let call = |headers: &[(&str, &str)]| {
        let path = "/api/v1/sources/shop/hook";
        let body = br#"{"ref": "refs/heads/evil", "repository": "https://evil.example"}"#;
        let headers = [&[("Content-Type", "application/json")], headers].concat();
        let reply = ask_with(&daemon.socket(), "POST", path, &headers, body, PATIENCE);
        reply.unwrap().status
    };
    assert_eq!(call(&[]), 401);
    assert_eq!(call(&[("X-Gitlab-Token", "other")]), 401);
    assert_eq!(call(&[("X-Hub-Signature-256", "sha256=00")]), 401);
    daemon
        .dhow(&["status", "shop"])
        .ends_with(0)
        .shows(&["a call of the webhook of the source shop was refused at"]);
    daemon.dhow(&["secret", "rm", "hook"]).ends_with(4);
    assert_eq!(call(&[("X-Gitlab-Token", "s3cret")]), 202);
    until("what was pushed is in force soon after the call", || {
        let status = daemon.dhow(&["status", "shop", "--json"]).ends_with(0).json();
        (status["state"] == "stable").then_some(())
    });
}

/// The source wins, unless it is suspended.
fn wins(daemon: &Daemon) {
    daemon
        .dhow(&["scale", "shop/it=2"])
        .ends_with(4)
        .says(&["comes from the source `shop`", "--suspend 1h"]);
    daemon
        .dhow(&["rm", "shop"])
        .ends_with(4)
        .says(&["dhow source rm shop"]);
    daemon
        .dhow(&["scale", "shop/it=2", "--suspend", "1h"])
        .ends_with(0);
    until("the hand's word counts", || {
        (daemon.workloads().len() == 2).then_some(())
    });
    daemon
        .dhow(&["status", "shop"])
        .ends_with(0)
        .shows(&["the source shop is suspended here until"]);
    daemon
        .dhow(&["scale", "shop/it=1", "--suspend", "1s"])
        .ends_with(0);
    until("the source's word counts again by itself", || {
        let status = daemon.dhow(&["status", "shop", "--json"]).ends_with(0).json();
        status["source"]["suspended_until_unix_secs"]
            .is_null()
            .then_some(())
    });
}

/// A forced push waits for a yes, and nothing is changed until then.
fn rewritten(daemon: &Daemon, publisher: &Publisher<'_>) {
    publisher.git(&["commit", "--quiet", "--amend", "-m", "rewritten"]);
    let forced = publisher.publish(&[("shop", Service::sleeper()), ("blog", Service::sleeper())]);
    daemon
        .dhow(&["source", "sync", "shop"])
        .ends_with(4)
        .says(&["was rewritten", "dhow source accept"]);
    daemon
        .dhow(&["status", "shop"])
        .ends_with(0)
        .shows(&["the source shop brings nothing", "was rewritten"]);
    assert_eq!(daemon.workloads().len(), 1);
    daemon
        .dhow(&["source", "accept", "shop", "--version", "9"])
        .ends_with(4);
    daemon.dhow(&["source", "accept", "shop"]).ends_with(0);
    until("what was accepted runs", || {
        (daemon.workloads().len() == 2).then_some(())
    });
    let listed = daemon.dhow(&["source", "ls", "--json"]).ends_with(0).json();
    assert_eq!(listed[0]["commit"], forced.as_str());
}

/// A bad commit is taken back, and neither it nor the same in the next one is applied again.
fn taken_back(daemon: &Daemon, publisher: &Publisher<'_>) {
    let bad = Service::shell("exit 1");
    publisher.publish(&[("shop", bad.clone()), ("blog", Service::sleeper())]);
    daemon.dhow(&["source", "sync", "shop"]).ends_with(0);
    until("it is taken back", || {
        let status = daemon.dhow(&["status", "shop", "--json"]).ends_with(0).json();
        (status["state"] == "reverted").then_some(())
    });
    let reverted = daemon.dhow(&["status", "shop", "--json"]).ends_with(0).json();
    publisher.publish(&[
        ("shop", bad),
        ("blog", Service::sleeper()),
        ("wiki", Service::sleeper()),
    ]);
    daemon.dhow(&["source", "sync", "shop"]).ends_with(0);
    until("the rest of the next one runs", || {
        (daemon.workloads().len() == 3).then_some(())
    });
    let status = daemon.dhow(&["status", "shop", "--json"]).ends_with(0).json();
    assert_eq!(
        (&status["state"], &status["revision"]),
        (&reverted["state"], &reverted["revision"])
    );
}

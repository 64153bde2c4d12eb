//! A directory of signed deployment files is followed by the real binary, from key to running processes.

use std::fs;
use std::path::Path;

use crate::support::{Daemon, Service, deployment, until};

fn put(daemon: &Daemon, dir: &Path, names: &[&str]) {
    let services = [("it", Service::sleeper())];
    let _ = fs::remove_dir_all(dir);
    fs::create_dir(dir).unwrap();
    for name in names {
        let file = deployment(&daemon.mark, name, &services);
        fs::write(dir.join(format!("{name}.json")), file).unwrap();
    }
    // Belongs to the tool that brought the files, not to the set.
    fs::write(dir.join(".fetched"), "now").unwrap();
}

#[test]
fn what_is_signed_runs_and_nothing_else() {
    let daemon = Daemon::start("sources");
    let dir = daemon.scratch.path.join("shop");
    let path = dir.to_str().unwrap();
    put(&daemon, &dir, &["shop", "blog"]);
    let made = daemon
        .dhow(&["source", "keygen", "publisher.key"])
        .ends_with(0)
        .stdout;
    let key = made.trim();
    daemon.dhow(&["source", "keygen", "publisher.key"]).ends_with(1);
    let sign = ["source", "sign", path, "--key-file", "publisher.key"];
    daemon.dhow(&sign).ends_with(0);

    daemon
        .dhow(&["source", "add", "shop", "relative", "--key", key])
        .ends_with(2);
    daemon
        .dhow(&["source", "add", "shop", path, "--key", "abc"])
        .ends_with(2);
    daemon
        .dhow(&["source", "add", "shop", path, "--key", key])
        .ends_with(0);
    daemon.dhow(&["source", "sync", "shop"]).ends_with(0);
    until("both deployments run", || {
        (daemon.workloads().len() == 2).then_some(())
    });
    let listed = daemon.dhow(&["source", "ls", "--json"]).ends_with(0).json();
    assert_eq!(listed[0]["deployments"], serde_json::json!(["blog", "shop"]));

    // Changed after signing.
    let file = dir.join("shop.json");
    let signed = fs::read_to_string(&file).unwrap();
    fs::write(&file, signed.replace("3600", "3601")).unwrap();
    fs::write(
        dir.join("index.json"),
        fs::read_to_string(dir.join("index.json")).unwrap() + " ",
    )
    .unwrap();
    let refused = daemon.dhow(&["source", "sync", "shop"]).ends_with(4);
    assert!(
        refused.stderr.contains("not signed with a key"),
        "{}",
        refused.stderr
    );
    assert_eq!(daemon.workloads().len(), 2);

    // The next set lacks one of them.
    put(&daemon, &dir, &["shop"]);
    // Its directory is new and does not say which version was before; in one second it would be the same.
    let next = [&sign[..], &["--version", "99999999999"]].concat();
    daemon.dhow(&next).ends_with(0);
    until("the poll takes it by itself", || {
        (daemon.workloads().len() == 1).then_some(())
    });
    daemon.dhow(&["source", "rm", "shop"]).ends_with(0);
    daemon.dhow(&["source", "rm", "shop"]).ends_with(4);
    daemon.dhow(&["source", "sync", "shop"]).ends_with(4);
    assert_eq!(daemon.workloads().len(), 1, "what it brought stays");
    daemon.dhow(&["rm", "shop", "--wait"]).ends_with(0);
    daemon.finish();
}

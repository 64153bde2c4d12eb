//! From another machine: an address and a token are all that is needed, and nobody else is trusted with it.

use dhow_server::net::node_door::ScriptedExec;
use dhow_wire::api::ExecExit;

use crate::daemon::Daemon;

const SHOP: &str = "\
version: v1
deployment: shop
services:
  web:
    image: nginx:1
    scale: { mode: fixed, replicas: 1 }
    rollout: { min_healthy: 0s }
";

/// A token stands on stdout alone.
fn token(daemon: &Daemon, args: &[&str]) -> String {
    let args = [&["token", "create"], args].concat();
    let made = daemon.run(&args).ends_with(0);
    let (word, rest) = made.stdout.split_once('\n').unwrap();
    assert!(word.starts_with("dhow1.") && rest.is_empty(), "{}", made.stdout);
    assert!(!made.stderr.contains(word), "{}", made.stderr);
    word.to_owned()
}

#[test]
fn an_admin_deploys_and_a_reader_looks() {
    let daemon = Daemon::new("afar");
    let admin = token(&daemon, &["--role", "admin", "--name", "alice"]);
    let reader = token(&daemon, &["--role", "read", "--ttl", "30d"]);
    let file = daemon.file("shop.yaml", SHOP);
    let refused = daemon.run_from_afar(&reader, &["deploy", &file]).ends_with(1);
    assert!(refused.stderr.contains("may only read"), "{}", refused.stderr);
    daemon
        .run_from_afar(&admin, &["deploy", &file, "--timeout", "20s"])
        .ends_with(0);
    let seen = daemon
        .run_from_afar(&reader, &["status", "shop", "--json"])
        .json();
    assert_eq!(seen["state"], "stable");
    let history = daemon
        .run_from_afar(&reader, &["history", "shop", "--json"])
        .json();
    assert_eq!(history[0]["author"], "token alice");
    daemon.door.set_exec(ScriptedExec {
        stdout: b"inside".to_vec(),
        exit: ExecExit::Code(3),
    });
    let command = ["exec", "shop/web-default-0", "--", "sh"];
    assert_eq!(
        daemon.run_from_afar(&admin, &command).ends_with(3).stdout,
        "inside"
    );
    daemon.run_from_afar(&reader, &command).ends_with(1);
}

#[test]
fn tokens_are_listed_and_revoked() {
    let daemon = Daemon::new("tokens");
    let empty = daemon.run(&["token", "ls"]).ends_with(0);
    assert!(empty.stderr.contains("no tokens"), "{}", empty.stderr);
    let admin = token(&daemon, &["--role", "admin"]);
    let lasting = token(&daemon, &["--role", "read", "--name", "ci", "--ttl", "30d"]);
    let secret = |word: &str| word.split('.').nth(2).unwrap().to_owned();
    let listed = daemon.run(&["token", "ls"]).ends_with(0).stdout;
    for (row, role, expires) in [("admin", "admin", "never"), ("ci", "read", " in ")] {
        let row = listed
            .lines()
            .find(|line| line.contains(&format!(" {row} ")))
            .unwrap();
        assert!(row.contains(role) && row.contains(expires), "{row}");
    }
    assert!(!listed.contains(&secret(&admin)) && !listed.contains(&secret(&lasting)));
    let id = admin.split('.').nth(1).unwrap();
    let all = daemon.run_from_afar(&lasting, &["token", "ls", "--json"]).json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    daemon.run(&["token", "revoke", id]).ends_with(0);
    daemon.run(&["token", "revoke", id]).ends_with(4);
    let refused = daemon.run_from_afar(&admin, &["node", "ls"]).ends_with(1);
    assert!(
        refused.stderr.contains("does not know the token"),
        "{}",
        refused.stderr
    );
    daemon.run(&["token", "create", "--role", "root"]).ends_with(2);
    daemon
        .run(&["token", "create", "--role", "read", "--ttl", "5ms"])
        .ends_with(2);
    daemon
        .run(&["token", "create", "--role", "read", "--name", "a b"])
        .ends_with(2);
}

#[test]
fn nobody_else_is_shown_the_token() {
    let (daemon, other) = (Daemon::new("own"), Daemon::new("other"));
    let own = token(&daemon, &["--role", "admin"]);
    let refused = other.run_from_afar(&own, &["node", "ls"]).ends_with(3);
    assert!(refused.stderr.contains("another cluster"), "{}", refused.stderr);
    let host = format!("https://{}", daemon.addr);
    let without = daemon
        .run_in(&[("DHOW_HOST", &host)], &["node", "ls"], b"")
        .ends_with(3);
    assert!(without.stderr.contains("DHOW_TOKEN"), "{}", without.stderr);
    let cut = daemon
        .run_from_afar(&own[..own.len() - 5], &["node", "ls"])
        .ends_with(2);
    assert!(cut.stderr.contains("malformed"), "{}", cut.stderr);
    let open = [
        ("DHOW_HOST", "http://192.0.2.1:3669"),
        ("DHOW_TOKEN", own.as_str()),
    ];
    let refused = daemon.run_in(&open, &["node", "ls"], b"").ends_with(2);
    assert!(refused.stderr.contains("in clear"), "{}", refused.stderr);
    for answer in [cut, refused, without] {
        assert!(!answer.stderr.contains(&own[..30]), "{}", answer.stderr);
    }
}

#[test]
fn a_key_is_made_without_a_daemon() {
    let daemon = Daemon::new("keygen");
    let keygen = || daemon.run_in(&[], &["cluster", "keygen"], b"").ends_with(0);
    let (one, two) = (keygen(), keygen());
    assert!(one.stdout.starts_with("dhowkey1.") && one.stdout.lines().count() == 1);
    assert!(one.stdout != two.stdout && one.stderr.is_empty());
    dhow_server::net::keys::ClusterKey::parse(&one.stdout).unwrap();
    let with_host = ["--host", "unix:///nowhere", "cluster", "keygen"];
    daemon.run_in(&[], &with_host, b"").ends_with(2);
}

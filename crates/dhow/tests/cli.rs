//! The real binary, as a shell sees it: exit codes, stdout, stderr, and that checking touches nothing.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{name}"));
        // What an aborted run has left would only confuse this one.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().into()
    }

    /// `dhow plan` with the data directory of no daemon.
    fn plan(&self, args: &[&str]) -> Answer {
        let mut command = dhow(&["plan"]);
        command.args(args).env("DHOW_DATA_DIR", self.0.join("no-daemon"));
        answer(command.output().unwrap())
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
}

fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code().expect("ended by a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The binary with an environment of its own.
fn dhow(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dhow"));
    command
        .args(args)
        .env_clear()
        .env("HOME", "/home/nobody")
        .stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Answer {
    answer(dhow(args).output().unwrap())
}

const GOOD: &str = "version: v1\ndeployment: shop\nservices:\n  web: { image: nginx, scale: { mode: fixed, replicas: 2 } }\n";
const BAD: &str =
    "version: v1\ndeployment: shop\nservices:\n  web: { image: nginx, scale: { mode: fixed, replics: 2 } }\n";

#[test]
fn validate_says_ok_or_why_not() {
    let folder = Folder::new("validate");
    let (good, bad) = (folder.file("good.yaml", GOOD), folder.file("bad.yaml", BAD));
    let fine = run(&["validate", &good]);
    assert_eq!((fine.code, fine.stderr.as_str()), (0, ""));
    assert_eq!(
        fine.stdout,
        format!("{good}: ok, deployment shop with 1 service and 2 replicas\n")
    );

    let both = run(&["validate", &good, &bad]);
    assert_eq!(both.code, 2);
    assert!(both.stdout.contains(": ok,"), "{}", both.stdout);
    for part in ["bad.yaml:4:46", "did you mean `replicas`?", "1 problem in"] {
        assert!(
            both.stderr.contains(part),
            "{part} is missing in:\n{}",
            both.stderr
        );
    }
    assert!(!both.stderr.contains('\u{1b}'), "no colour without a terminal");
}

#[test]
fn validate_as_json_is_one_document() {
    let folder = Folder::new("json");
    let (good, bad) = (folder.file("good.yaml", GOOD), folder.file("bad.yaml", BAD));
    let both = run(&["validate", "--json", &good, &bad, "/nowhere.yaml"]);
    assert_eq!((both.code, both.stderr.as_str()), (2, ""));
    let json: serde_json::Value = serde_json::from_str(&both.stdout).unwrap();
    assert_eq!(json[0]["valid"], true);
    assert_eq!(json[0]["deployment"], "shop");
    let finding = &json[1]["findings"][0];
    assert_eq!(finding["line"], 4);
    assert_eq!(finding["column"], 46);
    assert_eq!(finding["path"], "services.web.scale.replics");
    assert_eq!(finding["hint"], "did you mean `replicas`?");
    assert_eq!(json[2]["findings"][0]["message"], "there is no such file");
}

#[test]
fn validate_reads_the_standard_input() {
    let mut child = dhow(&["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(BAD.as_bytes()).unwrap();
    let answer = answer(child.wait_with_output().unwrap());
    assert_eq!(answer.code, 2);
    assert!(answer.stderr.contains("<stdin>:4:46"), "{}", answer.stderr);
}

#[test]
fn what_cannot_be_read_is_bad_input() {
    let folder = Folder::new("unreadable");
    let bytes = folder.file("bytes.yaml", b"version: \xff\n");
    for (file, part) in [
        ("/nowhere.yaml", "there is no such file"),
        (folder.0.to_str().unwrap(), "this is a directory"),
        (bytes.as_str(), "is not UTF-8"),
        ("/dev/zero", "this file has more than 4 MiB"),
    ] {
        let answer = run(&["validate", file]);
        assert_eq!(answer.code, 2, "{file}");
        assert!(
            answer.stderr.contains(part),
            "{part} is missing in:\n{}",
            answer.stderr
        );
    }
    assert_eq!(run(&["validate"]).code, 2);
    assert_eq!(run(&["bogus"]).code, 2);
    assert_eq!(run(&["daemon", "--bogus"]).code, 2);
    assert_eq!(run(&["--help"]).code, 0);
}

#[test]
fn variables_of_the_client_are_read() {
    let folder = Folder::new("variables");
    let text = "version: v1\ndeployment: shop\nservices:\n  web: { image: nginx, env: { A: $E:SHOP_KEY } }\n";
    let file = folder.file("env.yaml", text);
    let without = run(&["validate", &file]);
    assert_eq!(without.code, 2);
    assert!(
        without.stderr.contains("`SHOP_KEY` is not set"),
        "{}",
        without.stderr
    );
    assert_eq!(
        answer(dhow(&["validate", &file]).env("SHOP_KEY", "x").output().unwrap()).code,
        0
    );
}

#[test]
fn daemon_check_prints_what_would_be_used() {
    let folder = Folder::new("check");
    let file = folder.file(
        "dhow.yaml",
        "data_dir: /srv/dhow\nlog: { level: debug }\nlabels: { zone: a }\n",
    );
    let plain = run(&["daemon", "--check", "--config", &file]);
    assert_eq!((plain.code, plain.stderr.as_str()), (0, ""));
    for line in [
        "data_dir: /srv/dhow",
        "socket: /srv/dhow/dhow.sock",
        "  mode: single-node",
        "  level: debug",
    ] {
        assert!(
            plain.stdout.lines().any(|found| found == line),
            "{line} is missing in:\n{}",
            plain.stdout
        );
    }
    // What it prints is itself a configuration with the same meaning.
    let again = folder.file("again.yaml", &plain.stdout);
    assert_eq!(
        run(&["daemon", "--check", "--config", &again]).stdout,
        plain.stdout
    );

    let mut command = dhow(&["daemon", "--check", "--config", &file, "--log-level", "trace"]);
    let over = answer(
        command
            .env("DHOW_LOG_LEVEL", "warn")
            .env("DHOW_LOG_FORMAT", "json")
            .output()
            .unwrap(),
    );
    assert!(
        over.stdout.contains("level: trace") && over.stdout.contains("format: json"),
        "{}",
        over.stdout
    );
}

#[test]
fn daemon_check_refuses_with_everything_at_once() {
    let folder = Folder::new("refuse");
    let file = folder.file(
        "dhow.yaml",
        "cluster: { mode: static, node_id: 2, peers: [{ id: 1, api_addr: 10.0.0.1:0 }], heartbeat_interval: 0 }\n",
    );
    let mut command = dhow(&["daemon", "--check", "--config", &file]);
    let answer = answer(command.env("DHOW_LOG_LEVEL", "loud").output().unwrap());
    assert_eq!((answer.code, answer.stdout.as_str()), (2, ""));
    for part in [
        "`DHOW_LOG_LEVEL`",
        "id 2 is not among the `peers`",
        "port 0",
        "`heartbeat_interval` cannot be 0",
        "4 problems",
    ] {
        assert!(
            answer.stderr.contains(part),
            "{part} is missing in:\n{}",
            answer.stderr
        );
    }
    assert_eq!(run(&["daemon", "--check", "--config", "/nowhere.yaml"]).code, 2);
}

#[test]
fn daemon_check_creates_nothing() {
    let folder = Folder::new("nothing");
    let data = folder.0.join("data");
    let text = format!(
        "data_dir: {}\ncluster_key_file: {}/no-such.key\n",
        data.display(),
        folder.0.display()
    );
    let file = folder.file("dhow.yaml", text);
    let answer = run(&["daemon", "--check", "--config", &file]);
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
    assert_eq!(folder.names(), ["dhow.yaml"]);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = dhow(&["daemon", "--check"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(answer(child.wait_with_output().unwrap()).code, 0);
}

#[test]
fn plan_shows_where_replicas_would_go() {
    let folder = Folder::new("plan");
    let file = folder.file("shop.yaml", GOOD);
    let plan = folder.plan(&[&file]);
    assert_eq!(plan.code, 0);
    assert_eq!(
        plan.stdout,
        "deployment shop\n  web  new, 2 replicas\nnode 1: web-default-0, web-default-1\n"
    );
    assert_eq!(
        plan.stderr,
        "no daemon answers: planning for this machine alone\n"
    );
    assert_eq!(folder.names(), ["shop.yaml"], "planning makes no file");
}

#[test]
fn plan_says_why_a_replica_finds_no_node() {
    let folder = Folder::new("plan-unplaced");
    let text = GOOD.replace(
        "image: nginx",
        "image: nginx, node_selector: { labels: { zone: a } }",
    );
    let file = folder.file("shop.yaml", text);
    let plan = folder.plan(&[&file]);
    assert_eq!(plan.code, 0);
    let reason = "2 replicas not placed: the only node lacks label zone=a";
    assert!(plan.stdout.contains(reason), "{}", plan.stdout);

    let plan = folder.plan(&["--json", &file]);
    let json: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(json["deployment"], "shop");
    assert_eq!(json["placements"], serde_json::json!([]));
    assert_eq!(json["services"][0]["change"], "new");
    assert_eq!(json["services"][0]["waiting"][0]["slots"], 2);
    assert_eq!(
        json["services"][0]["waiting"][0]["why"],
        "the only node lacks label zone=a"
    );
}

#[test]
fn plan_refuses_a_bad_file_as_validate_does() {
    let folder = Folder::new("plan-bad");
    let bad = folder.file("bad.yaml", BAD);
    let (plan, check) = (folder.plan(&[&bad]), run(&["validate", &bad]));
    assert_eq!((plan.code, plan.stdout.as_str()), (2, ""));
    assert_eq!(plan.stderr, check.stderr);
}

#[test]
fn a_backup_that_is_none_is_bad_input_and_creates_nothing() {
    let folder = Folder::new("restore");
    let damaged = folder.file("damaged", b"no backup");
    let dir = folder.0.join("data");
    for file in [damaged.as_str(), "/no/such/file"] {
        let mut command = dhow(&["cluster", "restore", file]);
        let restored = answer(command.env("DHOW_DATA_DIR", &dir).output().unwrap());
        assert_eq!(
            (restored.code, restored.stdout.as_str()),
            (2, ""),
            "{}",
            restored.stderr
        );
        assert!(restored.stderr.contains(file), "{}", restored.stderr);
    }
    assert_eq!(folder.names(), ["damaged"]);
}

#[test]
fn verbs_that_ask_no_daemon_offer_no_address_of_one() {
    let offline: [&[&str]; 9] = [
        &["validate", "x.yaml"],
        &["daemon"],
        &["worker"],
        &["completions", "bash"],
        &["cluster", "keygen"],
        &["cluster", "restore", "x"],
        &["cluster", "recover"],
        &["source", "keygen", "x"],
        &["source", "sign", "x"],
    ];
    for verb in offline {
        let help = run(&[verb, &["--help"]].concat());
        assert_eq!(
            (help.code, help.stdout.contains("--host")),
            (0, false),
            "{verb:?}"
        );
    }
    let refused = run(&["completions", "bash", "--host", "unix:///x"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("leave --host out"), "{}", refused.stderr);
    assert!(run(&["ps", "--help"]).stdout.contains("--host"));
}

//! The way out: forwarding and address translation for what replicas send to other networks. Done as well as
//! the host allows; where it does not, replicas still reach the host and each other, and a notice says so.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::Subnet;

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// Switches it on; gives what does not work. Blocks, for some milliseconds, once per daemon.
pub(super) fn allow(bridge: &str, subnet: Subnet) -> Vec<String> {
    let mut notices = Vec::new();
    let is_on = fs::read_to_string(FORWARD).is_ok_and(|text| text.trim() == "1");
    if !is_on && let Err(error) = fs::write(FORWARD, "1") {
        notices.push(format!(
            "containers cannot reach other networks: {FORWARD} cannot be switched on ({error})"
        ));
    }
    if let Err(why) = by_nft(bridge, subnet)
        && let Err(other) = by_iptables(bridge, subnet)
    {
        notices.push(format!(
            "containers cannot reach other networks: no address translation (nft: {why}; iptables: {other}); \
             install nftables"
        ));
    }
    let_through(bridge);
    notices
}

/// Where something else, such as Docker, drops what is forwarded by default, our bridge's is let through. What is
/// dropped in one table cannot be allowed in another, so this one is in theirs.
fn let_through(bridge: &str) {
    let Ok(output) = Command::new("iptables")
        .args(["-w", "5", "-S", "FORWARD"])
        .output()
    else {
        return;
    };
    if !String::from_utf8_lossy(&output.stdout).contains("-P FORWARD DROP") {
        return;
    }
    for direction in ["-i", "-o"] {
        // What fails here is seen by who looks at the host's own rules.
        let _ = run("iptables", &forward_rule("-C", direction, bridge), None)
            .or_else(|_| run("iptables", &forward_rule("-I", direction, bridge), None));
    }
}

/// Takes the rules away; those that are not there are fine.
pub(super) fn forbid(bridge: &str, subnet: Subnet) {
    let _ = run("nft", &["delete", "table", "ip", bridge], None);
    let _ = run("iptables", &rule("-D", bridge, &subnet.to_string()), None);
    for direction in ["-i", "-o"] {
        let _ = run("iptables", &forward_rule("-D", direction, bridge), None);
    }
}

/// One table of our own, replaced in one transaction.
fn by_nft(bridge: &str, subnet: Subnet) -> Result<(), String> {
    let rules = format!(
        "table ip {bridge} {{}}\ndelete table ip {bridge}\ntable ip {bridge} {{\n\
         chain out {{ type nat hook postrouting priority 100; policy accept;\n\
         ip saddr {subnet} oifname != \"{bridge}\" masquerade\n}}\n}}\n"
    );
    run("nft", &["-f", "-"], Some(&rules))
}

fn by_iptables(bridge: &str, subnet: Subnet) -> Result<(), String> {
    let subnet = subnet.to_string();
    run("iptables", &rule("-C", bridge, &subnet), None)
        .or_else(|_| run("iptables", &rule("-A", bridge, &subnet), None))
}

fn rule<'a>(action: &'a str, bridge: &'a str, subnet: &'a str) -> [&'a str; 13] {
    [
        "-w",
        "5",
        "-t",
        "nat",
        action,
        "POSTROUTING",
        "-s",
        subnet,
        "!",
        "-o",
        bridge,
        "-j",
        "MASQUERADE",
    ]
}

fn forward_rule<'a>(action: &'a str, direction: &'a str, bridge: &'a str) -> [&'a str; 8] {
    ["-w", "5", action, "FORWARD", direction, bridge, "-j", "ACCEPT"]
}

fn run(program: &str, args: &[&str], input: Option<&str>) -> Result<(), String> {
    const OUTPUT_MAX_CHARS: usize = 300;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program} cannot be run, {error}"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A program that does not read says why on its other stream.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(OUTPUT_MAX_CHARS)
        .collect())
}

//! The ways between replicas and other networks. Out: forwarding and address translation for what they send. In:
//! nothing but answers; who routes to the bridge from outside is not let through, and of the host's own users only those
//! who may, since endpoints are served by the balancer. Done as well as the host allows; where it does not, a notice says so.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::bridge::Settings;

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// What came of it.
#[derive(Default)]
pub(super) struct Allowed {
    /// What does not work.
    pub notices: Vec<String>,
    /// Whether the rules are nft's.
    pub by_nft: bool,
}

/// Lets replicas out and others not in. `callers` are the users of this host who may call
/// replicas. Blocks, for some milliseconds, once per daemon.
pub(super) fn allow(settings: &Settings, callers: &[u32]) -> Allowed {
    let (bridge, subnet) = (&settings.name, settings.subnet);
    let mut allowed = Allowed::default();
    let notices = &mut allowed.notices;
    let is_on = fs::read_to_string(FORWARD).is_ok_and(|text| text.trim() == "1");
    let nft = by_nft(settings, callers);
    allowed.by_nft = nft.is_ok();
    if let Err(why) = nft
        && let Err(other) = by_iptables(settings, callers)
    {
        let tools = format!("(nft: {why}; iptables: {other}); install nftables");
        notices.push(format!(
            "containers cannot reach other networks: no address translation {tools}"
        ));
        if is_on {
            notices.push(format!(
                "whoever routes to {subnet} by this host reaches containers, past their endpoints: it forwards, and \
                 nothing can be dropped {tools}"
            ));
        }
        notices.push(format!(
            "every user of this host reaches containers, past their endpoints: nothing can be dropped {tools}"
        ));
        // A host that forwards nothing keeps containers from outside by itself.
        return allowed;
    }
    if !is_on && let Err(error) = fs::write(FORWARD, "1") {
        notices.push(format!(
            "containers cannot reach other networks: {FORWARD} cannot be switched on ({error})"
        ));
    }
    let_through(bridge);
    allowed
}

/// Writes by nft what it wrote before.
pub(super) fn again(settings: &Settings, callers: &[u32]) -> Result<(), String> {
    by_nft(settings, callers)?;
    let_through(&settings.name);
    Ok(())
}

/// Where something else, such as Docker, drops by default what is forwarded or what comes in, our bridge's is let
/// through: what containers send, and answers to the host's own connections to them. What is dropped in one table
/// cannot be allowed in another, so this one is in theirs.
fn let_through(bridge: &str) {
    if drops_by_default("INPUT") {
        add("iptables", &host_rule("-C", bridge), &host_rule("-I", bridge));
    }
    if drops_by_default("FORWARD") {
        for rule in [out_rule, answers_rule] {
            add("iptables", &rule("-C", bridge), &rule("-I", bridge));
        }
        // Versions before this one let everything in.
        let _ = run("iptables", &in_rule("-D", bridge), None);
    }
}

fn drops_by_default(chain: &str) -> bool {
    let listed = Command::new("iptables").args(["-w", "5", "-S", chain]).output();
    let drops = format!("-P {chain} DROP");
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains(&drops))
}

/// What fails here is seen by who looks at the host's own rules.
fn add(program: &str, look: &[&str], add: &[&str]) {
    let _ = run(program, look, None).or_else(|_| run(program, add, None));
}

/// Takes the rules away; those that are not there are fine.
pub(super) fn forbid(settings: &Settings) {
    let (bridge, subnet) = (&settings.name, settings.subnet.to_string());
    let _ = run("nft", &["delete", "table", "ip", bridge], None);
    let _ = run("iptables", &rule("-D", bridge, &subnet), None);
    // Of this host's users; a rule for each list of them that there was.
    let listed = Command::new("iptables")
        .args(["-w", "5", "-S", "OUTPUT"])
        .output();
    let listed = listed.map(|listed| listed.stdout).unwrap_or_default();
    for line in String::from_utf8_lossy(&listed).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["-A", rest @ ..] = words.as_slice()
            && rest.windows(2).any(|pair| pair == ["-o", bridge])
            && rest.contains(&"owner")
        {
            let _ = run("iptables", &[&["-w", "5", "-D"], rest].concat(), None);
        }
    }
    let _ = run("iptables", &drop_rule("-D", bridge), None);
    let _ = run("iptables", &out_rule("-D", bridge), None);
    let _ = run("iptables", &answers_rule("-D", bridge), None);
    let _ = run("iptables", &host_rule("-D", bridge), None);
    let _ = run("iptables", &in_rule("-D", bridge), None);
}

/// One table of our own, replaced in one transaction.
fn by_nft(settings: &Settings, callers: &[u32]) -> Result<(), String> {
    run("nft", &["-f", "-"], Some(&rules(settings, callers)))
}

fn rules(settings: &Settings, callers: &[u32]) -> String {
    let (bridge, subnet) = (&settings.name, settings.subnet);
    let callers: Vec<String> = callers.iter().map(u32::to_string).collect();
    let callers = callers.join(", ");
    format!(
        "table ip {bridge} {{}}\ndelete table ip {bridge}\ntable ip {bridge} {{\n\
         chain out {{ type nat hook postrouting priority 100; policy accept;\n\
         ip saddr {subnet} oifname != \"{bridge}\" masquerade\n}}\n\
         chain in {{ type filter hook forward priority 0; policy accept;\n\
         oifname \"{bridge}\" iifname != \"{bridge}\" ct state established,related accept\n\
         oifname \"{bridge}\" iifname != \"{bridge}\" drop\n}}\n\
         chain host {{ type filter hook output priority 0; policy accept;\n\
         oifname \"{bridge}\" ip daddr {subnet} meta skuid {{ {callers} }} accept\n\
         oifname \"{bridge}\" ip daddr {subnet} ct state new,untracked reject with icmp type admin-prohibited\n\
         }}\n}}\n"
    )
}

fn by_iptables(settings: &Settings, callers: &[u32]) -> Result<(), String> {
    let (bridge, subnet) = (&settings.name, settings.subnet.to_string());
    let callers: Vec<String> = callers.iter().map(u32::to_string).collect();
    run("iptables", &users_rule("-C", bridge, &subnet, &callers), None)
        .or_else(|_| run("iptables", &users_rule("-I", bridge, &subnet, &callers), None))?;
    run("iptables", &drop_rule("-C", bridge), None)
        .or_else(|_| run("iptables", &drop_rule("-I", bridge), None))?;
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

/// What comes from elsewhere and answers nothing.
fn drop_rule<'a>(action: &'a str, bridge: &'a str) -> Vec<&'a str> {
    let from_outside = ["!", "-i", bridge, "-o", bridge];
    let new = ["-m", "conntrack", "!", "--ctstate", "ESTABLISHED,RELATED"];
    forward_rule(action, &[&from_outside[..], &new].concat(), "DROP")
}

/// What users of this host begin who are none of these.
fn users_rule<'a>(action: &'a str, bridge: &'a str, subnet: &'a str, callers: &'a [String]) -> Vec<&'a str> {
    let mut words = vec!["-w", "5", action, "OUTPUT", "-d", subnet, "-o", bridge];
    words.extend(["-m", "conntrack", "--ctstate", "NEW,UNTRACKED"]);
    for caller in callers {
        words.extend(["-m", "owner", "!", "--uid-owner", caller.as_str()]);
    }
    words.extend(["-j", "REJECT"]);
    words
}

fn out_rule<'a>(action: &'a str, bridge: &'a str) -> Vec<&'a str> {
    forward_rule(action, &["-i", bridge], "ACCEPT")
}

fn answers_rule<'a>(action: &'a str, bridge: &'a str) -> Vec<&'a str> {
    let state = [
        "-o",
        bridge,
        "-m",
        "conntrack",
        "--ctstate",
        "ESTABLISHED,RELATED",
    ];
    forward_rule(action, &state, "ACCEPT")
}

/// Answers of containers to the host itself.
fn host_rule<'a>(action: &'a str, bridge: &'a str) -> Vec<&'a str> {
    let head = ["-w", "5", action, "INPUT", "-i", bridge];
    let answers = ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED"];
    [&head[..], &answers, &["-j", "ACCEPT"]].concat()
}

fn in_rule<'a>(action: &'a str, bridge: &'a str) -> Vec<&'a str> {
    forward_rule(action, &["-o", bridge], "ACCEPT")
}

fn forward_rule<'a>(action: &'a str, matching: &[&'a str], what: &'a str) -> Vec<&'a str> {
    [&["-w", "5", action, "FORWARD"], matching, &["-j", what]].concat()
}

pub(super) fn run(program: &str, args: &[&str], input: Option<&str>) -> Result<(), String> {
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

//! Files that tell a container about hosts: `hosts`, `hostname`, `resolv.conf`.

use std::fmt::Write;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use dhow_core::ids::ReplicaName;
use dhow_core::spec::ServiceSpec;

/// The kernel's limit is 64, that of a name in DNS 63.
const HOSTNAME_MAX_BYTES: usize = 63;
/// Where a resolver on the host itself writes the servers that it asks.
const BEHIND_LOCAL: &str = "/run/systemd/resolve/resolv.conf";

pub(super) fn hostname(spec: &ServiceSpec, name: &ReplicaName) -> String {
    let mut text = spec.hostname.clone().unwrap_or_else(|| name.id());
    if spec.hostname.is_none() {
        text.truncate(HOSTNAME_MAX_BYTES);
    }
    text
}

/// `extra_hosts` are `name:address` or `name=address`; an address may have colons itself.
pub(super) fn hosts(hostname: &str, address: Ipv4Addr, extra: &[String]) -> String {
    let mut text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned();
    let mut line = |address: &str, name: &str| {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{address}\t{name}");
    };
    line(&address.to_string(), hostname);
    for entry in extra {
        if let Some((name, address)) = entry.split_once([':', '=']) {
            line(address.trim_matches(['[', ']']), name);
        }
    }
    text
}

/// The spec's servers, else the host's as far as a container reaches them; and what is missing.
pub(super) fn resolv_conf(dns: &[String]) -> (String, Option<String>) {
    if !dns.is_empty() {
        let lines = dns.iter().map(|server| format!("nameserver {server}\n"));
        return (lines.collect(), None);
    }
    let read = |path: &str| reachable(&fs::read_to_string(path).unwrap_or_default());
    let (text, has_server) = read("/etc/resolv.conf");
    if has_server {
        return (text, None);
    }
    let (behind, has_server) = read(BEHIND_LOCAL);
    if has_server {
        return (behind, None);
    }
    let notice =
        "names cannot be looked up inside: the host names no DNS server that a container reaches; set `dns`";
    (text, Some(notice.to_owned()))
}

/// Without servers on the host's own loopback: inside, that is another.
fn reachable(text: &str) -> (String, bool) {
    let mut has_server = false;
    let mut kept = String::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with(['#', ';']))
    {
        let mut words = line.split_whitespace();
        if words.next() == Some("nameserver") {
            let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
            if address.is_none_or(|address| address.is_loopback()) {
                continue;
            }
            has_server = true;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    (kept, has_server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_the_replica_and_leave_out_what_it_cannot_reach() {
        let extra = ["db:10.0.0.9".to_owned(), "six:fd00::1".to_owned()];
        let text = hosts("web-default-0", Ipv4Addr::new(10, 88, 4, 2), &extra);
        for line in ["10.88.4.2\tweb-default-0", "10.0.0.9\tdb", "fd00::1\tsix"] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
        let (text, has_server) =
            reachable("# c\nnameserver 127.0.0.53\nsearch lan\nnameserver 9.9.9.9\nnameserver ::1\n");
        assert_eq!(
            (text.as_str(), has_server),
            ("search lan\nnameserver 9.9.9.9\n", true)
        );
        assert!(!reachable("nameserver 127.0.0.53\n").1);
        let (text, notice) = resolv_conf(&["1.1.1.1".to_owned()]);
        assert_eq!((text.as_str(), notice), ("nameserver 1.1.1.1\n", None));
    }
}

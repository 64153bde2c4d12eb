//! Files that tell a container about hosts: `hosts`, `hostname`, `resolv.conf`.

use std::fmt::Write;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dhow_core::ids::ReplicaName;
use dhow_core::spec::{HOST_GATEWAY, SERVICE_MARK, ServiceSpec, host_entry};

/// The kernel's limit is 64, that of a name in DNS 63.
const HOSTNAME_MAX_BYTES: usize = 63;
const HOST_FILE: &str = "/etc/resolv.conf";
/// A name with fewer dots than this is looked up below the search domains first: `db` and `db.shop` are services.
const DOTS: u32 = 2;
/// The search domains that resolvers have read for long: more are passed over by some.
const SEARCH_MAX: usize = 6;
/// Where a resolver on the host itself writes the servers that it asks.
const BEHIND_LOCAL: &str = "/run/systemd/resolve/resolv.conf";

pub(super) fn hostname(spec: &ServiceSpec, name: &ReplicaName) -> String {
    let mut text = spec.hostname.clone().unwrap_or_else(|| name.id());
    if spec.hostname.is_none() {
        text.truncate(HOSTNAME_MAX_BYTES);
    }
    text
}

/// `extra_hosts` are `name:address` or `name=address`; an address may have colons itself. `host-gateway` is the host as
/// containers reach it. What stands for a service has an address by now, or nobody has told one.
pub(super) fn hosts(hostname: &str, address: Ipv4Addr, host: Option<Ipv4Addr>, extra: &[String]) -> String {
    let mut text = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned();
    let mut line = |address: &str, name: &str| {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{address}\t{name}");
    };
    line(&address.to_string(), hostname);
    for (name, address) in extra.iter().filter_map(|entry| host_entry(entry)) {
        match (address, host) {
            (HOST_GATEWAY, Some(host)) => line(&host.to_string(), name),
            (HOST_GATEWAY, None) => {}
            (address, _) if address.starts_with(SERVICE_MARK) => {}
            (address, _) => line(address, name),
        }
    }
    text
}

/// The spec's servers; else this node's own, which knows services by name, with the container's deployment; else the
/// host's as far as a container reaches them. And what is missing.
pub(super) fn resolv_conf(dns: &[String], by_name: Option<(Ipv4Addr, &str)>) -> (String, Option<String>) {
    if !dns.is_empty() {
        let lines = dns.iter().map(|server| format!("nameserver {server}\n"));
        return (lines.collect(), None);
    }
    if let Some((server, deployment)) = by_name {
        let host = fs::read_to_string(HOST_FILE).unwrap_or_default();
        return (named(server, deployment, &host), None);
    }
    let read = |path: &str| reachable(&fs::read_to_string(path).unwrap_or_default());
    let (text, has_server) = read(HOST_FILE);
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

/// One server, which asks the host's itself; the names of the deployment before the host's own.
fn named(server: Ipv4Addr, deployment: &str, host: &str) -> String {
    let (mut search, mut options) = (Vec::new(), Vec::new());
    for line in host.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            // The last line of its kind holds.
            Some("search" | "domain") => search = words.collect(),
            Some("options") => options.extend(words.filter(|option| !option.starts_with("ndots:"))),
            Some(_) | None => {}
        }
    }
    let own = [format!("{deployment}.dhow"), "dhow".to_owned()];
    let search: Vec<&str> = own
        .iter()
        .map(String::as_str)
        .chain(search)
        .take(SEARCH_MAX)
        .collect();
    let dots = format!("ndots:{DOTS}");
    options.insert(0, &dots);
    format!(
        "nameserver {server}\nsearch {}\noptions {}\n",
        search.join(" "),
        options.join(" ")
    )
}

/// The servers that this host itself asks, at most three as its own resolver does. Blocks.
pub fn host_name_servers() -> Vec<SocketAddr> {
    const SERVERS_MAX: usize = 3;
    const PORT: u16 = 53;
    let text = fs::read_to_string(HOST_FILE).unwrap_or_default();
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = (words.next() == Some("nameserver")).then(|| words.next())??;
        Some(SocketAddr::new(address.parse().ok()?, PORT))
    });
    servers.take(SERVERS_MAX).collect()
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
        let text = hosts("web-default-0", Ipv4Addr::new(10, 88, 4, 2), None, &extra);
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
        let by_name = Some((Ipv4Addr::new(10, 87, 0, 1), "shop"));
        let (text, notice) = resolv_conf(&["1.1.1.1".to_owned()], by_name);
        assert_eq!((text.as_str(), notice), ("nameserver 1.1.1.1\n", None));
    }

    #[test]
    fn names_of_the_deployment_come_before_the_hosts_own() {
        let host = "nameserver 127.0.0.53\nsearch lan example.org\noptions edns0 ndots:1 trust-ad\n";
        assert_eq!(
            named(Ipv4Addr::new(10, 87, 0, 1), "shop", host),
            "nameserver 10.87.0.1\nsearch shop.dhow dhow lan example.org\noptions ndots:2 edns0 trust-ad\n"
        );
        let bare = named(Ipv4Addr::new(10, 87, 0, 1), "shop", "");
        assert_eq!(
            bare,
            "nameserver 10.87.0.1\nsearch shop.dhow dhow\noptions ndots:2\n"
        );
    }
}

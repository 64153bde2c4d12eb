//! What a container is told about hosts, users and names: `user`, `hostname`, `dns`, `extra_hosts`.

use std::net::IpAddr;

use super::finding::{FieldPath, SpecFinding};
use super::limits::NAME_MAX_BYTES;
use super::words::{name_of, quoted};
use crate::spec::{HOST_GATEWAY, SERVICE_MARK, ServiceSpec, host_entry};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    if let Some(user) = &spec.user
        && let Some((message, hint)) = user_problem(user)
    {
        findings.push(SpecFinding::at(at.key("user"), message).hint(hint));
    }
    if let Some(hostname) = &spec.hostname
        && let Some((message, hint)) = own_hostname_problem(hostname)
    {
        findings.push(SpecFinding::at(at.key("hostname"), message).hint(hint));
    }
    for (position, server) in spec.dns.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            findings.push(
                SpecFinding::at(
                    at.key("dns").index(position),
                    format!("{} is not the address of a name server", quoted(server)),
                )
                .hint("write an IP address, such as `1.1.1.1`"),
            );
        }
    }
    for (position, entry) in spec.extra_hosts.iter().enumerate() {
        if let Some((message, hint)) = extra_host_problem(entry) {
            findings.push(SpecFinding::at(at.key("extra_hosts").index(position), message).hint(hint));
        }
    }
}

fn user_problem(user: &str) -> Option<(String, String)> {
    const HOW: &str = "write a name or a number, alone or with a group: `1000`, `app`, `1000:1000`";
    let (name, group) = match user.split_once(':') {
        None => (user, None),
        Some((name, group)) => (name, Some(group)),
    };
    for part in [Some(name), group].into_iter().flatten() {
        if part.is_empty() {
            return Some((format!("{} has an empty part", quoted(user)), HOW.into()));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '$');
        if let Some(c) = part.chars().find(|c| !fits(*c)) {
            return Some((format!("a user holds no {}", name_of(c)), HOW.into()));
        }
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && part.parse::<u32>().is_ok_and(|id| id < u32::MAX) {
            continue;
        }
        if is_number || part.len() > NAME_MAX_BYTES || part.starts_with('-') {
            return Some((format!("{} is not a user or a group", quoted(part)), HOW.into()));
        }
    }
    None
}

/// A container's own name: the kernel keeps at most 64 bytes of it.
fn own_hostname_problem(hostname: &str) -> Option<(String, String)> {
    if hostname.len() > NAME_MAX_BYTES {
        let message = format!(
            "a hostname has at most {NAME_MAX_BYTES} characters, this one has {}",
            hostname.len()
        );
        return Some((message, "shorten it".into()));
    }
    hostname_problem(hostname)
}

/// What is wrong with a name of a host, as DNS has them.
pub(super) fn hostname_problem(hostname: &str) -> Option<(String, String)> {
    const HOSTNAME_MAX_BYTES: usize = 253;
    const HOW: &str = "use letters, digits, `-` and dots, such as `shop.example.org`";
    if hostname.is_empty() {
        return Some(("the hostname is empty".into(), HOW.into()));
    }
    if hostname.len() > HOSTNAME_MAX_BYTES {
        return Some((
            format!("a hostname has at most {HOSTNAME_MAX_BYTES} characters"),
            "shorten it".into(),
        ));
    }
    if let Some((_, port)) = hostname.rsplit_once(':')
        && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Some((
            format!("{} holds a port", quoted(hostname)),
            "write the name alone".into(),
        ));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if let Some(c) = hostname.chars().find(|c| !fits(*c)) {
        return Some((format!("a hostname holds no {}", name_of(c)), HOW.into()));
    }
    let bad = |label: &str| {
        label.is_empty() || label.len() > NAME_MAX_BYTES || label.starts_with('-') || label.ends_with('-')
    };
    hostname
        .split('.')
        .find(|label| bad(label))
        .map(|_| (format!("{} is not a hostname", quoted(hostname)), HOW.into()))
}

fn extra_host_problem(entry: &str) -> Option<(String, String)> {
    const HOW: &str =
        "write `name:address`, such as `db.internal:10.0.0.5`, `name:@service` or `name:host-gateway`";
    let Some((name, address)) = host_entry(entry) else {
        return Some((format!("{} has no address", quoted(entry)), HOW.into()));
    };
    // It is a line of a file, where a name may have what DNS does not: programs call services so.
    if let Some((message, _)) = hostname_problem(&name.replace('_', "-")) {
        return Some((message, HOW.into()));
    }
    if address == HOST_GATEWAY || address.starts_with(SERVICE_MARK) {
        return None;
    }
    match address.parse::<IpAddr>() {
        Ok(_) => None,
        Err(_) => Some((format!("{} is not an IP address", quoted(address)), HOW.into())),
    }
}

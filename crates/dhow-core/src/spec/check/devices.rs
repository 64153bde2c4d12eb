//! What a container is allowed of the kernel: capabilities, limits, sysctls, devices.

use std::collections::BTreeMap;

use super::finding::{FieldPath, SpecFinding};
use super::suggest::{did_you_mean, nearest};
use super::vocabulary::{CAPABILITIES, SYSCTL_PREFIXES, SYSCTLS, ULIMITS};
use super::words::{path_problem, quoted};
use crate::spec::ServiceSpec;

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    check_capabilities(&at.key("capabilities"), spec, findings);
    check_ulimits(&at.key("ulimits"), spec, findings);
    for name in spec.sysctls.keys() {
        if let Some((message, hint)) = sysctl_problem(name) {
            findings.push(
                SpecFinding::at(at.key("sysctls").key(name.clone()), message)
                    .hint(hint)
                    .on_key(),
            );
        }
    }
    for (position, device) in spec.devices.iter().enumerate() {
        if let Some((message, hint)) = device_problem(device) {
            findings.push(SpecFinding::at(at.key("devices").index(position), message).hint(hint));
        }
    }
}

fn check_capabilities(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let mut added: BTreeMap<String, usize> = BTreeMap::new();
    for (field, list) in [("add", &spec.capabilities.add), ("drop", &spec.capabilities.drop)] {
        for (position, name) in list.iter().enumerate() {
            let place = at.key(field).index(position);
            let upper = name.to_ascii_uppercase();
            let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
            if plain != "ALL" && !CAPABILITIES.contains(&plain) {
                let hint = match nearest(plain, CAPABILITIES.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => {
                        "such as `NET_ADMIN`, `SYS_PTRACE` or `ALL`; `man 7 capabilities` lists them".into()
                    }
                };
                let message = format!("there is no capability {}", quoted(name));
                findings.push(SpecFinding::at(place, message).hint(hint));
            } else if field == "add" {
                added.insert(plain.to_owned(), position);
            } else if let Some(first) = added.get(plain) {
                findings.push(
                    SpecFinding::at(place, format!("`{plain}` is added and dropped"))
                        .also(at.key("add").index(*first), "added here")
                        .hint("keep one of the two"),
                );
            }
        }
    }
}

fn check_ulimits(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    for (name, limit) in &spec.ulimits {
        let place = at.key(name.clone());
        if !ULIMITS.contains(&name.as_str()) {
            let hint = did_you_mean(name, ULIMITS.iter().copied())
                .unwrap_or_else(|| format!("the limits are {}", ULIMITS.join(", ")));
            let message = format!("there is no limit {}", quoted(name));
            findings.push(SpecFinding::at(place, message).hint(hint).on_key());
        } else if limit.soft > limit.hard {
            findings.push(
                SpecFinding::at(
                    place.key("soft"),
                    format!("`soft` is {}, above `hard`, which is {}", limit.soft, limit.hard),
                )
                .because(place.key("hard"))
                .hint("swap them, or raise `hard`"),
            );
        }
    }
}

fn sysctl_problem(name: &str) -> Option<(String, String)> {
    // The kernel's files write it with slashes; both mean the same.
    let dotted = name.replace('/', ".");
    if SYSCTLS.contains(&dotted.as_str()) || SYSCTL_PREFIXES.iter().any(|prefix| dotted.starts_with(prefix)) {
        return None;
    }
    let hint = did_you_mean(&dotted, SYSCTLS.iter().copied()).unwrap_or_else(|| {
        "only `net.*`, `fs.mqueue.*` and the limits of System V IPC are a container's own".into()
    });
    Some((
        format!("{} belongs to the whole host, not to a container", quoted(name)),
        hint,
    ))
}

/// `/dev/fuse`, `/dev/sda:/dev/xvda`, `/dev/sda:/dev/xvda:r`.
fn device_problem(device: &str) -> Option<(String, String)> {
    const HOW: &str = "write `/dev/fuse`, or with its place inside and its rights: `/dev/sda:/dev/xvda:r`";
    let mut parts = device.split(':');
    for what in ["the device", "the device inside"] {
        let part = parts.next()?;
        let is_rights = what == "the device inside" && !part.starts_with('/');
        if is_rights {
            return rights_problem(part).or_else(|| {
                parts
                    .next()
                    .map(|_| (format!("{} has too many parts", quoted(device)), HOW.into()))
            });
        }
        if let Some((message, _)) = path_problem(part, what) {
            return Some((message, HOW.into()));
        }
    }
    if let Some(problem) = parts.next().and_then(rights_problem) {
        return Some(problem);
    }
    parts
        .next()
        .map(|_| (format!("{} has too many parts", quoted(device)), HOW.into()))
}

fn rights_problem(rights: &str) -> Option<(String, String)> {
    let fits = !rights.is_empty() && rights.chars().all(|c| matches!(c, 'r' | 'w' | 'm'));
    (!fits).then(|| {
        let message = format!("{} are not the rights of a device", quoted(rights));
        (
            message,
            "they are `r` (read), `w` (write) and `m` (make), such as `rw`".into(),
        )
    })
}

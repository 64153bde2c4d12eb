//! What is mounted, and where.

use std::collections::BTreeMap;

use super::finding::{FieldPath, SpecFinding};
use super::limits::{MEMORY_MAX_BYTES, NAME_MAX_BYTES};
use super::words::{name_of, path_problem, quoted};
use crate::spec::{ByteSize, DeploymentSpec, ServiceSpec, Storage, VolumeSupport};

/// A file system counts in blocks of some KiB: below a MiB nothing can be said of what fits.
const VOLUME_MIN_BYTES: u64 = 1 << 20;
const VOLUME_MAX_BYTES: u64 = 1 << 50;

/// Mounting over these would take the workload's own kernel files away.
pub(super) const RESERVED_TARGETS: [&str; 4] = ["/", "/proc", "/sys", "/dev"];

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let list = at.key("storage");
    let mut targets: BTreeMap<String, usize> = BTreeMap::new();
    for (position, mount) in spec.storage.iter().enumerate() {
        let place = list.index(position);
        check_target(&place.key("target"), mount.target(), findings);
        if let Some(first) = targets.insert(plain(mount.target()), position) {
            findings.push(
                SpecFinding::at(
                    place.key("target"),
                    format!("{} is mounted twice", quoted(&plain(mount.target()))),
                )
                .also(list.index(first).key("target"), "first here")
                .hint("give each its own target"),
            );
        }
        check_mount(&place, mount, findings);
        let has_size = mount.needs() == VolumeSupport::Sized;
        if let Some(why) = ignores_sizes(spec).filter(|_| has_size) {
            let message = format!("the kernel holds nobody to a `size` who has {why}");
            let hint = format!("leave `size` out, or {why} of this service");
            findings.push(SpecFinding::at(place.key("size"), message).hint(hint));
        }
    }
}

/// What of the service makes quotas void for it.
fn ignores_sizes(spec: &ServiceSpec) -> Option<&'static str> {
    let overrules = |name: &String| {
        let upper = name.to_ascii_uppercase();
        matches!(
            upper.strip_prefix("CAP_").unwrap_or(&upper),
            "SYS_RESOURCE" | "ALL"
        )
    };
    if spec.privileged {
        return Some("`privileged: true`");
    }
    let mut added = spec.capabilities.add.iter();
    added.any(overrules).then_some("the capability SYS_RESOURCE")
}

/// The path without what makes no difference: `/data//` is `/data`.
pub(super) fn plain(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    format!("/{}", parts.join("/"))
}

fn check_target(at: &FieldPath, target: &str, findings: &mut Vec<SpecFinding>) {
    if let Some((message, hint)) = path_problem(target, "the target") {
        findings.push(SpecFinding::at(at.clone(), message).hint(hint));
    } else if RESERVED_TARGETS.contains(&plain(target).as_str()) {
        findings.push(
            SpecFinding::at(
                at.clone(),
                format!("nothing can be mounted over {}", quoted(target)),
            )
            .hint("choose a directory below it, or another one"),
        );
    }
}

fn check_mount(at: &FieldPath, mount: &Storage, findings: &mut Vec<SpecFinding>) {
    match mount {
        Storage::Bind { source, .. } => {
            if let Some((message, hint)) = path_problem(source, "the source") {
                // The file is read on another machine: what is relative to it means nothing on the node.
                let is_relative = !source.is_empty() && !source.starts_with(['/', '~']);
                let hint = if is_relative {
                    "write the whole path, as it is on the node".into()
                } else {
                    hint
                };
                findings.push(SpecFinding::at(at.key("source"), message).hint(hint));
            }
        }
        Storage::Named { name, size, .. } => {
            if let Some(message) = volume_name_problem(name) {
                let hint = "use letters, digits, `-`, `_` and `.`, such as `pgdata`";
                findings.push(SpecFinding::at(at.key("name"), message).hint(hint));
            }
            check_volume_size(at, *size, findings);
        }
        Storage::Ephemeral { size, .. } => check_volume_size(at, *size, findings),
        Storage::Tmpfs {
            size: Some(ByteSize(bytes)),
            ..
        } => {
            if *bytes == 0 || *bytes > MEMORY_MAX_BYTES {
                let message = format!("a tmpfs of {} cannot be made", ByteSize(*bytes));
                let hint = "such as `64Mi`, or leave it out for half of the memory";
                findings.push(SpecFinding::at(at.key("size"), message).hint(hint));
            }
        }
        Storage::Tmpfs { size: None, .. } => {}
    }
}

fn check_volume_size(at: &FieldPath, size: Option<ByteSize>, findings: &mut Vec<SpecFinding>) {
    if let Some(size) = size.filter(|size| !(VOLUME_MIN_BYTES..=VOLUME_MAX_BYTES).contains(&size.0)) {
        let message = format!("a volume of {size} cannot be made");
        let hint = "such as `10Gi`, or leave it out for as much as the disk has";
        findings.push(SpecFinding::at(at.key("size"), message).hint(hint));
    }
}

/// A volume that several services mount has one size.
pub(super) fn check_deployment(deployment: &DeploymentSpec, findings: &mut Vec<SpecFinding>) {
    let mut sizes: BTreeMap<&str, (ByteSize, FieldPath)> = BTreeMap::new();
    for (service, spec) in &deployment.services {
        let list = FieldPath::of("services").key(service.to_string()).key("storage");
        for (position, mount) in spec.storage.iter().enumerate() {
            let Storage::Named {
                name,
                size: Some(size),
                ..
            } = mount
            else {
                continue;
            };
            let at = list.index(position).key("size");
            match sizes.get(name.as_str()) {
                Some((first, place)) if first != size => findings.push(
                    SpecFinding::at(at, format!("the volume `{name}` is to have {first} and {size}"))
                        .also(place.clone(), "first here")
                        .hint("say the same size everywhere, or once"),
                ),
                Some(_) => {}
                None => drop(sizes.insert(name, (*size, at))),
            }
        }
    }
}

fn volume_name_problem(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        Some("the volume has no name".into())
    } else if name.len() > NAME_MAX_BYTES {
        Some(format!(
            "a volume's name has at most {NAME_MAX_BYTES} characters, this one has {}",
            name.chars().count()
        ))
    } else if name.starts_with('/') {
        Some(format!("{} is a path, a `named` volume has a name", quoted(name)))
    } else if let Some(c) = name.chars().find(|c| !fits(*c)) {
        Some(format!("a volume's name holds no {}", name_of(c)))
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Some("a volume's name starts with a letter or a digit".into())
    } else {
        None
    }
}

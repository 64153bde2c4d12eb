//! Where replicas may go.

use super::finding::{FieldPath, SpecFinding};
use super::health::too_long;
use super::suggest::nearest;
use super::words::{label_finding, label_name_problem, quoted};
use crate::spec::{Affinity, AffinityMode, ServiceSpec, TimeSpan};

const OPERATING_SYSTEMS: [&str; 3] = ["linux", "windows", "darwin"];
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// What others call the same thing.
const OTHER_NAMES: [(&str, &str); 11] = [
    ("macos", "darwin"),
    ("mac", "darwin"),
    ("osx", "darwin"),
    ("mac_os", "darwin"),
    ("win", "windows"),
    ("win32", "windows"),
    ("amd64", "x86_64"),
    ("x64", "x86_64"),
    ("x86-64", "x86_64"),
    ("arm64", "aarch64"),
    ("armv8", "aarch64"),
];

/// Our name for what others call differently; anything else as it is, in lower case where that is a name of ours.
pub(super) fn known_name(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if OPERATING_SYSTEMS.contains(&lower.as_str()) || ARCHITECTURES.contains(&lower.as_str()) {
        return lower;
    }
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == lower);
    other.map_or_else(|| name.to_owned(), |(_, name)| (*name).to_owned())
}

/// What to write instead of an operating system's name that is not one; none where it is fine.
pub fn os_hint(name: &str) -> Option<String> {
    platform_hint(name, &OPERATING_SYSTEMS)
}

/// What to write instead of an architecture's name that is not one; none where it is fine.
pub fn arch_hint(name: &str) -> Option<String> {
    platform_hint(name, &ARCHITECTURES)
}

fn platform_hint(name: &str, known: &'static [&'static str]) -> Option<String> {
    if known.contains(&name) {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let other = OTHER_NAMES
        .iter()
        .find(|(other, _)| *other == lower)
        .map(|(_, name)| *name);
    let meant = other
        .filter(|name| known.contains(name))
        .or_else(|| nearest(name, known.iter().copied()));
    Some(match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => {
            let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("write one of {}", names.join(", "))
        }
    })
}

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    check_affinity(&at.key("affinity"), at, &spec.affinity, spec, findings);
    for (position, group) in spec.replica_groups.iter().enumerate() {
        if let Some(affinity) = &group.affinity {
            let place = at.key("replica_groups").index(position).key("affinity");
            check_affinity(&place, at, affinity, spec, findings);
        }
    }
    check_spread_by(&at.key("spread_by"), spec.spread_by.as_deref(), findings);
    if let (Some(own), Some(of_affinity)) = (&spec.spread_by, &spec.affinity.spread_by)
        && own != of_affinity
    {
        findings.push(
            SpecFinding::at(at.key("spread_by"), "`spread_by` is there twice, with two labels")
                .also(at.key("affinity").key("spread_by"), "the other one")
                .hint("keep one of the two"),
        );
    }
    let selector = at.key("node_selector");
    for (field, labels) in [
        ("labels", &spec.node_selector.labels),
        ("prefer_labels", &spec.node_selector.prefer_labels),
    ] {
        let place = selector.key(field);
        findings.extend(
            labels
                .iter()
                .filter_map(|(key, value)| label_finding(&place, key, value)),
        );
    }
    check_platform(&at.key("platform"), spec, findings);
    check_rest(at, spec, findings);
}

fn check_affinity(
    at: &FieldPath,
    service: &FieldPath,
    affinity: &Affinity,
    spec: &ServiceSpec,
    findings: &mut Vec<SpecFinding>,
) {
    check_spread_by(&at.key("spread_by"), affinity.spread_by.as_deref(), findings);
    let names_none = spec.node_selector.labels.is_empty() && spec.node_selector.rules.is_empty();
    if affinity.mode == AffinityMode::Pin && names_none {
        findings.push(
            SpecFinding::at(
                at.key("mode"),
                "`pin` pins to the nodes of `node_selector`, which names none",
            )
            .because(service.key("node_selector"))
            .hint("add `node_selector: { labels: { zone: a } }`"),
        );
    }
}

fn check_spread_by(at: &FieldPath, label: Option<&str>, findings: &mut Vec<SpecFinding>) {
    let Some(label) = label else { return };
    if let Some((message, hint)) = label_name_problem(label) {
        let (message, hint) = match label {
            "" => (
                "`spread_by` is empty".to_owned(),
                "name a label of the nodes, such as `zone`",
            ),
            _ => (message, hint),
        };
        findings.push(SpecFinding::at(at.clone(), message).hint(hint));
    }
}

fn check_platform(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let platform = &spec.platform;
    let os = platform
        .os
        .as_deref()
        .and_then(|name| Some(("os", "operating system", name, os_hint(name)?)));
    let arch = platform
        .arch
        .as_deref()
        .and_then(|name| Some(("arch", "architecture", name, arch_hint(name)?)));
    for (field, what, name, hint) in [os, arch].into_iter().flatten() {
        let message = format!("{} is not the name of an {what} here", quoted(name));
        findings.push(SpecFinding::at(at.key(field), message).hint(hint));
    }
}

fn check_rest(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    if !(1..=100).contains(&spec.priority) {
        findings.push(
            SpecFinding::at(
                at.key("priority"),
                format!("a priority is 1 to 100, found {}", spec.priority),
            )
            .hint("50 is the default, higher places first"),
        );
    }
    let reschedule = spec.reschedule;
    let place = at.key("reschedule");
    for (field, span) in [("delay", reschedule.delay), ("lost_after", reschedule.lost_after)] {
        findings.extend(too_long(place.key(field), span));
        if !reschedule.enabled && span != TimeSpan::ZERO {
            findings.push(
                SpecFinding::at(
                    place.key(field),
                    format!("`{field}` has no meaning where rescheduling is off"),
                )
                .because(place.key("enabled"))
                .hint("remove it, or `enabled: false`"),
            );
        }
    }
}

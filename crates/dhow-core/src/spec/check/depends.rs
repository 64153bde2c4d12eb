//! Who waits for whom: services that are not there, and circles that would wait for ever.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{FieldPath, SpecFinding};
use super::suggest::did_you_mean;
use crate::ids::ServiceName;
use crate::spec::{Condition, Dependency, DeploymentSpec, RType, ServiceSpec};

/// Suggestions compare a name with other names: a file with thousands of wrong ones gets this many, each out of
/// this many names, so that a hostile file costs 50,000 comparisons at most.
pub(super) const SUGGESTIONS_MAX: usize = 50;
const NAMES_COMPARED_MAX: usize = 1_000;

pub(super) fn check(deployment: &DeploymentSpec, findings: &mut Vec<SpecFinding>) {
    let mut suggestions = 0;
    for (name, spec) in &deployment.services {
        let list = FieldPath::of("services").key(name.to_string()).key("depends");
        let mut seen: BTreeMap<&ServiceName, usize> = BTreeMap::new();
        for (position, dependency) in spec.depends.iter().enumerate() {
            let place = list.index(position);
            let target = &dependency.service;
            if dependency.timeout.as_millis() == 0 {
                findings.push(
                    SpecFinding::at(place.key("timeout"), "a timeout of 0 leaves no time to wait")
                        .hint("leave it out for 300s"),
                );
            }
            findings.extend(awaits_no_job(&place, dependency, deployment));
            let place = place.key("service");
            if target == name {
                findings.push(
                    SpecFinding::at(place, format!("`{name}` waits for itself"))
                        .hint("remove this dependency"),
                );
            } else if !deployment.services.contains_key(target) {
                suggestions += 1;
                findings.push(unknown(place, target, deployment, suggestions <= SUGGESTIONS_MAX));
            } else if let Some(first) = seen.insert(target, position) {
                findings.push(
                    SpecFinding::at(place, format!("`{target}` is there twice"))
                        .also(list.index(first).key("service"), "first here")
                        .hint("keep one of the two"),
                );
            }
        }
    }
    findings.extend(cycles(deployment));
}

/// Only a job comes to an end that others can wait for.
fn awaits_no_job(
    place: &FieldPath,
    dependency: &Dependency,
    deployment: &DeploymentSpec,
) -> Option<SpecFinding> {
    let target = &dependency.service;
    let awaited = deployment.services.get(target)?;
    if dependency.condition != Condition::Completed {
        return None;
    }
    let (what, hint) = match awaited.rtype {
        RType::Job => return None,
        RType::Cron => (
            "runs again and again",
            format!("write `rtype: job` for `{target}`, or wait for nothing"),
        ),
        RType::Service | RType::System => (
            "is no job and never completes",
            format!("write `condition: healthy`, or `rtype: job` for `{target}`"),
        ),
    };
    let awaited_at = FieldPath::of("services").key(target.to_string());
    Some(
        SpecFinding::at(place.key("condition"), format!("`{target}` {what}"))
            .because(awaited_at.key("rtype"))
            .hint(hint),
    )
}

/// A finding about a service that the deployment does not have, with the one that may be meant.
pub(super) fn unknown(
    place: FieldPath,
    target: &ServiceName,
    deployment: &DeploymentSpec,
    suggest: bool,
) -> SpecFinding {
    const NAMES_SHOWN_MAX: usize = 6;
    let names = deployment.services.keys().map(ServiceName::as_str);
    let near = suggest
        .then(|| did_you_mean(target.as_str(), names.clone().take(NAMES_COMPARED_MAX)))
        .flatten();
    let hint = near.unwrap_or_else(|| {
        let shown: Vec<String> = names
            .take(NAMES_SHOWN_MAX)
            .map(|name| format!("`{name}`"))
            .collect();
        let more = if deployment.services.len() > NAMES_SHOWN_MAX {
            ", …"
        } else {
            ""
        };
        format!("the services are {}{more}", shown.join(", "))
    });
    SpecFinding::at(
        place,
        format!("there is no service `{target}` in this deployment"),
    )
    .hint(hint)
}

/// A service on the way down, with the dependency to look at next.
struct Visit<'a> {
    name: &'a ServiceName,
    spec: &'a ServiceSpec,
    next: usize,
}

/// Every circle once, where it closes. The walk keeps its own stack: a chain of services may be long.
fn cycles(deployment: &DeploymentSpec) -> Vec<SpecFinding> {
    let mut findings = Vec::new();
    let mut done: BTreeSet<&ServiceName> = BTreeSet::new();
    for (name, spec) in &deployment.services {
        if done.contains(name) {
            continue;
        }
        let mut way = vec![Visit { name, spec, next: 0 }];
        let mut on_way: BTreeMap<&ServiceName, usize> = BTreeMap::from([(name, 0)]);
        while let Some(visit) = way.last_mut() {
            let position = visit.next;
            visit.next += 1;
            let Some(dependency) = visit.spec.depends.get(position) else {
                on_way.remove(visit.name);
                done.insert(visit.name);
                way.pop();
                continue;
            };
            let target = &dependency.service;
            if let Some(start) = on_way.get(target) {
                if target != visit.name {
                    findings.push(circle(&way[*start..], position));
                }
            } else if !done.contains(target)
                && let Some((name, spec)) = deployment.services.get_key_value(target)
            {
                on_way.insert(name, way.len());
                way.push(Visit { name, spec, next: 0 });
            }
        }
    }
    findings
}

fn circle(way: &[Visit<'_>], closes_at: usize) -> SpecFinding {
    const NAMES_SHOWN_MAX: usize = 8;
    let (first, last) = (way[0].name, way[way.len() - 1].name);
    let mut names: Vec<&str> = way
        .iter()
        .take(NAMES_SHOWN_MAX)
        .map(|visit| visit.name.as_str())
        .collect();
    if way.len() > NAMES_SHOWN_MAX {
        names.extend(["…", last.as_str()]);
    }
    names.push(first.as_str());
    let place = FieldPath::of("services")
        .key(last.to_string())
        .key("depends")
        .index(closes_at)
        .key("service");
    SpecFinding::at(
        place,
        format!("these services wait for each other: {}", names.join(" → ")),
    )
    .hint("none of them could ever start: remove one of these dependencies")
}

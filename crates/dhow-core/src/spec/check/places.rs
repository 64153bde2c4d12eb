//! Rules about several nodes at once: limits, shares, and where other services are to be.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{FieldPath, SpecFinding};
use super::suggest::did_you_mean;
use super::words::label_name_problem;
use crate::ids::ServiceName;
use crate::spec::{DeploymentSpec, Neighbour, RType, ServiceSpec};

/// Comparisons of one selector, labels with a limit, and neighbours of one service: each is looked at for every node.
const RULES_MAX: usize = 32;

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    check_selector(&at.key("node_selector").key("where"), spec, findings);
    for label in spec.max_per.keys() {
        findings.extend(label_problem(at.key("max_per").key(label.clone()), label));
    }
    for (field, count) in [
        ("max_per", spec.max_per.len()),
        ("spread_percent", spec.spread_percent.len()),
    ] {
        findings.extend(too_many(at.key(field), count));
    }
    check_shares(at, spec, findings);
    if spec.rtype == RType::System {
        check_system(at, spec, findings);
    }
    for (position, group) in spec.replica_groups.iter().enumerate() {
        let affinity = group.affinity.as_ref();
        if affinity.is_some_and(crate::spec::Affinity::has_neighbours) {
            let place = at.key("replica_groups").index(position).key("affinity");
            findings.push(
                SpecFinding::at(
                    place,
                    "`near` and `away_from` are of a whole service, not of a group",
                )
                .hint("write them in the `affinity` of the service"),
            );
        }
    }
}

fn check_selector(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let rules = &spec.node_selector.rules;
    findings.extend(too_many(at.clone(), rules.len()));
    for (position, rule) in rules.iter().enumerate() {
        findings.extend(label_problem(at.index(position), &rule.label));
    }
}

fn label_problem(at: FieldPath, label: &str) -> Option<SpecFinding> {
    label_name_problem(label).map(|(message, hint)| SpecFinding::at(at, message).hint(hint))
}

fn too_many(at: FieldPath, count: usize) -> Option<SpecFinding> {
    (count > RULES_MAX).then(|| {
        SpecFinding::at(at, format!("at most {RULES_MAX} may be here, found {count}"))
            .hint("give the nodes a label for what they have in common")
    })
}

fn check_shares(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    if spec.spread_percent.is_empty() {
        return;
    }
    let place = at.key("spread_percent");
    if spec.spread_by.is_none() && spec.affinity.spread_by.is_none() {
        findings.push(
            SpecFinding::at(
                place.clone(),
                "`spread_percent` is of the label of `spread_by`, which is not there",
            )
            .hint("add `spread_by: zone`"),
        );
    }
    let sum: u32 = spec.spread_percent.values().map(|share| share.hundredths()).sum();
    if sum > 100 {
        findings.push(
            SpecFinding::at(place, format!("the shares add up to {sum}%"))
                .hint("write shares of at most 100% together; values that are not named share the rest"),
        );
    }
}

fn check_system(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let affinity = &spec.affinity;
    let used = [
        (at.key("max_per_node"), spec.max_per_node.is_some()),
        (at.key("max_per"), !spec.max_per.is_empty()),
        (at.key("spread_percent"), !spec.spread_percent.is_empty()),
        (at.key("affinity").key("near"), !affinity.near.is_empty()),
        (
            at.key("affinity").key("away_from"),
            !affinity.away_from.is_empty(),
        ),
    ];
    for (place, _) in used.into_iter().filter(|(_, used)| *used) {
        findings.push(
            SpecFinding::at(
                place,
                "a `system` service has one replica on every node that fits",
            )
            .because(at.key("rtype"))
            .hint("remove it; `node_selector` chooses the nodes"),
        );
    }
}

/// Neighbours that are not there, that cannot be met, and circles that would wait for ever.
pub(super) fn check_deployment(deployment: &DeploymentSpec, findings: &mut Vec<SpecFinding>) {
    for (name, spec) in &deployment.services {
        let affinity = FieldPath::of("services").key(name.to_string()).key("affinity");
        for (field, list) in [
            ("near", &spec.affinity.near),
            ("away_from", &spec.affinity.away_from),
        ] {
            findings.extend(too_many(affinity.key(field), list.len()));
            for (position, neighbour) in list.iter().take(RULES_MAX).enumerate() {
                let place = affinity.key(field).index(position);
                if let Some(label) = &neighbour.by {
                    findings.extend(label_problem(place.key("by"), label));
                }
                findings.extend(neighbour_problem(place, (name, field), neighbour, deployment));
            }
        }
        let both = spec.affinity.away_from.iter().position(|away| {
            let same = |near: &Neighbour| near.service == away.service && near.by == away.by;
            spec.affinity.near.iter().any(same)
        });
        if let Some(position) = both {
            findings.push(
                SpecFinding::at(
                    affinity.key("away_from").index(position),
                    format!(
                        "`{}` is to be near as well",
                        spec.affinity.away_from[position].service
                    ),
                )
                .also(affinity.key("near"), "here")
                .hint("keep one of the two"),
            );
        }
    }
    findings.extend(circle(deployment));
}

fn neighbour_problem(
    place: FieldPath,
    (name, field): (&ServiceName, &str),
    neighbour: &Neighbour,
    deployment: &DeploymentSpec,
) -> Option<SpecFinding> {
    let other = &neighbour.service;
    if other == name {
        let hint = match field {
            "near" => "write `affinity: pack`",
            _ => "write `max_per_node: 1`, or `max_per: { zone: 1 }`",
        };
        let message = format!("`{name}` names itself");
        return Some(SpecFinding::at(place, message).hint(hint));
    }
    let Some(found) = deployment.services.get(other) else {
        let names = deployment.services.keys().take(1_000).map(ServiceName::as_str);
        let hint = did_you_mean(other.as_str(), names)
            .unwrap_or_else(|| "name a service of this deployment".to_owned());
        let message = format!("there is no service `{other}` in this deployment");
        return Some(SpecFinding::at(place, message).hint(hint));
    };
    if neighbour.prefer {
        return None;
    }
    let other_at = FieldPath::of("services").key(other.to_string()).key("rtype");
    match (field, found.rtype) {
        ("near", RType::Job | RType::Cron) => Some(
            SpecFinding::at(place, format!("`{other}` is a job, which ends by itself"))
                .because(other_at)
                .hint("write `prefer: true`, or choose the nodes by `node_selector`"),
        ),
        ("away_from", RType::System) => Some(
            SpecFinding::at(place, format!("`{other}` runs on every node that fits"))
                .because(other_at)
                .hint("choose the nodes of both by `node_selector`"),
        ),
        (_, RType::Service | RType::System | RType::Job | RType::Cron) => None,
    }
}

/// Services that all wait for one another to be somewhere.
fn circle(deployment: &DeploymentSpec) -> Option<SpecFinding> {
    let needs = |spec: &ServiceSpec| -> BTreeSet<ServiceName> {
        let near = spec.affinity.near.iter().filter(|near| !near.prefer);
        near.map(|near| near.service.clone()).collect()
    };
    let mut open: BTreeMap<&ServiceName, BTreeSet<ServiceName>> = BTreeMap::new();
    for (name, spec) in &deployment.services {
        let mut near = needs(spec);
        near.retain(|other| other != name && deployment.services.contains_key(other));
        if !near.is_empty() {
            open.insert(name, near);
        }
    }
    loop {
        let free: Vec<&ServiceName> = open
            .iter()
            .filter(|(_, near)| near.iter().all(|other| !open.contains_key(other)))
            .map(|(name, _)| *name)
            .collect();
        if free.is_empty() {
            break;
        }
        for name in free {
            open.remove(name);
        }
    }
    let (first, near) = open.into_iter().next()?;
    let other = near.into_iter().next()?;
    let place = FieldPath::of("services")
        .key(first.to_string())
        .key("affinity")
        .key("near");
    let message = format!(
        "`{first}` is to be near to `{other}`, and in a circle that one near to it: neither could begin"
    );
    Some(SpecFinding::at(place, message).hint("write `prefer: true` for one of them"))
}

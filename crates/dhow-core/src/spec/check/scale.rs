//! How many replicas.

use super::finding::{FieldPath, SpecFinding};
use super::limits::SERVICE_REPLICAS_MAX;
use crate::spec::{Protocol, RType, ScaleSpec, ScaleTargets, ServiceSpec};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let place = at.key("scale");
    if !spec.replica_groups.is_empty() && spec.scale != ScaleSpec::default() {
        findings.push(beside_groups(at));
    }
    if spec.rtype == RType::System {
        check_system(at, spec, findings);
    }
    match &spec.scale {
        ScaleSpec::Fixed { replicas } => findings.extend(too_many(place.key("replicas"), *replicas)),
        ScaleSpec::Adaptive { max, .. } => {
            findings.extend(too_many(place.key("max"), *max));
            check_adaptive(at, spec, findings);
        }
        ScaleSpec::Manual {} => {}
    }
    check_groups(at, spec, findings);
}

/// The finding for a `scale` beside `replica_groups`. The reader of files uses it too: it alone sees a
/// `scale` that says what is the default anyway.
pub fn beside_groups(at: &FieldPath) -> SpecFinding {
    SpecFinding::at(
        at.key("scale"),
        "`scale` stands beside `replica_groups`, whose counts already say how many",
    )
    .also(at.key("replica_groups"), "these")
    .hint("remove `scale`, or the groups")
}

fn too_many(at: FieldPath, count: u32) -> Option<SpecFinding> {
    (count > SERVICE_REPLICAS_MAX).then(|| {
        let message = format!("{count} replicas are too many, a service has at most {SERVICE_REPLICAS_MAX}");
        SpecFinding::at(at, message).hint("split it into several services if this is meant")
    })
}

fn check_system(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let hint = "remove it; `node_selector` chooses the nodes";
    if spec.scale != ScaleSpec::default() {
        findings.push(
            SpecFinding::at(
                at.key("scale"),
                "a `system` service has one replica on every node that fits, so no `scale`",
            )
            .because(at.key("rtype"))
            .hint(hint),
        );
    }
    if !spec.replica_groups.is_empty() {
        findings.push(
            SpecFinding::at(
                at.key("replica_groups"),
                "a `system` service has one replica on every node that fits, so no groups with counts",
            )
            .because(at.key("rtype"))
            .hint(hint),
        );
    }
}

fn check_adaptive(service: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let ScaleSpec::Adaptive {
        min,
        max,
        targets,
        cold_start,
        ..
    } = &spec.scale
    else {
        return;
    };
    let at = &service.key("scale");
    if matches!(spec.rtype, RType::Job | RType::Cron) {
        findings.push(
            SpecFinding::at(at.key("mode"), "what runs to its end has no load to be scaled by")
                .because(service.key("rtype"))
                .hint("a job says how often it is to be done by `completions`"),
        );
    }
    check_limits(at, *min, *max, findings);
    if *min == 0 {
        check_zero((service, at), spec, findings);
    } else if cold_start.is_some() {
        findings.push(
            SpecFinding::at(
                at.key("cold_start"),
                "no request waits for a first replica, there always is one",
            )
            .because(at.key("min"))
            .hint("remove it, or write `min: 0`"),
        );
    }
    check_targets(at, spec, targets, findings);
}

fn check_limits(at: &FieldPath, min: u32, max: u32, findings: &mut Vec<SpecFinding>) {
    if min > max {
        findings.push(
            SpecFinding::at(
                at.key("min"),
                format!("`min` is {min}, above `max`, which is {max}"),
            )
            .because(at.key("max"))
            .hint("swap them, or raise `max`"),
        );
    } else if max == 0 {
        findings.push(SpecFinding::at(at.key("max"), "with `max: 0` nothing ever runs").hint("raise it"));
    }
}

/// Only requests of HTTP wait until somebody is there to answer them.
fn check_zero((service, at): (&FieldPath, &FieldPath), spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let is_held = |protocol: Protocol| match protocol {
        Protocol::Http | Protocol::Websocket => true,
        Protocol::Https | Protocol::Tcp | Protocol::Udp => false,
    };
    let other = spec
        .endpoints
        .iter()
        .position(|endpoint| !is_held(endpoint.protocol));
    if spec.endpoints.is_empty() {
        findings.push(
            SpecFinding::at(
                at.key("min"),
                "with `min: 0` a service needs an endpoint: its requests wake it",
            )
            .hint("write `min: 1`, or give it an endpoint with `protocol: http`"),
        );
    } else if let Some(position) = other {
        findings.push(
            SpecFinding::at(
                at.key("min"),
                "with `min: 0` all endpoints of a service are `http` or `websocket`: others cannot wait for a first replica",
            )
            .because(service.key("endpoints").index(position).key("protocol"))
            .hint("write `min: 1`"),
        );
    }
}

fn check_targets(
    at: &FieldPath,
    spec: &ServiceSpec,
    targets: &ScaleTargets,
    findings: &mut Vec<SpecFinding>,
) {
    let values = [
        ("cpu", targets.cpu),
        ("memory", targets.memory),
        ("rps", targets.rps),
        ("in_flight", targets.in_flight),
    ];
    if values.iter().all(|(_, value)| value.is_none()) {
        findings.push(
            SpecFinding::at(at.key("targets"), "adaptive scaling has nothing to go by")
                .hint("add a target, such as `targets: { in_flight: 10 }`"),
        );
    }
    for (field, value) in values {
        if let Some(value) = value.filter(|value| !value.is_finite() || *value <= 0.0) {
            findings.push(
                SpecFinding::at(
                    at.key("targets").key(field),
                    format!("a target is a number above 0, found {value}"),
                )
                .hint("such as `70`"),
            );
        }
    }
    let resources = &spec.resources;
    let reserved = [
        ("cpu", targets.cpu.is_some(), resources.cpu.is_some(), "0.5"),
        (
            "memory",
            targets.memory.is_some(),
            resources.memory.is_some(),
            "256Mi",
        ),
    ];
    for (field, _, _, example) in reserved.into_iter().filter(|(_, asked, has, _)| *asked && !has) {
        findings.push(
            SpecFinding::at(
                at.key("targets").key(field),
                format!("the target is percent of `resources.{field}`, which the service does not have"),
            )
            .hint(format!("write `resources: {{ {field}: {example} }}`")),
        );
    }
    let counts = |protocol: Protocol| protocol != Protocol::Udp;
    if spec.endpoints.iter().any(|endpoint| counts(endpoint.protocol)) {
        return;
    }
    for (field, value) in values.into_iter().skip(2) {
        if value.is_some() {
            findings.push(
                SpecFinding::at(
                    at.key("targets").key(field),
                    "it is counted where requests pass, and the service has no endpoint that they come to",
                )
                .hint("give it an endpoint, or take `cpu` as its target"),
            );
        }
    }
}

fn check_groups(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let list = at.key("replica_groups");
    let mut total: u64 = 0;
    let mut alone_too_many = false;
    for (position, group) in spec.replica_groups.iter().enumerate() {
        total += u64::from(group.count);
        let finding = too_many(list.index(position).key("count"), group.count);
        alone_too_many |= finding.is_some();
        findings.extend(finding);
    }
    if !alone_too_many && total > u64::from(SERVICE_REPLICAS_MAX) {
        let message = format!(
            "the groups have {total} replicas together, a service has at most {SERVICE_REPLICAS_MAX}"
        );
        findings.push(SpecFinding::at(list, message).hint("split it into several services if this is meant"));
    }
}

//! How many replicas.

use super::finding::{FieldPath, SpecFinding};
use super::limits::SERVICE_REPLICAS_MAX;
use crate::spec::{RType, ScaleSpec, ScaleTargets, ServiceSpec};

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
        ScaleSpec::Adaptive {
            min, max, targets, ..
        } => {
            findings.extend(too_many(place.key("max"), *max));
            check_adaptive(&place, *min, *max, targets, findings);
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

fn check_adaptive(
    at: &FieldPath,
    min: u32,
    max: u32,
    targets: &ScaleTargets,
    findings: &mut Vec<SpecFinding>,
) {
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
    let values = [
        ("cpu", targets.cpu),
        ("memory", targets.memory),
        ("rps", targets.rps),
    ];
    if values.iter().all(|(_, value)| value.is_none()) {
        findings.push(
            SpecFinding::at(at.key("targets"), "adaptive scaling has nothing to go by")
                .hint("add a target, such as `targets: { cpu: 70 }`"),
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

//! Rollouts that could never end.

use super::finding::{FieldPath, SpecFinding};
use super::health::too_long;
use crate::spec::{Promote, RType, ScaleSpec, ServiceSpec, TimeSpan};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    check_room(at, spec, findings);
    check_deadlines(&at.key("rollout"), spec, findings);
    check_canary(at, spec, findings);
}

/// A canary runs beside the replicas that it is compared with.
fn check_canary(service: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let (at, rollout) = (service.key("rollout"), &spec.rollout);
    if rollout.canary == 0 {
        if rollout.promote == Promote::Manual {
            findings.push(
                SpecFinding::at(
                    at.key("promote"),
                    "`promote: manual` without a canary waits for nothing",
                )
                .because(at.key("canary"))
                .hint("add `canary: 1`, or remove it"),
            );
        }
        return;
    }
    let canary = at.key("canary");
    findings.extend(too_long(at.key("observe"), rollout.observe));
    if spec.rtype != RType::Service {
        findings.push(
            SpecFinding::at(
                canary,
                "only a `service` has a canary: nobody calls the others beside their old version",
            )
            .because(service.key("rtype"))
            .hint("remove `canary`"),
        );
        return;
    }
    if spec.has_named_storage() {
        findings.push(
            SpecFinding::at(
                canary,
                "a service with `named` storage has no canary: its volume is in one place",
            )
            .also(service.key("storage"), "the storage")
            .hint("remove `canary`; its replicas are replaced one by one"),
        );
        return;
    }
    if spec.max_surge() == 0 {
        findings.push(
            SpecFinding::at(
                canary,
                "a canary runs beside the replicas, and `max_surge: 0` leaves it no room",
            )
            .because(at.key("max_surge"))
            .hint("write `max_surge: 1`, or remove `canary`"),
        );
        return;
    }
    let replicas = match spec.scale {
        ScaleSpec::Fixed { .. } => spec.desired_total_at_first(),
        ScaleSpec::Adaptive { .. } | ScaleSpec::Manual {} => return,
    };
    if replicas > 0 && rollout.canary > replicas {
        findings.push(
            SpecFinding::at(
                canary,
                format!("{} canaries for {replicas} replicas", rollout.canary),
            )
            .hint("write at most as many as there are replicas"),
        );
    }
}

/// A rollout needs room to move: one more, or one fewer.
fn check_room(service: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let at = service.key("rollout");
    let has_volume = spec.has_named_storage();
    if has_volume && spec.max_surge() > 0 {
        findings.push(
            SpecFinding::at(
                at.key("max_surge"),
                "a service with `named` storage cannot surge: its volume is in one place",
            )
            .also(service.key("storage"), "the storage")
            .hint("remove `max_surge`; such a service rolls with `max_surge: 0`, `max_unavailable: 1`"),
        );
        return;
    }
    if spec.runs_to_completion() || spec.max_surge() > 0 || spec.max_unavailable() > 0 {
        return;
    }
    // Points at the field that the author wrote; the other one may be a default.
    let (field, hint) = match (spec.rollout.max_surge, spec.rollout.max_unavailable) {
        (_, Some(_)) if has_volume => ("max_unavailable", "remove it, or write `max_unavailable: 1`"),
        (Some(_), None) => ("max_surge", "add `max_unavailable: 1`, or remove `max_surge: 0`"),
        (Some(_) | None, _) => ("max_surge", "raise one of the two to 1"),
    };
    findings.push(
        SpecFinding::at(
            at.key(field),
            "with `max_surge: 0` and `max_unavailable: 0` a rollout could never replace anything",
        )
        .because(at.key("max_surge"))
        .because(at.key("max_unavailable"))
        .because(service.key("storage"))
        .hint(hint),
    );
}

fn check_deadlines(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let rollout = &spec.rollout;
    let deadlines = [
        ("healthy_deadline", rollout.healthy_deadline),
        ("progress_deadline", rollout.progress_deadline),
    ];
    for (field, span) in deadlines {
        findings.extend(too_long(at.key(field), span));
        if span == TimeSpan::ZERO {
            findings.push(
                SpecFinding::at(
                    at.key(field),
                    format!("with `{field}: 0s` every rollout fails at once"),
                )
                .hint("leave it out for the default"),
            );
        } else if rollout.min_healthy >= span {
            findings.push(
                SpecFinding::at(
                    at.key("min_healthy"),
                    format!(
                        "a replica has to be healthy for {}, but `{field}` gives up after {span}",
                        rollout.min_healthy
                    ),
                )
                .because(at.key(field))
                .hint(format!("lower `min_healthy`, or raise `{field}`")),
            );
        }
    }
}

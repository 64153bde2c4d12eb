//! What a replica reserves and may use.

use super::finding::{FieldPath, SpecFinding};
use super::limits::{MEMORY_MAX_BYTES, MEMORY_MIN_BYTES, PIDS_MAX};
use crate::spec::{ByteSize, Resources, ServiceSpec};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    check_one(&at.key("resources"), &spec.resources, findings);
    for (position, group) in spec.replica_groups.iter().enumerate() {
        if let Some(resources) = &group.resources {
            let place = at.key("replica_groups").index(position).key("resources");
            check_one(&place, resources, findings);
        }
    }
}

fn check_one(at: &FieldPath, resources: &Resources, findings: &mut Vec<SpecFinding>) {
    if let Some(ByteSize(bytes)) = resources.memory {
        let place = at.key("memory");
        if bytes < MEMORY_MIN_BYTES {
            // A bare number is bytes; nearly always mebibytes were meant.
            let hint = if bytes > 0 {
                format!("did you mean `{bytes}Mi`?")
            } else {
                "leave it out for no limit".into()
            };
            let message = format!(
                "{bytes} bytes of memory are too few for any program, at least {} are needed",
                ByteSize(MEMORY_MIN_BYTES)
            );
            findings.push(SpecFinding::at(place, message).hint(hint));
        } else if bytes > MEMORY_MAX_BYTES {
            let message = format!(
                "{} of memory are more than any node has, at most {} are allowed",
                ByteSize(bytes),
                ByteSize(MEMORY_MAX_BYTES)
            );
            findings.push(SpecFinding::at(place, message).hint("check the unit: `Mi` and `Gi` are usual"));
        }
    }
    let pids = resources.pids.filter(|pids| *pids == 0 || *pids > PIDS_MAX);
    if let Some(pids) = pids {
        findings.push(
            SpecFinding::at(at.key("pids"), format!("`pids` is 1 to {PIDS_MAX}, found {pids}"))
                .hint("leave it out for no limit"),
        );
    }
}

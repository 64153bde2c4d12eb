//! What the language has and this version does not carry out. Such a field is refused by name: a promise that
//! is not kept would be found out in production.

use super::finding::{FieldPath, SpecFinding};
use crate::spec::{ScaleSpec, ServiceSpec};

struct Unsupported {
    field: [&'static str; 2],
    text: &'static str,
    is_used: fn(&ServiceSpec) -> bool,
    instead: &'static str,
}

/// Shorten this list by carrying one of them out.
const NOT_IN_THIS_VERSION: [Unsupported; 1] = [Unsupported {
    field: ["scale", "mode"],
    text: "`scale.mode: adaptive`",
    is_used: |spec| matches!(spec.scale, ScaleSpec::Adaptive { .. }),
    instead: "write `{ mode: fixed, replicas: N }`; `dhow scale` changes the count of `mode: manual` at any time",
}];

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    for field in NOT_IN_THIS_VERSION.iter().filter(|field| (field.is_used)(spec)) {
        let [block, name] = field.field;
        let message = format!("{} is not in this version", field.text);
        findings.push(SpecFinding::at(at.key(block).key(name), message).hint(field.instead));
    }
}

//! Who may call an endpoint: services that are not there, and rules that mean nothing.

use super::depends::{SUGGESTIONS_MAX, unknown};
use super::finding::{FieldPath, SpecFinding};
use crate::ids::{DeploymentName, ServiceKey};
use crate::spec::{DeploymentSpec, Endpoint, Expose};

/// Services that one endpoint names: every node that knows the endpoint keeps the list. Whoever has more callers opens it
/// to the cluster.
const ALLOWED_MAX: usize = 64;

pub(super) fn check(deployment: &DeploymentSpec, findings: &mut Vec<SpecFinding>) {
    let mut suggestions = 0;
    for (name, spec) in &deployment.services {
        let list = FieldPath::of("services").key(name.to_string()).key("endpoints");
        for (position, endpoint) in spec.endpoints.iter().enumerate() {
            let at = list.index(position);
            check_list(&at, &deployment.deployment, endpoint, findings);
            for (position, allowed) in endpoint.allow.iter().flatten().enumerate() {
                let key = allowed.key(&deployment.deployment);
                let is_own = key.deployment == deployment.deployment;
                // Another deployment may come later: its services are not known here.
                if is_own && !deployment.services.contains_key(&key.service) {
                    suggestions += 1;
                    let place = at.key("allow").index(position);
                    let suggest = suggestions <= SUGGESTIONS_MAX;
                    findings.push(unknown(place, &key.service, deployment, suggest));
                }
            }
        }
    }
}

fn check_list(at: &FieldPath, own: &DeploymentName, endpoint: &Endpoint, findings: &mut Vec<SpecFinding>) {
    let Some(allow) = &endpoint.allow else { return };
    let place = at.key("allow");
    match endpoint.expose {
        Expose::Public => findings.push(
            SpecFinding::at(
                place.clone(),
                "a public endpoint answers everybody, `allow` cannot narrow it",
            )
            .because(at.key("expose"))
            .hint("remove `allow`, or give those services an endpoint of their own with `expose: internal`"),
        ),
        Expose::Internal | Expose::Cluster => {}
    }
    if allow.is_empty() {
        findings.push(
            SpecFinding::at(place.clone(), "nobody could call this endpoint")
                .hint("name the services that may, or remove `allow`"),
        );
    }
    if allow.len() > ALLOWED_MAX {
        let message = format!(
            "`allow` names {} services, at most {ALLOWED_MAX} are possible",
            allow.len()
        );
        findings
            .push(SpecFinding::at(place.clone(), message).hint("write `expose: cluster` without `allow`"));
    }
    let keys: Vec<ServiceKey> = allow
        .iter()
        .take(ALLOWED_MAX)
        .map(|allowed| allowed.key(own))
        .collect();
    for (position, key) in keys.iter().enumerate() {
        if let Some(first) = keys[..position].iter().position(|known| known == key) {
            findings.push(
                SpecFinding::at(
                    place.index(position),
                    format!("`{}` is there twice", allow[position]),
                )
                .also(place.index(first), "first here")
                .hint("keep one of the two"),
            );
        }
    }
}

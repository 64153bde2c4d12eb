//! Secrets for a node: those that the specs of its replicas name, the certificates of public endpoints if it takes requests
//! from outside, the credentials of registries that they pull from, and no others.

use std::collections::BTreeSet;

use dhow_core::directory::certificates_for;
use dhow_core::ids::NodeId;
use dhow_core::registries;
use dhow_core::state::State;
use dhow_wire::grpc::{Refusal, proto};

use super::limits::SECRET_NAMES_MAX;
use crate::plane::secrets::{SecretBox, unseal_all};

/// How a value of an environment names a secret.
const SECRET_MARK: &str = "$S:";

pub(super) fn answer(
    secrets: &SecretBox,
    state: &State,
    node: NodeId,
    names: &[String],
) -> Result<proto::SecretsReply, Refusal> {
    if names.len() > SECRET_NAMES_MAX {
        return Err(Refusal::Malformed(format!(
            "at most {SECRET_NAMES_MAX} secrets are given at a time"
        )));
    }
    let mut known = named_on(state, node);
    if let Some(node) = state.node(node) {
        known.extend(certificates_for(state, node).into_iter().map(str::to_owned));
    }
    let is_given = |name: &str| match registries::host_in(name) {
        // A spec that names one is not how it is given.
        Some(host) => registries::may_have(state, node, host),
        None => known.contains(name),
    };
    if let Some(other) = names.iter().find(|name| !is_given(name)) {
        // The name is the caller's own word: it is cut, so that it cannot fill a log.
        let other: String = other.chars().take(64).collect();
        return Err(Refusal::NotGiven(format!(
            "no replica of node {node} names the secret `{other}`, and it is not the certificate of an endpoint that this node serves"
        )));
    }
    let opened = unseal_all(secrets, state, names.iter().map(String::as_str));
    let opened = opened.map_err(|error| Refusal::NotGiven(error.to_string()))?;
    let secrets = opened
        .0
        .into_iter()
        .map(|(name, value)| proto::Secret { name, value });
    Ok(proto::SecretsReply {
        secrets: secrets.collect(),
    })
}

/// The secrets that the node's replicas name.
fn named_on(state: &State, node: NodeId) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let Some(node) = state.node(node) else {
        return names;
    };
    for (id, assigned) in node.assignments.services() {
        let Some(service) = state.service(id) else {
            continue;
        };
        let roles = assigned.replicas.iter();
        let roles: BTreeSet<_> = roles
            .map(|replica| (replica.generation, replica.slot.role))
            .collect();
        for (generation, role) in roles {
            let (Some(info), Some(role)) = (service.info(generation), service.role(role)) else {
                continue;
            };
            let env = info.spec.for_role(role).env;
            names.extend(
                env.values()
                    .filter_map(|value| Some(value.strip_prefix(SECRET_MARK)?.to_owned())),
            );
        }
    }
    names
}

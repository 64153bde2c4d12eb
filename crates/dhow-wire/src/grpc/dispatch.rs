//! From an assignment to the parts in which it travels.

use std::collections::BTreeMap;

use dhow_core::dispatch::{Dispatch, DispatchChange, DispatchedReplica, DispatchedSettings};
use dhow_core::ids::{Generation, RoleName, ServiceKey, SettingsId};
use dhow_core::spec::ServiceSpec;

use super::malformed::Malformed;
use super::proto;

/// A part is closed once it is larger than this. A node's whole assignment is mostly below; one with hundreds of
/// services goes out in parts, so that no message is as large as all of them.
const PART_BYTES: usize = 512 * 1024;

/// The parts, at least one.
pub fn to_assignments(dispatch: &Dispatch) -> Result<Vec<proto::Assignment>, Malformed> {
    let part = |more| proto::Assignment {
        revision: dispatch.revision.0,
        whole: dispatch.whole,
        more,
        services: Vec::new(),
        term: dispatch.term.unwrap_or_default().0,
    };
    let mut parts = vec![part(false)];
    let mut size_bytes = 0;
    for change in &dispatch.changes {
        let service = match change {
            DispatchChange::Set { service, replicas } => set_of(service, replicas)?,
            DispatchChange::Delete { service } => empty(service),
        };
        if size_bytes > PART_BYTES
            && let Some(full) = parts.last_mut()
        {
            full.more = true;
            parts.push(part(false));
            size_bytes = 0;
        }
        size_bytes += service
            .roles
            .iter()
            .map(|role| role.spec_json.len() + role.next.as_ref().map_or(0, |next| next.spec_json.len()))
            .sum::<usize>();
        if let Some(open) = parts.last_mut() {
            open.services.push(service);
        }
    }
    Ok(parts)
}

fn empty(service: &ServiceKey) -> proto::ServiceAssignment {
    proto::ServiceAssignment {
        deployment: service.deployment.to_string(),
        service: service.service.to_string(),
        roles: Vec::new(),
    }
}

/// Those of a role and generation that try the same settings, or none.
type Alike<'a> = (&'a RoleName, Generation, Option<SettingsId>);
type Roles<'a> = BTreeMap<Alike<'a>, (&'a DispatchedReplica, Vec<u32>)>;

/// Replicas that are alike run the same spec, so that it travels once.
fn set_of(
    service: &ServiceKey,
    replicas: &[DispatchedReplica],
) -> Result<proto::ServiceAssignment, Malformed> {
    let mut roles: Roles<'_> = BTreeMap::new();
    for replica in replicas {
        let settings = replica.next.as_ref().map(|next| next.id);
        let key = (&replica.name.role, replica.name.generation, settings);
        let (_, indices) = roles.entry(key).or_insert((replica, Vec::new()));
        indices.push(replica.name.index);
    }
    let mut told = empty(service);
    for ((role, generation, _), (replica, indices)) in roles {
        let next = replica.next.as_ref().map(next_of).transpose()?;
        told.roles.push(proto::RoleAssignment {
            role: role.to_string(),
            generation: generation.0,
            indices,
            spec_json: json_of(&replica.spec)?,
            next,
        });
    }
    Ok(told)
}

fn next_of(next: &DispatchedSettings) -> Result<proto::NextSettings, Malformed> {
    Ok(proto::NextSettings {
        id: next.id.0,
        spec_json: json_of(&next.spec)?,
    })
}

fn json_of(spec: &ServiceSpec) -> Result<Vec<u8>, Malformed> {
    serde_json::to_vec(spec).map_err(|_| Malformed::Unwritable { what: "spec_json" })
}

//! From an assignment to the parts in which it travels.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::dispatch::{Dispatch, DispatchChange, DispatchedReplica};
use dhow_core::ids::{Generation, RoleName, ServiceKey};
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
            .map(|role| role.spec_json.len())
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

type Roles<'a> = BTreeMap<(&'a RoleName, Generation), (&'a Arc<ServiceSpec>, Vec<u32>)>;

/// Replicas of one role and generation run the same spec, so that it travels once.
fn set_of(
    service: &ServiceKey,
    replicas: &[DispatchedReplica],
) -> Result<proto::ServiceAssignment, Malformed> {
    let mut roles: Roles<'_> = BTreeMap::new();
    for replica in replicas {
        let key = (&replica.name.role, replica.name.generation);
        let (_, indices) = roles.entry(key).or_insert((&replica.spec, Vec::new()));
        indices.push(replica.name.index);
    }
    let mut told = empty(service);
    for ((role, generation), (spec, indices)) in roles {
        let spec_json = serde_json::to_vec(spec.as_ref());
        told.roles.push(proto::RoleAssignment {
            role: role.to_string(),
            generation: generation.0,
            indices,
            spec_json: spec_json.map_err(|_| Malformed::Unwritable { what: "spec_json" })?,
        });
    }
    Ok(told)
}

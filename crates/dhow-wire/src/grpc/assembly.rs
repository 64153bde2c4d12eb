//! From the parts in which an assignment travels back to it.

use std::sync::Arc;

use dhow_core::dispatch::{Dispatch, DispatchChange, DispatchedReplica, DispatchedSettings};
use dhow_core::ids::{
    DeploymentName, Generation, NameError, ReplicaName, Revision, RoleName, ServiceKey, ServiceName,
    SettingsId, Term,
};
use dhow_core::spec::ServiceSpec;

use super::malformed::Malformed;
use super::proto;

/// Services in one assignment. A node runs a few thousand replicas at the very most; this is a server gone mad.
const SERVICES_MAX: usize = 65_536;

/// Parts that have come, and wait for the last one.
#[derive(Debug, Default)]
pub struct Assembly {
    begun: Option<Dispatch>,
}

impl Assembly {
    /// Takes a part; the whole assignment once it was the last one.
    pub fn push(&mut self, part: proto::Assignment) -> Result<Option<Dispatch>, Malformed> {
        let (revision, whole) = (Revision(part.revision), part.whole);
        let term = Some(Term(part.term)).filter(|term| term.0 > 0);
        let mut dispatch = match self.begun.take() {
            Some(begun) if begun.revision == revision && begun.whole == whole && begun.term == term => begun,
            Some(_) => return Err(Malformed::Parts),
            None => Dispatch {
                term,
                // Said once, when the session opens.
                cluster: None,
                revision,
                whole,
                changes: Vec::new(),
            },
        };
        for service in part.services {
            dispatch.changes.push(change_of(service)?);
        }
        if dispatch.changes.len() > SERVICES_MAX {
            return Err(Malformed::TooMany {
                what: "services",
                found: dispatch.changes.len(),
                max: SERVICES_MAX,
            });
        }
        if part.more {
            self.begun = Some(dispatch);
            return Ok(None);
        }
        Ok(Some(dispatch))
    }
}

fn change_of(told: proto::ServiceAssignment) -> Result<DispatchChange, Malformed> {
    let service = ServiceKey {
        deployment: name("deployment", DeploymentName::new(&told.deployment))?,
        service: name("service", ServiceName::new(&told.service))?,
    };
    if told.roles.is_empty() {
        return Ok(DispatchChange::Delete { service });
    }
    let mut replicas = Vec::new();
    for role in told.roles {
        let (spec, role_name) = (
            read_spec(&service, &role.spec_json)?,
            name("role", RoleName::new(&role.role))?,
        );
        let next = match &role.next {
            Some(next) => Some(DispatchedSettings {
                id: SettingsId(next.id),
                spec: read_spec(&service, &next.spec_json)?,
            }),
            None => None,
        };
        replicas.extend(role.indices.iter().map(|index| DispatchedReplica {
            name: ReplicaName {
                deployment: service.deployment.clone(),
                service: service.service.clone(),
                role: role_name.clone(),
                index: *index,
                generation: Generation(role.generation),
            },
            spec: Arc::clone(&spec),
            next: next.clone(),
        }));
    }
    Ok(DispatchChange::Set { service, replicas })
}

fn read_spec(service: &ServiceKey, json: &[u8]) -> Result<Arc<ServiceSpec>, Malformed> {
    let spec = serde_json::from_slice(json).map_err(|cause| Malformed::Spec {
        service: service.to_string(),
        cause,
    })?;
    Ok(Arc::new(spec))
}

fn name<T>(what: &'static str, checked: Result<T, NameError>) -> Result<T, Malformed> {
    checked.map_err(|cause| Malformed::Name { what, cause })
}

//! From the parts in which an assignment travels back to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::assignment::{AssignedSettings, Assignment, RoleAssignment};
use dhow_core::ids::{
    DeploymentName, Generation, NameError, Revision, RoleName, ServiceKey, ServiceName, SettingsId, Term,
};
use dhow_core::spec::ServiceSpec;

use super::malformed::Malformed;
use super::proto;

/// Services in one assignment. A node runs a few thousand replicas at the very most; this is a server gone mad.
const SERVICES_MAX: usize = 65_536;

/// Parts that have come, and wait for the last one.
#[derive(Debug, Default)]
pub struct Assembly {
    begun: Option<Assignment>,
}

impl Assembly {
    /// Takes a part; the whole assignment once it was the last one.
    pub fn push(&mut self, part: proto::Assignment) -> Result<Option<Assignment>, Malformed> {
        let (revision, whole) = (Revision(part.revision), part.whole);
        let term = Some(Term(part.term)).filter(|term| term.0 > 0);
        let mut assignment = match self.begun.take() {
            Some(begun) if begun.revision == revision && begun.whole == whole && begun.term == term => begun,
            Some(_) => return Err(Malformed::Parts),
            None => Assignment {
                term,
                // Said once, when the session opens.
                cluster: None,
                revision,
                whole,
                services: BTreeMap::new(),
            },
        };
        for told in part.services {
            let (service, roles) = service_of(told)?;
            assignment.services.insert(service, roles);
        }
        let found = assignment.services.len();
        if found > SERVICES_MAX {
            return Err(Malformed::TooMany {
                what: "services",
                found,
                max: SERVICES_MAX,
            });
        }
        if part.more {
            self.begun = Some(assignment);
            return Ok(None);
        }
        Ok(Some(assignment))
    }
}

fn service_of(told: proto::ServiceAssignment) -> Result<(ServiceKey, Vec<RoleAssignment>), Malformed> {
    let service = ServiceKey {
        deployment: name("deployment", DeploymentName::new(&told.deployment))?,
        service: name("service", ServiceName::new(&told.service))?,
    };
    let roles = told.roles.into_iter().map(|role| {
        let next = role.next.as_ref().map(|next| {
            Ok(AssignedSettings {
                id: SettingsId(next.id),
                spec: read_spec(&service, &next.spec_json)?,
            })
        });
        Ok(RoleAssignment {
            role: name("role", RoleName::new(&role.role))?,
            generation: Generation(role.generation),
            indices: role.indices,
            spec: read_spec(&service, &role.spec_json)?,
            next: next.transpose()?,
        })
    });
    let roles = roles.collect::<Result<_, Malformed>>()?;
    Ok((service, roles))
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

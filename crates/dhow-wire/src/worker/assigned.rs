//! An assignment as the events of the JSON form.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::assignment::{Assignment, RoleAssignment};
use dhow_core::ids::{Generation, RoleName, ServiceKey};
use dhow_core::spec::ServiceSpec;

use super::event::{RoleSpecs, WorkerAssignmentEvent};
use crate::names::deployment_on_wire;
use crate::scale::ScaleAssignment;

/// One for each service, all with the revision of the assignment: a worker that has recorded it has them all.
pub fn to_events(assignment: &Assignment) -> Vec<WorkerAssignmentEvent> {
    let revision = assignment.revision.0;
    let services = assignment.services.iter();
    services
        .map(|(service, roles)| match roles.is_empty() {
            false => set_of(service, roles, revision),
            true => WorkerAssignmentEvent::Delete {
                service: service.service.to_string(),
                revision,
                deployment: deployment_on_wire(&service.deployment),
            },
        })
        .collect()
}

/// Roles of one service may run different things: each has its own specs, by generation. A worker of this form tries no
/// settings, so that those that do are like the others.
fn set_of(service: &ServiceKey, alike: &[RoleAssignment], revision: u64) -> WorkerAssignmentEvent {
    let mut indices: BTreeMap<(&RoleName, Generation), Vec<u32>> = BTreeMap::new();
    let mut roles: BTreeMap<&RoleName, BTreeMap<u32, Arc<ServiceSpec>>> = BTreeMap::new();
    for alike in alike {
        let (role, generation) = (&alike.role, alike.generation);
        let indices = indices.entry((role, generation)).or_default();
        indices.extend(&alike.indices);
        let specs = roles.entry(role).or_default();
        specs.insert(generation.0, plain(&alike.spec));
    }
    let assignments = indices.into_iter().map(|((role, generation), mut indices)| {
        indices.sort_unstable();
        ScaleAssignment::new(role.as_str(), indices).with_generation(generation.0)
    });
    let specs = roles.values().next().cloned().unwrap_or_default();
    let newest = specs.last_key_value().map(|(_, spec)| Arc::clone(spec));
    let role_specs = match roles.len() {
        0 | 1 => BTreeMap::new(),
        _ => roles
            .into_iter()
            .map(|(role, specs)| (role.to_string(), RoleSpecs(specs)))
            .collect(),
    };
    WorkerAssignmentEvent::Set {
        service: service.service.to_string(),
        assignments: assignments.collect(),
        revision,
        deployment: deployment_on_wire(&service.deployment),
        spec: newest,
        specs: if specs.len() > 1 { specs } else { BTreeMap::new() },
        role_specs,
        whole: false,
    }
}

/// Workers of this form may be of any version: they are told what all of them read.
fn plain(spec: &Arc<ServiceSpec>) -> Arc<ServiceSpec> {
    let spec = match spec.without_job_rules() {
        Some(told) => Arc::new(told),
        None => Arc::clone(spec),
    };
    match spec.has_callers() {
        true => Arc::new(spec.without_callers()),
        false => spec,
    }
}

#[cfg(test)]
mod tests {
    use dhow_core::assignment::AssignedSettings;
    use dhow_core::ids::{DeploymentName, Revision, ServiceName, SettingsId};
    use serde_json::json;

    use super::*;

    fn spec(name: &str) -> Arc<ServiceSpec> {
        Arc::new(ServiceSpec {
            env: [("NAME".to_owned(), name.to_owned())].into_iter().collect(),
            ..ServiceSpec::default()
        })
    }

    fn alike(role: &str, generation: u32, indices: &[u32], name: &str) -> RoleAssignment {
        RoleAssignment {
            role: RoleName::new(role).unwrap(),
            generation: Generation(generation),
            indices: indices.to_vec(),
            spec: spec(name),
            next: None,
        }
    }

    fn events(services: &[(&str, &str, Vec<RoleAssignment>)]) -> serde_json::Value {
        let services = services.iter().map(|(deployment, service, roles)| {
            let key = ServiceKey {
                deployment: DeploymentName::new(deployment).unwrap(),
                service: ServiceName::new(service).unwrap(),
            };
            (key, roles.clone())
        });
        let assignment = Assignment {
            services: services.collect(),
            ..Assignment::nothing(Revision(9))
        };
        serde_json::to_value(to_events(&assignment)).unwrap()
    }

    #[test]
    fn one_role_has_one_spec_and_what_is_tried_splits_nothing() {
        let tries = RoleAssignment {
            next: Some(AssignedSettings {
                id: SettingsId(3),
                spec: spec("tried"),
            }),
            ..alike("default", 1, &[1], "old")
        };
        let roles = vec![alike("default", 1, &[0, 2], "old"), tries];
        let told = events(&[("default", "web", roles), ("shop", "db", Vec::new())]);
        let spec = serde_json::to_value(spec("old")).unwrap();
        let set = json!({"kind": "set", "service": "web", "revision": 9, "spec": spec,
            "assignments": [{"role": "default", "indices": [0, 1, 2], "generation": 1}]});
        let delete = json!({"kind": "delete", "service": "db", "revision": 9, "deployment": "shop"});
        assert_eq!(told, json!([set, delete]));
    }

    #[test]
    fn several_roles_and_generations_have_their_own() {
        let roles = vec![
            alike("default", 1, &[0], "a1"),
            alike("default", 2, &[1], "a2"),
            alike("spare", 2, &[4], "b2"),
        ];
        let told = events(&[("default", "web", roles)]);
        let spec = |name| serde_json::to_value(spec(name)).unwrap();
        let set = json!({"kind": "set", "service": "web", "revision": 9,
            "assignments": [
                {"role": "default", "indices": [0], "generation": 1},
                {"role": "default", "indices": [1], "generation": 2},
                {"role": "spare", "indices": [4], "generation": 2}],
            "spec": spec("a2"), "specs": {"1": spec("a1"), "2": spec("a2")},
            "role_specs": {"default": {"1": spec("a1"), "2": spec("a2")}, "spare": {"2": spec("b2")}}});
        assert_eq!(told, json!([set]));
    }
}

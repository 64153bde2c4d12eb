//! What one assignment after another says together. That changes lead to the whole is a law of the simulator's.

use super::*;
use crate::ids::{DeploymentName, ServiceName};

fn key(service: &str) -> ServiceKey {
    ServiceKey {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new(service).unwrap(),
    }
}

fn told(revision: u64, whole: bool, services: &[(&str, &[u32])]) -> Assignment {
    let roles = |indices: &[u32]| RoleAssignment {
        role: RoleName::fallback(),
        generation: Generation(1),
        indices: indices.to_vec(),
        spec: Arc::default(),
        next: None,
    };
    let services = services.iter().map(|(service, indices)| {
        let roles = (!indices.is_empty()).then(|| roles(indices));
        (key(service), roles.into_iter().collect())
    });
    Assignment {
        term: Some(Term(revision)),
        whole,
        services: services.collect(),
        ..Assignment::nothing(Revision(revision))
    }
}

fn followed(first: Assignment, next: Assignment) -> Assignment {
    let mut both = first;
    both.follow(next);
    both
}

#[test]
fn what_follows_replaces_services_and_a_whole_one_everything() {
    let first = told(1, true, &[("api", &[0]), ("web", &[0, 1])]);
    let change = told(2, false, &[("web", &[1]), ("api", &[]), ("db", &[3])]);
    let both = followed(first.clone(), change.clone());
    assert_eq!(both, told(2, true, &[("web", &[1]), ("db", &[3])]));
    let whole = told(3, true, &[("db", &[3])]);
    assert_eq!(followed(both, whole.clone()), whole);
    // Two changes are one; what goes is still said.
    let later = told(4, false, &[("web", &[]), ("log", &[0])]);
    assert_eq!(
        followed(change, later),
        told(
            4,
            false,
            &[("web", &[]), ("api", &[]), ("db", &[3]), ("log", &[0])]
        )
    );
}

#[test]
fn every_replica_is_named_with_what_it_runs() {
    let first = told(1, true, &[("api", &[4]), ("web", &[0, 2])]);
    let names: Vec<String> = first.replicas().map(|(name, _)| name.id()).collect();
    assert_eq!(names, ["api-default-4", "web-default-0", "web-default-2"]);
}

//! What the digest sees, and what it does not.

use super::*;
use crate::ids::{DeploymentName, Generation, RoleName, ServiceName};

fn name(index: u32, generation: u32) -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index,
        generation: Generation(generation),
    }
}

fn running() -> Machine {
    Machine {
        state: ReplicaState::Running,
        healthy: true,
        ..Machine::default()
    }
}

#[test]
fn the_order_does_not_matter_and_the_form_is_fixed() {
    let machine = running();
    let forwards = digest_of([(name(0, 1), &machine), (name(1, 1), &machine)]);
    let backwards = digest_of([(name(1, 1), &machine), (name(0, 1), &machine)]);
    assert_eq!(forwards, backwards);
    let text = "shop web default 0 1 r 1 0\nshop web default 1 1 r 1 0\n";
    assert_eq!(forwards, blake3::hash(text.as_bytes()).to_hex().to_string());
    assert_eq!(digest_of([]), digest(&State::default(), NodeId(9)));
}

#[test]
fn every_part_counts() {
    let base = digest_of([(name(0, 1), &running())]);
    let others = [
        (name(1, 1), running()),
        (name(0, 2), running()),
        (
            name(0, 1),
            Machine {
                restarts: 1,
                ..running()
            },
        ),
        (
            name(0, 1),
            Machine {
                healthy: false,
                ..running()
            },
        ),
        (
            name(0, 1),
            Machine {
                state: ReplicaState::Lost,
                ..running()
            },
        ),
    ];
    for (name, machine) in &others {
        assert_ne!(base, digest_of([(name.clone(), machine)]), "{name} {machine:?}");
    }
    let told = Machine {
        pid: Some(7),
        message: Some("slow".into()),
        ..running()
    };
    assert_eq!(
        base,
        digest_of([(name(0, 1), &told)]),
        "what is only told does not count"
    );
}

#[test]
fn a_replica_that_has_not_begun_says_nothing() {
    assert_eq!(digest_of([(name(0, 1), &Machine::default())]), digest_of([]));
}

#[test]
fn letters_are_all_different() {
    let letters: std::collections::BTreeSet<char> = ReplicaState::ALL.into_iter().map(state_letter).collect();
    assert_eq!(letters.len(), ReplicaState::ALL.len());
}

#[test]
fn rollouts_are_named_by_deployment_and_revision() {
    let id: RolloutId = "shop@3".parse().unwrap();
    assert_eq!(id.to_string(), "shop@3");
    assert_eq!("shop".parse::<RolloutId>(), Err(BadRolloutId::NoRevision));
    for text in [
        "shop@",
        "shop@0",
        "shop@+1",
        "shop@x",
        "shop@3@4",
        "shop@99999999999999999999",
    ] {
        assert_eq!(text.parse::<RolloutId>(), Err(BadRolloutId::Revision), "{text}");
    }
    assert!(matches!(
        "S@1".parse::<RolloutId>(),
        Err(BadRolloutId::Deployment(_))
    ));
}

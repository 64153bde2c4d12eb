//! What is found when two halves meet.

use super::*;
use crate::command::{Command, DeploymentCommand, Entry, ScaleChange};
use crate::ids::{DeploymentName, DeploymentRevision, ServiceName, Term};
use crate::invariants;
use crate::spec::{ImageSpec, SpecVersion};
use crate::state::{ClockMark, Phase, RevisionOutcome};
use crate::step::step;

fn spec(name: &str, image: &str) -> Arc<DeploymentSpec> {
    let service = ServiceSpec {
        image: Some(ImageSpec::named(image)),
        scale: ScaleSpec::Fixed { replicas: 1 },
        ..ServiceSpec::default()
    };
    Arc::new(DeploymentSpec {
        version: SpecVersion::V1,
        deployment: DeploymentName::new(name).unwrap(),
        services: [(ServiceName::new("web").unwrap(), Arc::new(service))].into(),
        scaled: Default::default(),
        configs: Default::default(),
    })
}

fn write(state: &mut State, command: DeploymentCommand) {
    let entry = Entry {
        time: ClusterTime(state.time.0 + 10),
        term: state.term,
        request: None,
        command: Command::Deployment(command),
    };
    step(state, &entry, &mut ()).unwrap();
    assert_eq!(invariants::check(state), []);
}

fn deploy(state: &mut State, name: &str, image: &str) {
    let (spec, author) = (spec(name, image), Arc::from("ann"));
    write(
        state,
        DeploymentCommand::Deploy {
            spec,
            author,
            wall_unix_secs: 5,
            force: false,
        },
    );
}

/// A state with one deployment, and a second half that goes on from it in an epoch of its own.
fn halves() -> (State, State) {
    let mut one = State::default();
    one.branch.begin(Term(1), ClusterTime(0));
    deploy(&mut one, "shop", "web:1");
    let mut other = one.clone();
    other.branch.begin(Term(2), other.time);
    (one, other)
}

fn images(lost: &Lost) -> Vec<String> {
    let services = lost.revisions.iter().flat_map(|lost| lost.spec.services.values());
    services
        .map(|service| service.image.clone().unwrap().name)
        .collect()
}

#[test]
fn what_only_the_loser_wrote_is_found_and_nothing_else() {
    let (mut one, mut other) = halves();
    assert!(lost(&one, &other).is_empty());
    deploy(&mut other, "shop", "web:2");
    assert!(
        lost(&one, &other).is_empty(),
        "the winner's own changes are not lost"
    );
    deploy(&mut one, "shop", "web:3");
    deploy(&mut one, "desk", "pad:1");
    assert_eq!(images(&lost(&one, &other)), ["pad:1", "web:3"]);
    assert_eq!(images(&lost(&other, &one)), ["web:2"]);
    assert_eq!((one.branch.edits, other.branch.edits), (3, 2));
}

#[test]
fn a_scale_is_kept_as_a_revision_with_its_counts() {
    let (mut one, other) = halves();
    one.clock_marks.note(ClockMark {
        term: Term(1),
        time: ClusterTime(0),
        wall_unix_ms: 90_000,
    });
    one.time = ClusterTime(60_000);
    let change = ScaleChange {
        service: ServiceName::new("web").unwrap(),
        role: None,
        replicas: 7,
    };
    let deployment = DeploymentName::new("shop").unwrap();
    write(
        &mut one,
        DeploymentCommand::Scale {
            deployment,
            changes: vec![change],
        },
    );
    let found = lost(&one, &other);
    let scale = &found.revisions[0].spec.services.values().next().unwrap().scale;
    assert_eq!(*scale, ScaleSpec::Fixed { replicas: 7 });
    let wall_secs = found.revisions[0].wall_unix_secs;
    assert_eq!(wall_secs, 150, "when it was scaled, not when it was deployed");
    assert!(lost(&other, &one).is_empty());
}

#[test]
fn a_removal_is_told() {
    let (mut one, other) = halves();
    let name = DeploymentName::new("shop").unwrap();
    one.deployments.remove(&name);
    assert_eq!(lost(&one, &other).others, ["deployment shop was removed"]);
    assert!(lost(&other, &one).is_empty(), "it was not changed after the fork");
}

#[test]
fn conflicted_revisions_are_kept_once_and_can_be_gone_back_to() {
    let (mut one, mut other) = halves();
    deploy(&mut one, "shop", "web:3");
    deploy(&mut one, "desk", "pad:1");
    for revision in lost(&one, &other).revisions {
        for _ in 0..2 {
            let LostRevision {
                spec,
                author,
                wall_unix_secs,
            } = revision.clone();
            write(
                &mut other,
                DeploymentCommand::RecordConflicted {
                    spec,
                    author,
                    wall_unix_secs,
                },
            );
        }
    }
    let shop = other
        .deployment(&DeploymentName::new("shop").unwrap())
        .unwrap()
        .clone();
    assert_eq!(shop.revision, DeploymentRevision(1));
    assert_eq!(
        shop.history[&DeploymentRevision(2)].outcome,
        RevisionOutcome::Conflicted
    );
    assert_eq!(shop.history.len(), 2);
    let desk = other.deployment(&DeploymentName::new("desk").unwrap()).unwrap();
    assert_eq!((desk.phase, desk.services.len()), (Phase::Reverted, 0));
    for (name, revision) in [("shop", 2), ("desk", 1)] {
        let rollback = DeploymentCommand::Rollback {
            deployment: DeploymentName::new(name).unwrap(),
            to: Some(DeploymentRevision(revision)),
            author: Arc::from("ann"),
            wall_unix_secs: 9,
        };
        write(&mut other, rollback);
        let deployment = other.deployment(&DeploymentName::new(name).unwrap()).unwrap();
        assert_eq!(deployment.revision, DeploymentRevision(revision + 1));
        assert_eq!(deployment.phase, Phase::Deploying);
    }
    assert!(
        lost(&one, &other)
            .revisions
            .iter()
            .all(|lost| lost.author.as_ref() == "ann")
    );
}

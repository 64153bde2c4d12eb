//! The laws of the core, over generated clusters and sequences: invariants after every step, replay equality,
//! a warm planner equals a cold one, plans come to rest, no rule of a placement is broken, `step` says what it does, work is done as it was counted, a node that follows changes has what
//! one that is told everything has, of its work and of services, and a healed cluster reaches what was asked.

#[path = "laws/directory.rs"]
mod directory;
#[path = "laws/following.rs"]
mod following;
#[path = "laws/jobs.rs"]
mod jobs;
#[path = "laws/ops.rs"]
mod ops;
#[path = "laws/places.rs"]
mod places;
#[path = "laws/raw.rs"]
mod raw;
#[path = "laws/rebalance.rs"]
mod rebalance;
#[path = "laws/rollouts.rs"]
mod rollouts;
#[path = "laws/told.rs"]
mod told;

use dhow_core::ids::NodeId;
use dhow_core::invariants;
use dhow_core::replica::ReplicaState;
use dhow_core::spec::{RType, TimeSpan};
use dhow_core::state::{Phase, Replica, Service, State, Wanted};
use dhow_sim::lab::Lab;
use ops::{Op, Script};
use proptest::prelude::*;

/// 10,000 sequences where the time is given for it, fewer otherwise.
fn cases(short: u32) -> ProptestConfig {
    let long = std::env::var_os("DHOW_TEST_LONG").is_some();
    ProptestConfig {
        cases: if long { 10_000 } else { short },
        ..ProptestConfig::default()
    }
}

fn assert_sound(state: &State, after: &impl std::fmt::Debug) {
    let violations = invariants::check(state);
    assert!(violations.is_empty(), "after {after:?}: {violations:?}");
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn clusters_keep_every_law(script in ops::script()) {
        let mut lab = Lab::new();
        lab.compare_with_cold = true;
        let mut memory = ops::Memory::default();
        for op in &script.ops {
            ops::perform(&mut lab, &mut memory, op);
            assert_sound(&lab.state, op);
        }
        prop_assert_eq!(lab.replay().hash(), lab.state.hash());
        following::check(&lab.log);
        told::check_all(&lab.log);
        directory::check(&lab.log);
        jobs::check(&lab.log);
        places::check(&lab.log);
    }

    #[test]
    fn a_healed_cluster_reaches_what_was_asked(script in ops::script()) {
        let mut lab = Lab::new();
        let mut memory = ops::Memory::default();
        for op in &script.ops {
            ops::perform(&mut lab, &mut memory, op);
        }
        ops::heal(&mut lab);
        lab.run(TimeSpan::from_secs(3_600));
        assert_sound(&lab.state, &Op::Heal);
        check_reached(&lab, &script)?;
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn any_sequence_of_commands_is_applied_or_refused(commands in raw::commands()) {
        let mut state = State::default();
        let mut again = State::default();
        for entry in &commands {
            let first = dhow_core::step::step(&mut state, entry, &mut ());
            let second = dhow_core::step::step(&mut again, entry, &mut ());
            prop_assert_eq!(first, second);
            assert_sound(&state, entry);
        }
        prop_assert_eq!(state.hash(), again.hash());
        told::check_all(&commands);
        directory::check(&commands);
    }
}

/// Healthy or done; a workload that cannot be healthy only has to be tried.
fn does_its_best(service: &Service, replica: &Replica) -> bool {
    let image = service
        .spec()
        .and_then(|spec| spec.image.as_ref())
        .map(|image| image.name.as_str());
    // On the last node nothing works that is not slow to end.
    let bad_node = replica.node == NodeId(ops::NODES);
    let good = image.is_some_and(|image| image.starts_with("good")) && !bad_node;
    let tried = replica.wanted == Wanted::Run && replica.machine.state != ReplicaState::Lost;
    replica.is_healthy() || replica.is_completed() || (!good && tried)
}

/// Every wanted slot is served, or the plan says why not; what runs on nodes is what the state says.
fn check_reached(lab: &Lab, script: &Script) -> Result<(), TestCaseError> {
    // Of schedules nobody asks for a count.
    let counted = lab.state.services.values();
    for service in counted.filter(|service| service.rtype() != RType::Cron) {
        let report = lab.plan.report.services.get(&service.id);
        let waiting: u32 = report.map_or(0, |report| report.waiting.iter().map(|w| w.slots).sum());
        let served = lab
            .state
            .replicas_of(service.id)
            .filter(|(key, replica)| service.is_current(key.generation) && does_its_best(service, replica))
            .count() as u32;
        // A job that is done stays done when its record has gone with its node.
        let served = served + service.done.len() as u32;
        let asked = lab.state.desired(service);
        let failed = lab
            .state
            .deployment(&service.key.deployment)
            .is_some_and(|deployment| deployment.phase == Phase::Failed);
        prop_assert!(
            served + waiting >= asked || failed,
            "{}: {served} of {asked} served, {waiting} waiting, script {script:?}\n{}",
            service.key,
            lab.trace
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        );
    }
    for (id, agent) in &lab.agents {
        for key in agent.running() {
            let on = lab.state.replicas.get(&key).map(|replica| replica.node);
            prop_assert_eq!(
                on,
                Some(*id),
                "{:?} runs on node {} without being its own",
                key,
                id
            );
        }
    }
    Ok(())
}

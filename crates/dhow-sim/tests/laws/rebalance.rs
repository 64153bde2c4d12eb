//! What is worked out of a cluster that has gone through anything: the moves end, they break nothing, no service lies worse
//! after them, and once they have been made there is nothing more to move.

use std::collections::BTreeMap;

use dhow_core::command::{Command, DeploymentCommand};
use dhow_core::ids::{NodeId, ServiceId};
use dhow_core::rebalance::{Proposal, Scope, propose};
use dhow_core::spec::{AffinityMode, RType, TimeSpan};
use dhow_core::state::State;
use dhow_sim::lab::Lab;
use proptest::prelude::*;

use super::ops;

const ALL: Scope = Scope {
    deployment: None,
    moves_max: 1_000,
};

/// How many healthy replicas each service has.
fn healthy(state: &State) -> BTreeMap<ServiceId, usize> {
    let mut counts = BTreeMap::new();
    for (key, _) in state.replicas.iter().filter(|(_, replica)| replica.is_healthy()) {
        *counts.entry(key.service).or_insert(0) += 1;
    }
    counts
}

fn check_proposal(state: &State, proposal: &Proposal) {
    let mut moved = std::collections::BTreeSet::new();
    for one in &proposal.moves {
        assert!(moved.insert(one.replica), "{one:?} is moved twice");
        assert_ne!(one.from, one.to);
        let replica = &state.replicas[&one.replica];
        assert_eq!(replica.node, one.from);
        let to = state.node(one.to).expect("a node that is there");
        assert!(to.is_open(), "{one:?}");
        let service = state.service(one.replica.service).expect("its service");
        let spec = service.spec().expect("its spec");
        assert_eq!(spec.rtype, RType::Service);
        assert!(!spec.has_named_storage() && spec.affinity.mode == AffinityMode::Spread);
    }
    let sum = |pick: fn(&(u32, u32)) -> u32| {
        proposal
            .loads
            .iter()
            .map(|load| pick(&load.replicas))
            .sum::<u32>()
    };
    assert_eq!(sum(|pair| pair.0), sum(|pair| pair.1), "nothing is made or lost");
    for load in &proposal.loads {
        let (before, after) = (load.used.0, load.used.1);
        let over = after.cpu_milli > load.capacity.cpu_milli.max(before.cpu_milli);
        assert!(!over, "node {} gets more than it has", load.node);
    }
}

proptest! {
    #![proptest_config(super::cases(40))]

    #[test]
    fn a_rebalance_ends_and_a_second_one_moves_nothing(script in ops::script()) {
        let mut lab = Lab::new();
        let mut memory = ops::Memory::default();
        for op in &script.ops {
            ops::perform(&mut lab, &mut memory, op);
        }
        ops::heal(&mut lab);
        lab.run(TimeSpan::from_secs(3_600));
        let proposal = propose(&lab.state, &ALL);
        prop_assert!(!proposal.is_cut);
        check_proposal(&lab.state, &proposal);
        if proposal.moves.is_empty() {
            return Ok(());
        }
        let before = healthy(&lab.state);
        let wanted: Vec<(dhow_core::ids::Slot, ServiceId, NodeId)> = proposal
            .moves
            .iter()
            .map(|one| (one.replica.slot, one.replica.service, one.to))
            .collect();
        let moves = proposal.moves;
        let author = "lab".into();
        lab.apply(Command::Deployment(DeploymentCommand::Rebalance { moves, author })).expect("it is taken");
        let end = lab.now.after(TimeSpan::from_secs(3_600));
        while lab.now < end && lab.state.replicas.values().any(|replica| replica.moves_to.is_some()) {
            lab.run(TimeSpan::from_secs(1));
            for (service, healthy) in healthy(&lab.state) {
                let spec = lab.state.service(service).and_then(|service| service.spec()).expect("a spec");
                let least = before.get(&service).copied().unwrap_or(0).saturating_sub(spec.max_unavailable() as usize);
                prop_assert!(healthy >= least, "{healthy} of {least} at {}", lab.now);
            }
        }
        super::assert_sound(&lab.state, &"the rebalance");
        prop_assert_eq!(lab.replay().hash(), lab.state.hash());
        let there = |(slot, service, node): &(_, _, NodeId)| {
            lab.state.replicas_of(*service).any(|(key, replica)| key.slot == *slot && replica.node == *node)
        };
        // Where all went where they were to go, nothing is left to move.
        if wanted.iter().all(there) {
            prop_assert_eq!(propose(&lab.state, &ALL).moves, Vec::new());
        }
    }
}

//! An account of everything that comes late.

use std::sync::Arc;

use crate::amount::Amount;
use crate::command::{AgentCommand, Command, Entry, InventoryItem, NodeCommand, Outcome, Refused};
use crate::ids::{NodeId, Term};
use crate::state::{NodeInfo, NodeRole, Session, State};
use crate::step::step;
use crate::time::ClusterTime;

const NODE: NodeId = NodeId(7);

fn apply(state: &mut State, command: Command) -> Result<Outcome, Refused> {
    let entry = Entry {
        time: ClusterTime(0),
        term: Term(0),
        request: None,
        command,
    };
    step(state, &entry, &mut ())
}

/// A cluster of this level with one node, which was heard up to event 9 of its life.
fn state(feature_level: u32, tries_settings: bool, incarnation: u64) -> State {
    let mut state = State {
        feature_level,
        ..State::default()
    };
    let info = Arc::new(NodeInfo {
        role: NodeRole::Worker,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity: Amount::ZERO,
        runs_replicas: true,
        tries_settings,
        mounts_files: false,
        runs_steps: false,
        volumes: crate::spec::VolumeSupport::Named,
        mesh_addr: None,
    });
    let register = NodeCommand::Register { node: NODE, info };
    apply(&mut state, Command::Node(register)).unwrap();
    tell(&mut state, incarnation, 9).unwrap();
    state
}

fn tell(state: &mut State, incarnation: u64, seq: u64) -> Result<Outcome, Refused> {
    let inventory = AgentCommand::Inventory {
        node: NODE,
        incarnation,
        seq,
        replicas: Vec::<InventoryItem>::new(),
    };
    apply(state, Command::Agent(inventory))
}

fn heard(state: &State) -> Session {
    state.node(NODE).unwrap().session
}

#[test]
fn an_account_that_was_overtaken_is_refused_and_changes_nothing() {
    let mut state = state(2, true, 4);
    let refused = Refused::OldInventory {
        node: NODE,
        known: 9,
        found: 8,
    };
    assert_eq!(tell(&mut state, 4, 8), Err(refused));
    assert_eq!((heard(&state).incarnation, heard(&state).seq), (4, 9));
    tell(&mut state, 4, 9).unwrap();
    tell(&mut state, 4, 12).unwrap();
    assert_eq!(heard(&state).seq, 12);
    tell(&mut state, 5, 1).unwrap();
    assert_eq!(
        (heard(&state).incarnation, heard(&state).seq),
        (5, 1),
        "a new life"
    );
}

#[test]
fn who_cannot_know_better_is_believed_as_before() {
    for (level, tries_settings, incarnation, why) in [
        (1, true, 4, "servers of the first version"),
        (2, false, 4, "agents of the first version"),
        (2, true, 0, "workers without numbers"),
    ] {
        let mut state = state(level, tries_settings, incarnation);
        assert!(tell(&mut state, incarnation, 3).is_ok(), "{why}");
        assert_eq!(heard(&state).seq, 3, "{why}");
    }
}

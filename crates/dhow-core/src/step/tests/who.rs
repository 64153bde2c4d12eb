//! Who is who: ids of nodes, their roles, and the uses of tokens; and what a plain worker is told when.

mod ids;
mod limit;
mod plain;

use std::sync::Arc;

use crate::amount::Amount;
use crate::command::{ClusterCommand, Command, Entry, NodeCommand, Outcome, Refused};
use crate::ids::{NodeId, Term};
use crate::invariants;
use crate::state::{NodeInfo, NodeRole, State};
use crate::step::step;
use crate::time::ClusterTime;

/// A state that commands are applied to.
struct World {
    state: State,
    now_ms: u64,
}

impl World {
    /// A cluster of this level, with a token of so many uses.
    fn new(feature_level: u32, uses_allowed: u32) -> Self {
        let state = State {
            feature_level,
            ..State::default()
        };
        let mut world = Self { state, now_ms: 0 };
        let issue = ClusterCommand::IssueToken {
            nonce: "token".into(),
            uses_allowed,
            expires_unix_secs: 100,
        };
        world.apply(Command::Cluster(issue)).unwrap();
        world
    }

    fn apply(&mut self, command: Command) -> Result<Outcome, Refused> {
        let entry = Entry {
            time: ClusterTime(self.now_ms),
            term: Term(0),
            request: None,
            command,
        };
        let outcome = step(&mut self.state, &entry, &mut ());
        let broken = invariants::check(&self.state);
        assert!(broken.is_empty(), "{broken:?}");
        outcome
    }

    fn register(&mut self, node: u64, role: NodeRole) -> Result<Outcome, Refused> {
        let node = NodeId(node);
        self.apply(Command::Node(NodeCommand::Register {
            node,
            info: info(role),
        }))
    }

    fn keep(&mut self, ids: &[u64]) -> Result<Outcome, Refused> {
        let nodes = ids.iter().copied().map(NodeId).collect();
        self.apply(Command::Cluster(ClusterCommand::KeepServerIds { nodes }))
    }

    fn join(&mut self, key: &str, wish: Option<u64>) -> Result<u64, Refused> {
        self.join_as(key, wish, false)
    }

    fn join_as(&mut self, key: &str, wish: Option<u64>, is_plain: bool) -> Result<u64, Refused> {
        let outcome = self.apply(Command::Cluster(ClusterCommand::UseToken {
            nonce: "token".into(),
            key_hash: key.into(),
            now_unix_secs: 1,
            wish: wish.map(NodeId),
            info: info(NodeRole::Worker),
            is_plain,
        }))?;
        match outcome {
            Outcome::Registered { node } => Ok(node.0),
            other => panic!("{other:?}"),
        }
    }

    fn remove(&mut self, node: u64) {
        let node = NodeId(node);
        self.apply(Command::Node(NodeCommand::Remove { node })).unwrap();
    }

    fn uses(&self) -> usize {
        self.state.tokens["token"].uses.len()
    }
}

fn info(role: NodeRole) -> Arc<NodeInfo> {
    Arc::new(NodeInfo {
        role,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity: Amount {
            cpu_milli: 4_000,
            memory_bytes: 1 << 33,
        },
        runs_replicas: true,
        tries_settings: true,
        mounts_files: true,
        runs_steps: true,
        volumes: crate::spec::VolumeSupport::Sized,
        mesh_addr: None,
    })
}

//! A scripted agent: it runs the same machine as the mirror, keeps a ledger, and says what it is told to say.

use std::collections::BTreeMap;

use dhow_core::ids::{NodeId, ReplicaKey, ReplicaName};
use dhow_core::mirror::{RolloutId, digest_of};
use dhow_core::replica::{Machine, ReplicaEvent, RestartRule, step};
use dhow_core::state::State;
use tokio::sync::oneshot;

use super::support::Server;
use crate::clock::Clock;
use crate::plane::runtime::{HeartbeatReply, InboxError, ReducerInput, ReportAck, ReportBody, WriteError};

pub struct Agent {
    pub node: NodeId,
    pub incarnation: u64,
    /// Everything that happened, the first with number 1.
    pub ledger: Vec<(ReplicaName, ReplicaEvent)>,
    pub machines: BTreeMap<ReplicaName, Machine>,
}

impl Agent {
    pub fn new(node: u64) -> Self {
        Self {
            node: NodeId(node),
            incarnation: 0,
            ledger: Vec::new(),
            machines: BTreeMap::new(),
        }
    }

    /// Takes on what it is assigned.
    pub fn follow(&mut self, state: &State) {
        let node = state.node(self.node).unwrap();
        for (service, assigned) in node.assignments.services() {
            for replica in assigned.replicas.iter() {
                let key = ReplicaKey {
                    service,
                    slot: replica.slot,
                    generation: replica.generation,
                };
                let name = state.replica_name(&key).unwrap();
                self.machines.entry(name).or_default();
            }
        }
    }

    /// Something happens to every replica; it is in the ledger and not told yet.
    pub fn happens(&mut self, event: &ReplicaEvent) {
        for (name, machine) in &mut self.machines {
            step(machine, event, &RestartRule::default()).unwrap();
            self.ledger.push((name.clone(), event.clone()));
        }
    }

    /// Tells the ledger from a number on.
    pub async fn report_from(&self, server: &Server, first_seq: u64) -> Result<ReportAck, WriteError> {
        let events = self.ledger[first_seq as usize - 1..].to_vec();
        let body = ReportBody::Events { first_seq, events };
        let input = server.handle.input();
        input.report(self.node, None, self.incarnation, body).await
    }

    /// Tells everything that it has.
    pub async fn inventory(&self, server: &Server) -> Result<ReportAck, WriteError> {
        let body = ReportBody::Inventory {
            seq: self.ledger.len() as u64,
            replicas: self.machines.clone().into_iter().collect(),
        };
        let input = server.handle.input();
        input.report(self.node, None, self.incarnation, body).await
    }

    pub fn digest(&self) -> String {
        digest_of(
            self.machines
                .iter()
                .map(|(name, machine)| (name.clone(), machine)),
        )
    }

    /// A heartbeat as the gateway hands it in.
    pub async fn beat(
        &self,
        server: &Server,
        rollout: Option<&str>,
        digest: Option<String>,
    ) -> Result<HeartbeatReply, InboxError> {
        let (reply, answer) = oneshot::channel();
        server.handle.input().try_send(ReducerInput::HeartbeatReceived {
            host: self.node,
            rollout_id: rollout.map(|text| text.parse::<RolloutId>().unwrap()),
            current_digest: digest,
            at: server.clock.monotonic_ms(),
            reply,
        })?;
        Ok(answer.await.unwrap())
    }
}

/// From placed to healthy.
pub fn start_events() -> [ReplicaEvent; 4] {
    [
        ReplicaEvent::PullBegan,
        ReplicaEvent::StartBegan,
        ReplicaEvent::Started { pid: 42 },
        ReplicaEvent::BecameHealthy,
    ]
}

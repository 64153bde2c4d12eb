//! The agent's session with a control plane in the same process.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_agent::{
    Heartbeat, HeartbeatAnswer, OpenRollout, Report, ReportAnswer, Session, SessionError, SessionFuture,
};
use dhow_core::assignment::{Assignment, assignment_since};
use dhow_core::command::Refused;
use dhow_core::ids::{NodeId, Revision};
use dhow_core::usage::NodeUsage;
use dhow_server::plane::runtime::{
    HeartbeatIngest, InputSender, OpenRollout as Unnamed, RuntimeView, WriteError,
};
use dhow_server::plane::secrets::{SecretBox, unseal_all};

/// The session of the agent of a single node: its calls go to the reducer of the same process.
pub struct LocalSession {
    node: NodeId,
    input: InputSender,
    view: RuntimeView,
    heartbeats: HeartbeatIngest,
    secrets: Arc<SecretBox>,
}

impl LocalSession {
    pub fn new(
        node: NodeId,
        input: InputSender,
        view: RuntimeView,
        heartbeats: HeartbeatIngest,
        secrets: Arc<SecretBox>,
    ) -> Self {
        Self {
            node,
            input,
            view,
            heartbeats,
            secrets,
        }
    }

    async fn hand_in(&self, report: Report) -> Result<ReportAnswer, SessionError> {
        let rollout = report.rollouts.first().cloned();
        let greets = report.body.is_greeting();
        let taken = self
            .input
            .report(self.node, rollout, report.incarnation, report.body);
        match taken.await {
            Ok(ack) => Ok(ReportAnswer::Durable {
                seq: ack.durable_seq,
                inventory_wanted: ack.inventory_wanted,
                open: match greets {
                    true => as_open(Unnamed::open(&self.view.state(), self.node, &report.rollouts)),
                    false => Vec::new(),
                },
            }),
            Err(WriteError::Refused(
                Refused::Gap { replay_from, .. }
                | Refused::OldInventory {
                    known: replay_from, ..
                },
            )) => Ok(ReportAnswer::ReplayFrom { seq: replay_from }),
            Err(WriteError::Refused(Refused::Incarnation { .. })) => Ok(ReportAnswer::InventoryWanted),
            Err(error) => Err(SessionError::Unavailable(error.to_string())),
        }
    }

    async fn next_update(&self, last: Option<Revision>) -> Result<Assignment, SessionError> {
        let mut changes = self.view.node_changes(self.node);
        loop {
            changes.borrow_and_update();
            let state = self.view.state();
            if let Some(update) = assignment_since(&state, self.node, last) {
                return Ok(update);
            }
            let ended = |_| SessionError::Unavailable("the control plane has ended".into());
            changes.changed().await.map_err(ended)?;
        }
    }
}

impl Session for LocalSession {
    fn report(&self, report: Report) -> SessionFuture<'_, ReportAnswer> {
        Box::pin(self.hand_in(report))
    }

    fn assignments(&self, last: Option<Revision>) -> SessionFuture<'_, Assignment> {
        Box::pin(self.next_update(last))
    }

    fn heartbeat(&self, beat: Heartbeat) -> SessionFuture<'_, HeartbeatAnswer> {
        Box::pin(async move {
            let named = beat.rollouts.first().cloned();
            let reply = self.heartbeats.beat(self.node, named, Some(beat.digest)).await;
            let open = Unnamed::unnamed(&reply, &beat.rollouts, &self.view.state());
            Ok(HeartbeatAnswer {
                inventory_wanted: false,
                replay_from: reply.replay_from,
                open: as_open(open),
            })
        })
    }

    fn usage(&self, usage: NodeUsage) {
        self.view.observed().used(&self.view.state(), self.node, usage);
    }

    fn secrets<'a>(&'a self, names: &'a [String]) -> SessionFuture<'a, BTreeMap<String, String>> {
        Box::pin(async move {
            let names = names.iter().map(String::as_str);
            let opened = unseal_all(&self.secrets, &self.view.state(), names);
            let opened = opened.map_err(|error| SessionError::Refused(error.to_string()))?;
            opened
                .0
                .into_iter()
                .map(|(name, value)| as_text(name, value))
                .collect()
        })
    }
}

fn as_open(unnamed: Vec<Unnamed>) -> Vec<OpenRollout> {
    let open = unnamed.into_iter().filter_map(|open| {
        Some(OpenRollout {
            id: open.rollout.rollout_id.parse().ok()?,
            specs: open.specs,
        })
    });
    open.collect()
}

/// A variable of an environment is a text without a zero.
fn as_text(name: String, value: Vec<u8>) -> Result<(String, String), SessionError> {
    match String::from_utf8(value) {
        Ok(text) if !text.contains('\0') => Ok((name, text)),
        Ok(_) | Err(_) => Err(SessionError::Refused(format!(
            "secret `{name}` is no text, so that it cannot stand in an environment"
        ))),
    }
}

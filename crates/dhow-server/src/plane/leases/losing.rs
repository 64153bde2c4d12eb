//! Nodes whose lease has run out and whose loss is on its way into the log.

use std::collections::BTreeSet;

use dhow_core::command::{Command, NodeCommand};
use dhow_core::ids::NodeId;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::plane::runtime::{InputSender, WriteError};

/// Losses that are written at a time: a quarter of the inbox, so that a rack that dies does not turn others away.
const WRITES_MAX: usize = 256;

type Write = BoxFuture<'static, (NodeId, Result<(), WriteError>)>;

/// The nodes whose loss the leader has still to write into the log, and the writes on their way. It is dropped with the
/// leadership: the next leader finds out for itself.
#[derive(Default)]
pub(super) struct Losing {
    waiting: BTreeSet<NodeId>,
    writes: FuturesUnordered<Write>,
    writing: BTreeSet<NodeId>,
}

impl Losing {
    pub fn add(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.waiting.extend(nodes);
    }

    /// Forgets those who are heard again, or are lost already.
    pub fn retain(&mut self, keep: impl FnMut(&NodeId) -> bool) {
        self.waiting.retain(keep);
    }

    /// Begins to write what waits, as far as there is room.
    pub fn go_on(&mut self, input: &InputSender) {
        while self.writing.len() < WRITES_MAX
            && let Some(node) = self.waiting.pop_first()
        {
            if !self.writing.insert(node) {
                continue;
            }
            let input = input.clone();
            self.writes.push(Box::pin(async move {
                let lost = Command::Node(NodeCommand::Lost { node });
                (node, input.write(lost, None).await.map(drop))
            }));
        }
    }

    /// Waits for the next write to end; for ever where there is none. One that failed waits for the next turn.
    pub async fn written(&mut self) {
        let Some((node, outcome)) = self.writes.next().await else {
            return std::future::pending().await;
        };
        self.writing.remove(&node);
        match outcome {
            Ok(()) => tracing::warn!(%node, "a node is given up: its lease has run out"),
            // It was removed meanwhile.
            Err(WriteError::Refused(refused)) => tracing::debug!(%node, %refused, "a loss was refused"),
            Err(error) => {
                tracing::debug!(%node, %error, "a loss could not be written yet");
                self.waiting.insert(node);
            }
        }
    }
}

//! Proposals that are on their way through the log, and who waits for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::command::{Outcome, Refused};
use dhow_core::ids::{NodeId, Revision};
use tokio::sync::oneshot;

use crate::plane::log::ProposalId;
use crate::plane::runtime::error::WriteError;
use crate::plane::runtime::input::{Applied, ReportAck};

/// Who waits for a proposal.
#[derive(Debug)]
pub(super) enum Waiting {
    Write(oneshot::Sender<Result<Applied, WriteError>>),
    Report {
        host: NodeId,
        ack: oneshot::Sender<Result<ReportAck, WriteError>>,
    },
    /// A part of a plan.
    Plan,
    Manifests {
        source: Option<Arc<str>>,
        version: u64,
    },
    TermBegan,
}

/// What became of one entry.
#[derive(Clone, Debug)]
pub(super) struct Stepped {
    pub revision: Revision,
    pub result: Result<Outcome, Refused>,
}

/// The reducer's proposals on their way, by number.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    waiting: BTreeMap<ProposalId, Waiting>,
    /// Reports on their way, by node: while there are some, the node is ahead of its mirror.
    reports: BTreeMap<NodeId, usize>,
    last_id: u64,
}

impl InFlight {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn next_id(&mut self) -> ProposalId {
        self.last_id += 1;
        ProposalId(self.last_id)
    }

    pub fn insert(&mut self, id: ProposalId, waiting: Waiting) {
        if let Waiting::Report { host, .. } = &waiting {
            *self.reports.entry(*host).or_default() += 1;
        }
        self.waiting.insert(id, waiting);
    }

    pub fn remove(&mut self, id: ProposalId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        if let Waiting::Report { host, .. } = &waiting
            && let Some(count) = self.reports.get_mut(host)
        {
            *count -= 1;
            if *count == 0 {
                self.reports.remove(host);
            }
        }
        Some(waiting)
    }

    pub fn has_reports_of(&self, host: NodeId) -> bool {
        self.reports.contains_key(&host)
    }

    /// Takes all that wait, when nothing will come any more.
    pub fn take_all(&mut self) -> Vec<Waiting> {
        self.reports.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}

impl Waiting {
    /// Tells whoever waits that it was not done, or that nobody knows.
    pub fn fail(self, error: WriteError) {
        match self {
            // Whoever waited may have gone.
            Self::Write(reply) => drop(reply.send(Err(error))),
            Self::Report { ack, .. } => drop(ack.send(Err(error))),
            Self::TermBegan => tracing::warn!(%error, "the beginning of the term is not in the log"),
            Self::Plan | Self::Manifests { .. } => {
                tracing::debug!(%error, "a plan or a set of manifests is not in the log");
            }
        }
    }
}

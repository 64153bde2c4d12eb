//! The keeper's reports and heartbeats: one of each under way at a time, and what the control plane has to be told next.

use std::time::Duration;

use super::prepared_rollouts::PreparedRollouts;
use super::retry::Retry;
use crate::ledger::{Account, Record};
use crate::limits::REPORT_EVENTS_MAX;
use crate::session::{
    Heartbeat, HeartbeatAnswer, OpenRollout, Report, ReportAnswer, ReportBody, RolloutId, SessionError,
};

/// What the control plane has to be told next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing is known of what it has: ask.
    Hello,
    Events {
        after: u64,
    },
    Inventory,
}

/// The reports and heartbeats that the keeper has under way, and what it has to report next.
pub(super) struct Reports {
    next: Next,
    retry: Retry,
    /// The least time between two reports of changes.
    gap_ms: u64,
    is_report_under_way: bool,
    /// When changes may be reported next.
    not_before_ms: Option<u64>,
    is_beat_under_way: bool,
    known: bool,
    /// The report under way is an account of everything.
    is_inventory: bool,
    told_all: bool,
    /// The last event that there was when events were sent again because of a heartbeat: where that did not help, the
    /// node sends an inventory.
    replayed_seq: Option<u64>,
}

impl Reports {
    pub fn new(gap_ms: u64) -> Self {
        Self {
            next: Next::Hello,
            retry: Retry::default(),
            gap_ms,
            is_report_under_way: false,
            not_before_ms: None,
            is_beat_under_way: false,
            known: false,
            is_inventory: false,
            told_all: false,
            replayed_seq: None,
        }
    }

    /// Whether the control plane has heard what this node has. Before that the node does not ask what to run.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Until when changes gather, where that is what the next report waits for.
    pub fn gathers_until_ms(&self) -> Option<u64> {
        self.not_before_ms.filter(|_| !self.is_report_under_way)
    }

    /// Begins the next report, where there is something to tell and none is under way: after which pause, and what.
    pub fn go_on(
        &mut self,
        account: &Account,
        rollouts: &PreparedRollouts,
        now_ms: u64,
    ) -> Option<(Duration, Report)> {
        if self.is_report_under_way || self.is_gathering(account, now_ms) {
            return None;
        }
        let body = self.body(account)?;
        self.is_inventory = matches!(body, ReportBody::Inventory { .. });
        self.not_before_ms = (self.gap_ms > 0).then(|| now_ms.saturating_add(self.gap_ms));
        self.is_report_under_way = true;
        let report = Report {
            rollouts: rollouts.known(),
            incarnation: account.incarnation(),
            body,
        };
        Some((self.retry.pause(), report))
    }

    /// Whether changes wait for others to go with them. An inventory that a server asked for never waits, nor does a
    /// full report.
    fn is_gathering(&mut self, account: &Account, now_ms: u64) -> bool {
        let is_full = match self.next {
            Next::Events { after } => account.seq().saturating_sub(after) >= REPORT_EVENTS_MAX as u64,
            Next::Hello | Next::Inventory => true,
        };
        let is_over = self.not_before_ms.is_none_or(|at_ms| at_ms <= now_ms);
        if is_over {
            self.not_before_ms = None;
        }
        !is_over && !is_full
    }

    fn body(&mut self, account: &Account) -> Option<ReportBody> {
        let after = match self.next {
            Next::Hello => account.durable_seq(),
            Next::Events { after } => after,
            Next::Inventory => return Some(inventory(account)),
        };
        let Some(events) = account.events_after(after, REPORT_EVENTS_MAX) else {
            self.next = Next::Inventory;
            return Some(inventory(account));
        };
        if events.is_empty() && self.next != Next::Hello {
            return None;
        }
        Some(ReportBody::Events {
            first_seq: after.saturating_add(1),
            events: events
                .into_iter()
                .map(|event| (event.name, event.event))
                .collect(),
        })
    }

    /// The heartbeat that is due, with what the node runs; none where nothing can be said, or one is under way.
    pub fn beat(&mut self, digest: Option<String>, rollouts: Vec<RolloutId>) -> Option<Heartbeat> {
        let digest = digest.filter(|_| self.known && !self.is_beat_under_way)?;
        self.is_beat_under_way = true;
        Some(Heartbeat { digest, rollouts })
    }

    /// Whether an account of everything has been taken since this was last asked.
    pub fn has_told_all(&mut self) -> bool {
        std::mem::take(&mut self.told_all)
    }

    pub fn take_beat(&mut self, answer: &HeartbeatAnswer, account: &Account) {
        self.is_beat_under_way = false;
        if answer.inventory_wanted {
            tracing::info!("the control plane had given this node up: telling it everything");
            self.next = Next::Inventory;
            return;
        }
        let Some(seq) = answer.replay_from else {
            self.replayed_seq = None;
            return;
        };
        let is_in_vain = self.replayed_seq.replace(account.seq()) == Some(account.seq());
        self.next = match is_in_vain {
            true => Next::Inventory,
            false => replay_from(seq, account),
        };
        tracing::info!(
            seq,
            everything = self.next == Next::Inventory,
            "the control plane believes something else of this node: telling it again"
        );
    }

    /// Takes an answer, and gives what of it belongs into the ledger, and the rollouts that are new.
    pub fn take_report(
        &mut self,
        answer: Result<ReportAnswer, SessionError>,
        account: &Account,
    ) -> (Option<Record>, Vec<OpenRollout>) {
        self.is_report_under_way = false;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.retry.failed("a report was not taken", &error);
                return (None, Vec::new());
            }
        };
        self.retry = Retry::default();
        match answer {
            ReportAnswer::Durable {
                seq,
                inventory_wanted,
                open,
            } => {
                self.known |= !inventory_wanted;
                self.told_all |= self.is_inventory && !inventory_wanted;
                // A ledger that has lost its end cannot tell what is missing.
                self.next = match inventory_wanted || seq > account.seq() {
                    true => Next::Inventory,
                    false => Next::Events { after: seq },
                };
                (Some(Record::Durable { seq }), open)
            }
            ReportAnswer::ReplayFrom { seq } if seq > account.seq() => {
                self.next = Next::Inventory;
                (Some(Record::Durable { seq }), Vec::new())
            }
            ReportAnswer::ReplayFrom { seq } => {
                self.next = replay_from(seq, account);
                (None, Vec::new())
            }
            ReportAnswer::InventoryWanted => {
                self.next = Next::Inventory;
                (None, Vec::new())
            }
        }
    }
}

/// Events from this number on, that one included where it is still here; everything where there is nothing to send.
fn replay_from(seq: u64, account: &Account) -> Next {
    let held = |after: u64| {
        account
            .events_after(after, 1)
            .is_some_and(|events| !events.is_empty())
    };
    let after = [seq.checked_sub(1), Some(seq)].into_iter().flatten();
    let after = after.into_iter().find(|after| held(*after));
    after.map_or(Next::Inventory, |after| Next::Events { after })
}

fn inventory(account: &Account) -> ReportBody {
    let replicas = account.replicas().iter();
    ReportBody::Inventory {
        seq: account.seq(),
        replicas: replicas
            .map(|(name, tracked)| (name.clone(), tracked.machine.clone()))
            .collect(),
    }
}

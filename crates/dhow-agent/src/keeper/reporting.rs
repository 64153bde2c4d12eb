//! The keeper's calls to the control plane: one report, one poll and one heartbeat under way at a time, each tried
//! again after a pause where it is not answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::assignment::Assignment;
use dhow_core::ids::Revision;
use tokio::time::Instant;

use crate::ledger::{Ledger, Record};
use crate::limits::{REPORT_EVENTS_MAX, RETRY_FIRST, RETRY_MAX};
use crate::session::{
    Heartbeat, HeartbeatAnswer, OpenRollout, Orders, Report, ReportAnswer, ReportBody, RolloutId, Session,
    SessionError,
};

type Call<T> = Pin<Box<dyn Future<Output = Result<T, SessionError>> + Send>>;

/// The pause before the next attempt.
#[derive(Debug, Default)]
struct Patience {
    failures: u32,
}

impl Patience {
    fn pause(&self) -> Duration {
        match self.failures {
            0 => Duration::ZERO,
            n => RETRY_FIRST.saturating_mul(1 << (n - 1).min(10)).min(RETRY_MAX),
        }
    }

    /// Counts a failure, and says it once.
    fn failed(&mut self, what: &str, error: &SessionError) {
        if self.failures == 0 {
            tracing::warn!(%error, "{what}; trying again");
        }
        self.failures = self.failures.saturating_add(1);
    }
}

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

/// What has come back.
pub enum Answer {
    Report(Result<ReportAnswer, SessionError>),
    Beat(Result<HeartbeatAnswer, SessionError>),
    /// The time has come to report what has gathered.
    Waited,
}

/// The reports and heartbeats that the keeper has under way, and what it has to report next.
pub struct Reporting {
    session: Arc<dyn Session>,
    next: Next,
    patience: Patience,
    report: Option<Call<ReportAnswer>>,
    /// When changes may be reported next.
    not_before: Option<Instant>,
    beat: Option<Call<HeartbeatAnswer>>,
    known: bool,
    /// The report under way is an account of everything.
    is_inventory: bool,
    told_all: bool,
    /// The last event that there was when events were sent again because of a heartbeat: where that did not help, the
    /// node sends an inventory.
    replayed_seq: Option<u64>,
}

impl Reporting {
    pub fn new(session: Arc<dyn Session>) -> Self {
        Self {
            session,
            next: Next::Hello,
            patience: Patience::default(),
            report: None,
            not_before: None,
            beat: None,
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

    /// Begins the next report, where there is something to tell and none is under way.
    pub fn go_on(&mut self, ledger: &Ledger, rollouts: Vec<RolloutId>) {
        if self.report.is_some() || self.is_gathering(ledger) {
            return;
        }
        let Some(body) = self.body(ledger) else { return };
        self.is_inventory = matches!(body, ReportBody::Inventory { .. });
        let gap = self.session.report_gap();
        self.not_before = (!gap.is_zero()).then(|| Instant::now() + gap);
        let report = Report {
            rollouts,
            incarnation: ledger.incarnation(),
            body,
        };
        let (session, pause) = (Arc::clone(&self.session), self.patience.pause());
        self.report = Some(Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            session.report(report).await
        }));
    }

    /// Whether changes wait for others to go with them. An inventory that a server asked for never waits, nor does a
    /// full report.
    fn is_gathering(&mut self, ledger: &Ledger) -> bool {
        let is_full = match self.next {
            Next::Events { after } => ledger.seq().saturating_sub(after) >= REPORT_EVENTS_MAX as u64,
            Next::Hello | Next::Inventory => true,
        };
        let is_over = self.not_before.is_none_or(|at| at <= Instant::now());
        if is_over {
            self.not_before = None;
        }
        !is_over && !is_full
    }

    fn body(&mut self, ledger: &Ledger) -> Option<ReportBody> {
        let after = match self.next {
            Next::Hello => ledger.durable_seq(),
            Next::Events { after } => after,
            Next::Inventory => return Some(inventory(ledger)),
        };
        let Some(events) = ledger.events_after(after, REPORT_EVENTS_MAX) else {
            self.next = Next::Inventory;
            return Some(inventory(ledger));
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

    pub fn beat(&mut self, digest: Option<String>, rollouts: Vec<RolloutId>) {
        let Some(digest) = digest.filter(|_| self.known && self.beat.is_none()) else {
            return;
        };
        let session = Arc::clone(&self.session);
        let beat = Heartbeat { digest, rollouts };
        self.beat = Some(Box::pin(async move { session.heartbeat(beat).await }));
    }

    /// Waits for what is under way.
    pub async fn answered(&mut self) -> Answer {
        let waits_until = self.not_before.filter(|_| self.report.is_none());
        let (report, beat) = (self.report.as_mut(), self.beat.as_mut());
        tokio::select! {
            answer = maybe(report) => Answer::Report(answer),
            answer = maybe(beat) => Answer::Beat(answer),
            () = until(waits_until) => Answer::Waited,
        }
    }

    /// Whether an account of everything has been taken since this was last asked.
    pub fn has_told_all(&mut self) -> bool {
        std::mem::take(&mut self.told_all)
    }

    /// Takes an answer, and gives what of it belongs into the ledger, and the rollouts that are new.
    pub fn take(&mut self, answer: Answer, ledger: &Ledger) -> (Option<Record>, Vec<OpenRollout>) {
        match answer {
            Answer::Report(answer) => {
                self.report = None;
                self.take_report(answer, ledger)
            }
            Answer::Waited => (None, Vec::new()),
            Answer::Beat(answer) => {
                self.beat = None;
                // One that is not answered is followed by the next.
                let answer = answer.unwrap_or_default();
                self.take_beat(&answer, ledger);
                (None, answer.open)
            }
        }
    }

    fn take_beat(&mut self, answer: &HeartbeatAnswer, ledger: &Ledger) {
        if answer.inventory_wanted {
            tracing::info!("the control plane had given this node up: telling it everything");
            self.next = Next::Inventory;
            return;
        }
        let Some(seq) = answer.replay_from else {
            self.replayed_seq = None;
            return;
        };
        let is_in_vain = self.replayed_seq.replace(ledger.seq()) == Some(ledger.seq());
        self.next = match is_in_vain {
            true => Next::Inventory,
            false => replay_from(seq, ledger),
        };
        tracing::info!(
            seq,
            everything = self.next == Next::Inventory,
            "the control plane believes something else of this node: telling it again"
        );
    }

    fn take_report(
        &mut self,
        answer: Result<ReportAnswer, SessionError>,
        ledger: &Ledger,
    ) -> (Option<Record>, Vec<OpenRollout>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.patience.failed("a report was not taken", &error);
                return (None, Vec::new());
            }
        };
        self.patience = Patience::default();
        match answer {
            ReportAnswer::Durable {
                seq,
                inventory_wanted,
                open,
            } => {
                self.known |= !inventory_wanted;
                self.told_all |= self.is_inventory && !inventory_wanted;
                // A ledger that has lost its end cannot tell what is missing.
                self.next = match inventory_wanted || seq > ledger.seq() {
                    true => Next::Inventory,
                    false => Next::Events { after: seq },
                };
                (Some(Record::Durable { seq }), open)
            }
            ReportAnswer::ReplayFrom { seq } if seq > ledger.seq() => {
                self.next = Next::Inventory;
                (Some(Record::Durable { seq }), Vec::new())
            }
            ReportAnswer::ReplayFrom { seq } => {
                self.next = replay_from(seq, ledger);
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
fn replay_from(seq: u64, ledger: &Ledger) -> Next {
    let held = |after: u64| {
        ledger
            .events_after(after, 1)
            .is_some_and(|events| !events.is_empty())
    };
    let after = [seq.checked_sub(1), Some(seq)].into_iter().flatten();
    let after = after.into_iter().find(|after| held(*after));
    after.map_or(Next::Inventory, |after| Next::Events { after })
}

fn inventory(ledger: &Ledger) -> ReportBody {
    let replicas = ledger.replicas().iter();
    ReportBody::Inventory {
        seq: ledger.seq(),
        replicas: replicas
            .map(|(name, tracked)| (name.clone(), tracked.machine.clone()))
            .collect(),
    }
}

async fn maybe<T>(call: Option<&mut Call<T>>) -> Result<T, SessionError> {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The poll for assignments.
pub struct Poll {
    orders: Arc<dyn Orders>,
    /// None at first: a node that has just started is told everything.
    last: Option<Revision>,
    patience: Patience,
    call: Option<Call<Assignment>>,
}

impl Poll {
    pub fn new(orders: Arc<dyn Orders>) -> Self {
        Self {
            orders,
            last: None,
            patience: Patience::default(),
            call: None,
        }
    }

    pub fn go_on(&mut self, may_ask: bool) {
        if self.call.is_some() || !may_ask {
            return;
        }
        let (orders, last, pause) = (Arc::clone(&self.orders), self.last, self.patience.pause());
        self.call = Some(Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            orders.assignments(last).await
        }));
    }

    pub async fn answered(&mut self) -> Result<Assignment, SessionError> {
        maybe(self.call.as_mut()).await
    }

    pub fn take(&mut self, answer: Result<Assignment, SessionError>) -> Option<Assignment> {
        self.call = None;
        match answer {
            Ok(update) => Some(update),
            Err(error) => {
                self.patience.failed("the assignment cannot be had", &error);
                None
            }
        }
    }

    /// The keeper has acted on the assignment of this revision.
    pub fn taken(&mut self, revision: Revision) {
        self.patience = Patience::default();
        self.last = Some(revision);
    }

    /// The keeper did not act on the assignment that came: it asks for it again, after a pause.
    pub fn refused(&mut self) {
        self.patience.failures = self.patience.failures.saturating_add(1);
    }
}

//! The session of a worker that may be removed from its cluster: then nothing here is anybody's any more, and the agent
//! is told so in the only way it knows, by an assignment without replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::session::grpc::GrpcSession;
use dhow_agent::{
    FileContents, FileKey, Heartbeat, HeartbeatAnswer, Highest, KnownDirectory, Orders, Pace, Report,
    ReportAnswer, ReportBody, Session, SessionFuture,
};
use dhow_core::assignment::Assignment;
use dhow_core::ids::{Revision, ServiceKey};
use dhow_core::usage::NodeUsage;
use tokio::sync::watch;

/// A worker's session until the cluster has removed the worker; from then on one whose assignment has no replicas, so
/// that the agent ends what it runs.
pub struct RemovableSession {
    session: Arc<GrpcSession>,
    removed: watch::Sender<bool>,
}

impl RemovableSession {
    pub fn new(session: Arc<GrpcSession>) -> Self {
        Self {
            session,
            removed: watch::Sender::new(false),
        }
    }

    /// From now on the node has no work.
    pub fn remove(&self) {
        self.removed.send_replace(true);
    }

    async fn removed(&self) {
        // The sender is this one's own.
        let _ = self.removed.subscribe().wait_for(|removed| *removed).await;
    }
}

/// Nobody will ask for what happened any more.
fn forgotten(body: &ReportBody) -> ReportAnswer {
    let seq = match body {
        ReportBody::Events { first_seq, events } => {
            let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
            first_seq.saturating_add(count).saturating_sub(1)
        }
        ReportBody::Inventory { seq, .. } => *seq,
    };
    ReportAnswer::Durable {
        seq,
        inventory_wanted: false,
        open: Vec::new(),
    }
}

impl Session for RemovableSession {
    fn report(&self, report: Report) -> SessionFuture<'_, ReportAnswer> {
        let answer = forgotten(&report.body);
        Box::pin(async move {
            tokio::select! {
                biased;
                () = self.removed() => Ok(answer),
                answer = self.session.report(report) => answer,
            }
        })
    }

    fn heartbeat(&self, beat: Heartbeat) -> SessionFuture<'_, HeartbeatAnswer> {
        self.session.heartbeat(beat)
    }

    fn usage(&self, usage: NodeUsage, is_urgent: bool) {
        self.session.usage(usage, is_urgent);
    }

    fn heard(&self) -> watch::Receiver<bool> {
        self.session.heard()
    }

    fn secrets<'a>(&'a self, names: &'a [String]) -> SessionFuture<'a, BTreeMap<String, String>> {
        self.session.secrets(names)
    }

    fn files<'a>(&'a self, wanted: &'a [FileKey]) -> SessionFuture<'a, FileContents> {
        self.session.files(wanted)
    }

    fn pace(&self) -> watch::Receiver<Pace> {
        self.session.pace()
    }

    fn report_gap(&self) -> Duration {
        self.session.report_gap()
    }
}

impl Orders for RemovableSession {
    fn assignments(&self, last: Option<Revision>) -> SessionFuture<'_, Assignment> {
        Box::pin(async move {
            tokio::select! {
                biased;
                () = self.removed() => {
                    if last == Some(Revision(u64::MAX)) {
                        std::future::pending::<()>().await;
                    }
                    Ok(Assignment::nothing(Revision(u64::MAX)))
                }
                update = self.session.assignments(last) => update,
            }
        })
    }

    fn acted_on(&self, highest: &Highest) {
        self.session.acted_on(highest);
    }

    fn directory(&self) -> watch::Receiver<Option<Arc<KnownDirectory>>> {
        self.session.directory()
    }

    fn want(&self, services: &BTreeSet<ServiceKey>) {
        self.session.want(services);
    }
}

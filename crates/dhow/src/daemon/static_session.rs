//! The session of a static peer's agent: it is told what to run by this node's own copy of the state, and reports to
//! whoever leads over the same protocol as everywhere.

use std::collections::BTreeMap;
use std::time::Duration;

use dhow_agent::session::grpc::GrpcSession;
use dhow_agent::{Heartbeat, HeartbeatAnswer, Pace, Report, ReportAnswer, Session, SessionFuture};
use dhow_core::assignment::Assignment;
use dhow_core::ids::Revision;
use dhow_core::usage::NodeUsage;
use dhow_server::plane::scale::OwnWork;
use tokio::sync::watch;

/// The session of a static peer's agent: it takes assignments from the node's own copy of the state, and sends reports
/// and heartbeats to the leader.
pub struct StaticSession {
    pub work: OwnWork,
    pub leader: GrpcSession,
}

impl Session for StaticSession {
    fn report(&self, report: Report) -> SessionFuture<'_, ReportAnswer> {
        self.leader.report(report)
    }

    fn assignments(&self, last: Option<Revision>) -> SessionFuture<'_, Assignment> {
        Box::pin(async move { Ok(self.work.next(last).await) })
    }

    fn heartbeat(&self, beat: Heartbeat) -> SessionFuture<'_, HeartbeatAnswer> {
        self.leader.heartbeat(beat)
    }

    fn usage(&self, usage: NodeUsage) {
        self.leader.usage(usage);
    }

    fn secrets<'a>(&'a self, names: &'a [String]) -> SessionFuture<'a, BTreeMap<String, String>> {
        self.leader.secrets(names)
    }

    fn pace(&self) -> Option<watch::Receiver<Pace>> {
        self.leader.pace()
    }

    fn report_gap(&self) -> Duration {
        self.leader.report_gap()
    }
}

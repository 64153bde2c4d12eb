//! The session of a node with its control plane: one connection to a server with one stream of assignments
//! on it, and calls beside it.
//!
//! Made by the daemon, which knows where servers are and how connections are secured. A task of its own finds the best
//! server that answers, goes where it is sent, and comes back after every break with what the agent has last seen, so that
//! nothing is lost. While nobody answers, calls fail or wait and the agent goes on with what it has: this must never
//! make an assignment up, and never drop one.

mod backoff;
mod connector;
mod errand;
mod heard;
mod link;
mod mailbox;
mod options;
mod routes;
mod seeker;
mod servers;
mod standing;
mod wanting;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dhow_core::assignment::Assignment;
use dhow_core::ids::{Revision, ServiceKey};
use dhow_core::spec::ContentHash;
use dhow_core::state::NodeInfo;
use dhow_core::usage::NodeUsage;
use dhow_wire::grpc::proto::status_report::Body;
use dhow_wire::grpc::proto::{self, FilesRequest, RenewRequest, SecretsRequest, StatusAck, StatusReport};
use dhow_wire::grpc::{Refusal, from_open_rollout, to_body, to_usage};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tonic::{Request, Status};

use super::{
    Heartbeat, HeartbeatAnswer, KnownDirectory, Orders, Pace, Report, ReportAnswer, RolloutId, Session,
    SessionError, SessionFuture,
};
use crate::files::{FileContents, FileKey};
use crate::highest::Highest;
use crate::limits::CALL_TIMEOUT;
use link::{Link, SessionState};
use mailbox::Found;

pub use backoff::Backoff;
pub use connector::{Connector, ConnectorFuture};
pub use errand::{Errand, ErrandError, Joining};
pub use options::{DialBack, GrpcOptions};
pub use routes::{Endpoint, FixedRoutes, Routes};
pub use seeker::Seeker;
pub use standing::SessionStanding;

/// The agent's session over gRPC: calls go over the connection that its link has, and assignments come out of the
/// link's mailbox. The link's task ends with it.
pub struct GrpcSession {
    shared: Arc<SessionState>,
    link: AbortHandle,
}

impl GrpcSession {
    /// Begins to look for a server. Call it on a runtime.
    pub fn start(options: GrpcOptions) -> Self {
        let shared = Arc::new(SessionState::new(options));
        let link = tokio::spawn(Link::new(Arc::clone(&shared)).run());
        Self {
            shared,
            link: link.abort_handle(),
        }
    }

    /// Follows how the session stands.
    pub fn standing(&self) -> watch::Receiver<SessionStanding> {
        self.shared.standing.subscribe()
    }

    /// Follows whether the node is to end its process once its last replica has gone.
    pub fn drains(&self) -> watch::Receiver<bool> {
        self.shared.drains.subscribe()
    }

    /// Says something else of the node from now on: a session that is open begins anew with it.
    pub fn say(&self, info: NodeInfo) {
        let is_news = self.shared.info.send_if_modified(|said| {
            let is_news = *said != info;
            *said = info;
            is_news
        });
        if is_news {
            self.shared.leave_any();
        }
    }

    /// A new certificate for the key in the request; the leaf first, as PEM.
    pub async fn renew(&self, csr_pem: String) -> Result<String, SessionError> {
        let reply = self.call(async |open| {
            let mut client = open.client.clone();
            client
                .renew(Request::new(RenewRequest {
                    csr_pem,
                    for_proxy: false,
                }))
                .await
        });
        Ok(reply.await?.certificate_chain_pem)
    }

    /// Sends a report and takes what its answer says of the pace.
    async fn send(
        &self,
        incarnation: Option<u64>,
        rollouts: &[RolloutId],
        body: Body,
    ) -> Result<StatusAck, SessionError> {
        let report = StatusReport {
            node_id: self.shared.options.node.0,
            incarnation,
            revision: None,
            body: Some(body),
            rollouts: rollouts.iter().map(RolloutId::to_string).collect(),
        };
        let ack = self.call(async |open| {
            let mut client = open.client.clone();
            client.report_status(Request::new(report)).await
        });
        let ack = ack.await?;
        self.shared.pace.send_if_modified(|pace| {
            let is_news = pace.ttl_secs != ack.next_ttl_secs;
            pace.ttl_secs = ack.next_ttl_secs;
            is_news
        });
        Ok(ack)
    }

    /// Makes a call on the open connection, once there is one; all of it has a deadline.
    async fn call<T>(
        &self,
        call: impl AsyncFnOnce(&link::Open) -> Result<tonic::Response<T>, Status>,
    ) -> Result<T, SessionError> {
        let mut made = None;
        let answered = tokio::time::timeout(CALL_TIMEOUT, async {
            let open = self.shared.opened().await?;
            made = Some(Arc::clone(&open));
            Some(call(&open).await)
        });
        let answered = answered.await;
        if let (Ok(_), Some(open)) = (&answered, &made) {
            open.patience.answered();
        }
        match answered {
            Ok(Some(Ok(answer))) => Ok(answer.into_inner()),
            Ok(Some(Err(status))) => Err(self.failed(made.map(|open| open.number), &status)),
            Ok(None) => Err(SessionError::Unavailable("the session has ended".into())),
            Err(_) => {
                if let Some(open) = made
                    && open.patience.is_over(self.shared.pace.borrow().ttl_secs)
                {
                    self.shared.leave(open.number, None);
                }
                let told = self.shared.standing.borrow().to_string();
                Err(SessionError::Unavailable(told))
            }
        }
    }

    /// What a failed call means; a server that does not lead, or breaks off, is left.
    fn failed(&self, number: Option<u64>, status: &Status) -> SessionError {
        let refusal = Refusal::from_status(status);
        let leaves = match &refusal {
            Some(
                Refusal::NotLeader { .. }
                | Refusal::UnknownNode
                | Refusal::ShuttingDown
                | Refusal::Identity(_),
            )
            | None => true,
            Some(
                Refusal::Busy
                | Refusal::TooOften
                | Refusal::Replaced
                | Refusal::Malformed(_)
                | Refusal::Credential(_)
                | Refusal::NotGiven(_),
            ) => false,
        };
        if let Some(number) = number.filter(|_| leaves) {
            self.shared.leave(number, refusal.clone());
        }
        match refusal {
            Some(Refusal::NotGiven(why) | Refusal::Malformed(why)) => SessionError::Refused(why),
            Some(other) => SessionError::Unavailable(other.to_string()),
            None => SessionError::Unavailable(status.message().to_owned()),
        }
    }

    async fn hand_in(&self, report: Report) -> Result<ReportAnswer, SessionError> {
        let body = to_body(&report.body).map_err(|error| SessionError::Refused(error.to_string()))?;
        let ack = self
            .send(Some(report.incarnation), &report.rollouts, body)
            .await?;
        match (ack.durable_seq, ack.replay_from, ack.inventory_wanted) {
            (Some(seq), _, inventory_wanted) => Ok(ReportAnswer::Durable {
                seq,
                inventory_wanted,
                open: ack.bootstrap.into_iter().filter_map(from_open_rollout).collect(),
            }),
            (None, Some(seq), _) => Ok(ReportAnswer::ReplayFrom { seq }),
            (None, None, true) => Ok(ReportAnswer::InventoryWanted),
            (None, None, false) => Err(SessionError::Unavailable(
                "the answer to a report says nothing".into(),
            )),
        }
    }

    async fn next_update(&self, last: Option<Revision>) -> Result<Assignment, SessionError> {
        loop {
            let news = self.shared.mailbox.news();
            match self.shared.mailbox.take(last) {
                Found::News(assignment) => return Ok(assignment),
                Found::Nothing => news.await,
                Found::OtherHistory => {
                    self.shared.leave_any();
                    news.await;
                }
            }
        }
    }

    async fn fetch(&self, names: &[String]) -> Result<BTreeMap<String, String>, SessionError> {
        let names = names.to_vec();
        let reply = self.call(async |open| {
            let mut client = open.client.clone();
            client.secrets(Request::new(SecretsRequest { names })).await
        });
        let secrets = reply.await?.secrets.into_iter();
        secrets.map(|secret| as_text(secret.name, secret.value)).collect()
    }

    async fn fetch_files(&self, wanted: &[FileKey]) -> Result<FileContents, SessionError> {
        let mut asked = FilesRequest::default();
        for key in wanted {
            match key {
                FileKey::Config(hash) => asked.contents.push(hash.to_string()),
                FileKey::Secret { name, version } => asked.secrets.push(proto::SecretVersion {
                    name: name.clone(),
                    version: *version,
                }),
            }
        }
        let reply = self.call(async |open| {
            let mut client = open.client.clone();
            client.files(Request::new(asked)).await
        });
        let found = reply.await?.files.into_iter();
        let found = found.filter_map(|file| match (file.content, file.secret) {
            (Some(content), _) => Some((FileKey::Config(ContentHash::parse(&content)?), file.bytes)),
            (None, Some(proto::SecretVersion { name, version })) => {
                Some((FileKey::Secret { name, version }, file.bytes))
            }
            (None, None) => None,
        });
        // A config is what its hash says, whoever gives it.
        let is_whole = |key: &FileKey, bytes: &[u8]| match key {
            FileKey::Config(hash) => ContentHash::of(bytes) == *hash,
            FileKey::Secret { .. } => true,
        };
        Ok(found.filter(|(key, bytes)| is_whole(key, bytes)).collect())
    }
}

impl Session for GrpcSession {
    fn report(&self, report: Report) -> SessionFuture<'_, ReportAnswer> {
        Box::pin(self.hand_in(report))
    }

    fn heartbeat(&self, beat: Heartbeat) -> SessionFuture<'_, HeartbeatAnswer> {
        Box::pin(async move {
            let digest = Some(beat.digest).filter(|digest| !digest.is_empty());
            let usage = self.shared.usage.borrow().as_ref().map(to_usage);
            let body = Body::Heartbeat(proto::Heartbeat { digest, usage });
            let sent = self.send(None, &beat.rollouts, body).await;
            // A leader has answered, or the session is with one that has none.
            self.shared.hear(sent.is_ok());
            let ack = sent?;
            self.shared.pace.send_if_modified(|pace| {
                let is_news = pace.follows_load != ack.follows_load;
                pace.follows_load = ack.follows_load;
                is_news
            });
            Ok(HeartbeatAnswer {
                inventory_wanted: ack.inventory_wanted,
                replay_from: ack.replay_from,
                open: ack.bootstrap.into_iter().filter_map(from_open_rollout).collect(),
            })
        })
    }

    fn usage(&self, usage: NodeUsage, is_urgent: bool) {
        self.shared.usage.send_replace(Some(usage));
        if is_urgent {
            self.shared
                .pace
                .send_modify(|pace| pace.urgent = pace.urgent.wrapping_add(1));
        }
    }

    fn heard(&self) -> watch::Receiver<bool> {
        self.shared.heard.subscribe()
    }

    fn secrets<'a>(&'a self, names: &'a [String]) -> SessionFuture<'a, BTreeMap<String, String>> {
        Box::pin(self.fetch(names))
    }

    fn files<'a>(&'a self, wanted: &'a [FileKey]) -> SessionFuture<'a, FileContents> {
        Box::pin(self.fetch_files(wanted))
    }

    fn pace(&self) -> watch::Receiver<Pace> {
        self.shared.pace.subscribe()
    }

    fn report_gap(&self) -> Duration {
        self.shared.options.report_gap
    }
}

impl Orders for GrpcSession {
    fn assignments(&self, last: Option<Revision>) -> SessionFuture<'_, Assignment> {
        Box::pin(self.next_update(last))
    }

    /// Servers open no session for a node that is ahead of them.
    fn acted_on(&self, highest: &Highest) {
        self.shared.highest.send_replace(highest.clone());
    }

    fn directory(&self) -> watch::Receiver<Option<Arc<KnownDirectory>>> {
        self.shared.directory.subscribe()
    }

    fn want(&self, services: &BTreeSet<ServiceKey>) {
        self.shared.wanted.send_if_modified(|wanted| {
            let is_news = wanted != services;
            wanted.clone_from(services);
            is_news
        });
    }
}

impl Drop for GrpcSession {
    fn drop(&mut self) {
        self.link.abort();
    }
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

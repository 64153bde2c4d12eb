//! The leader's answers to holders: whose sessions they may serve, whom they have heard, and what their nodes report.
//! Only members are answered.

use dhow_core::ids::{NodeId, Term};
use dhow_core::lease::TOGETHER_MAX;
use dhow_wire::grpc::proto::{
    HeldAck, HeldAcks, HeldRenewal, HeldReport, HeldReports, HolderBeat, HolderBeatAnswer, OpenReply,
    OpenRequest, OpenSession, OpenedSession, RegisterReply, RegisterRequest, RenewReply, StatusAck, held_ack,
    opened_session,
};
use dhow_wire::grpc::{Holders, Refusal, fit_acks, from_beat, to_answer, to_session};
use futures_util::StreamExt;
use futures_util::stream;
use tonic::{Request, Response, Status};

use super::caller::Caller;
use super::given::Given;
use super::limits::ACKS_BYTES_MAX;
use super::node_gateway::{GatewayState, NodeGateway};
use super::rates::Kind;
use crate::net::identity::Identity;

/// Questions of one message that are worked on at a time.
const AT_ONCE: usize = 64;

impl GatewayState {
    /// A node wants a session with a holder, which is this server or another one. Only the leader decides.
    pub(super) async fn open_for(
        &self,
        holder: NodeId,
        boot: u64,
        asked: OpenSession,
    ) -> Result<Given, Refusal> {
        let node = NodeId(asked.node_id);
        let identity = identity_of(node, asked.is_worker);
        self.leading_term().await?;
        let is_known = self.options.view.state().node(node).is_some();
        self.check_role(identity)?;
        self.hear(node, Kind::Call)?;
        let admitted = async {
            let state = self.confirmed_state().await?;
            let followed = Term(asked.highest_term);
            self.check_followed(&state, node, &asked.highest_cluster, followed)?;
            self.admit(identity, &state, asked.info).await
        };
        if let Err(refusal) = admitted.await {
            if !is_known {
                self.options.leases.forget(node);
            }
            return Err(refusal);
        }
        let given = self.options.leases.session_opened(holder, boot, node);
        let (session, ttl_secs) = given.ok_or_else(|| self.not_leader())?;
        Ok(Given { session, ttl_secs })
    }

    /// What a node has reported to a holder.
    async fn report_for(&self, held: HeldReport) -> Result<StatusAck, Refusal> {
        let node = NodeId(held.node_id);
        let report = held
            .report
            .ok_or_else(|| Refusal::Malformed("the report says nothing".into()))?;
        self.state_with(node).await?;
        self.check_role(identity_of(node, held.is_worker))?;
        let ttl_secs = self.hear(node, Kind::Call)?;
        self.take_status(node, ttl_secs, report).await
    }

    /// The member that calls.
    fn holder_of<T>(&self, request: &Request<T>) -> Result<NodeId, Refusal> {
        match Caller::of(request)?.identity {
            Identity::Member(node) if (self.options.members)().contains(&node) => Ok(node),
            Identity::Member(_) | Identity::Worker(_) => Err(Refusal::Identity(
                "only members of the cluster hold sessions of its nodes".into(),
            )),
        }
    }
}

fn identity_of(node: NodeId, is_worker: bool) -> Identity {
    match is_worker {
        true => Identity::Worker(node),
        false => Identity::Member(node),
    }
}

fn check_count(count: usize) -> Result<(), Refusal> {
    match count <= TOGETHER_MAX {
        true => Ok(()),
        false => Err(Refusal::Malformed(format!(
            "a message holds {TOGETHER_MAX} questions at most"
        ))),
    }
}

#[tonic::async_trait]
impl Holders for NodeGateway {
    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenReply>, Status> {
        let holder = self.inner.holder_of(&request)?;
        let OpenRequest { boot, sessions } = request.into_inner();
        check_count(sessions.len())?;
        if sessions.is_empty() {
            self.inner.leading_term().await?;
            self.inner.confirmed_state().await?;
        }
        let opened = stream::iter(sessions)
            .map(|asked| async move {
                match self.inner.open_for(holder, boot, asked).await {
                    Ok(given) => OpenedSession {
                        outcome: Some(opened_session::Outcome::Session(to_session(given.session))),
                        ttl_secs: given.ttl_secs,
                    },
                    Err(refusal) => OpenedSession {
                        outcome: Some(opened_session::Outcome::Refused(refusal.to_refused())),
                        ttl_secs: 0,
                    },
                }
            })
            .buffered(AT_ONCE);
        Ok(Response::new(OpenReply {
            sessions: opened.collect().await,
            read_index: self.inner.options.view.applied_index(),
        }))
    }

    async fn beat(&self, request: Request<HolderBeat>) -> Result<Response<HolderBeatAnswer>, Status> {
        let holder = self.inner.holder_of(&request)?;
        self.inner.leading_term().await?;
        self.inner.confirmed_state().await?;
        let read_index = self.inner.options.view.applied_index();
        let beat = from_beat(request.into_inner());
        let answer = self.inner.options.leases.beat(holder, &beat);
        let answer = answer.ok_or_else(|| self.inner.not_leader())?;
        Ok(Response::new(HolderBeatAnswer {
            read_index,
            ..to_answer(&answer)
        }))
    }

    async fn report(&self, request: Request<HeldReports>) -> Result<Response<HeldAcks>, Status> {
        self.inner.holder_of(&request)?;
        let HeldReports { reports } = request.into_inner();
        check_count(reports.len())?;
        self.inner.leading_term().await?;
        let acks = stream::iter(reports)
            .map(|held| async move {
                let outcome = match self.inner.report_for(held).await {
                    Ok(ack) => held_ack::Outcome::Ack(ack),
                    Err(refusal) => held_ack::Outcome::Refused(refusal.to_refused()),
                };
                HeldAck {
                    outcome: Some(outcome),
                }
            })
            .buffered(TOGETHER_MAX);
        let mut acks: Vec<HeldAck> = acks.collect().await;
        fit_acks(&mut acks, ACKS_BYTES_MAX);
        Ok(Response::new(HeldAcks {
            acks,
            index: self.inner.options.view.applied_index(),
        }))
    }

    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<RegisterReply>, Status> {
        self.inner.holder_of(&request)?;
        Ok(Response::new(self.inner.register(request.into_inner()).await?))
    }

    async fn renew(&self, request: Request<HeldRenewal>) -> Result<Response<RenewReply>, Status> {
        self.inner.holder_of(&request)?;
        Ok(Response::new(self.inner.renew_for(request.into_inner()).await?))
    }
}

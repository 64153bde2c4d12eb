//! The service itself: each call's caller, its limits, and whether this server leads.

use std::sync::Arc;

use axum::Router;
use dhow_core::ids::{NodeId, Revision, Term};
use dhow_core::state::State;
use dhow_wire::grpc::proto::{
    Opened, RegisterReply, RegisterRequest, RenewReply, RenewRequest, SecretsReply, SecretsRequest,
    SessionEvent, SessionRequest, StatusAck, StatusReport,
};
use dhow_wire::grpc::{
    LeaderHint, MESSAGE_BYTES_MAX, Nodes, NodesServer, REPORT_BYTES_MAX, Refusal, SpecTexts,
};
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};
use tower::ServiceExt;

use super::caller::Caller;
use super::limits::{BARRIER_MAX_MS, WARM_UP_MS};
use super::options::{GatewayOptions, SessionAddress};
use super::rates::{JoinRate, Kind, NodeRates};
use super::secrets;
use super::session_stream::SessionStream;
use super::sessions::Sessions;
use crate::runtime::HeartbeatIngest;

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct NodeGateway {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub options: GatewayOptions,
    pub heartbeats: HeartbeatIngest,
    /// Shared with the other port's, as the sessions are.
    pub rates: Arc<NodeRates>,
    /// Registrations, which come from those who are nobody yet.
    pub joins: Arc<JoinRate>,
    sessions: Sessions,
    /// The same for all nodes.
    pub spec_texts: Arc<SpecTexts>,
}

/// The service as routes, to be merged into the API's port.
pub fn routes(gateway: NodeGateway) -> Router {
    let service = NodesServer::new(gateway)
        .max_decoding_message_size(REPORT_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let service = service.map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new));
    Router::new().route_service("/dhow.v1.Nodes/{*call}", service)
}

impl NodeGateway {
    pub fn new(options: GatewayOptions) -> Self {
        // Whoever calls was heard before anything else, and its lease renewed then.
        let renew = Arc::new(|_: NodeId, _: u64| {});
        let heartbeats = HeartbeatIngest::new(options.input.clone(), Arc::clone(&options.clock), renew);
        Self {
            inner: Arc::new(Inner {
                options,
                heartbeats,
                rates: Arc::default(),
                joins: Arc::default(),
                sessions: Sessions::default(),
                spec_texts: Arc::default(),
            }),
        }
    }

    /// The same door at another port: whoever comes to the wrong server is sent to this address of the right one.
    pub fn at(&self, session_address: Arc<SessionAddress>) -> Self {
        let inner = &self.inner;
        Self {
            inner: Arc::new(Inner {
                options: GatewayOptions {
                    session_address,
                    ..inner.options.clone()
                },
                heartbeats: inner.heartbeats.clone(),
                rates: Arc::clone(&inner.rates),
                joins: Arc::clone(&inner.joins),
                sessions: inner.sessions.clone(),
                spec_texts: Arc::clone(&inner.spec_texts),
            }),
        }
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.inner.sessions.len()
    }
}

impl Inner {
    /// Who leads, as far as this server knows.
    pub fn not_leader(&self) -> Refusal {
        let leadership = self.options.view.leadership();
        let leader = leadership.leader.filter(|_| !leadership.is_here).map(NodeId);
        Refusal::NotLeader {
            leader: leader.map(|node| LeaderHint {
                node,
                address: (self.options.session_address)(node),
            }),
        }
    }

    /// Waits until this server leads in earnest, where it has just been elected; gives its term.
    pub async fn leading_term(&self) -> Result<u64, Refusal> {
        if let Some(term) = self.options.leases.term() {
            return Ok(term);
        }
        if !self.options.view.leadership().is_here {
            return Err(self.not_leader());
        }
        let mut terms = self.options.leases.terms();
        let until_ms = self.options.clock.monotonic_ms().saturating_add(WARM_UP_MS);
        tokio::select! {
            biased;
            term = terms.wait_for(Option::is_some) => term.ok().and_then(|term| *term),
            () = self.options.clock.sleep_until_monotonic(until_ms) => None,
        }
        .ok_or_else(|| self.not_leader())
    }

    /// The state with everything in it that any server had acknowledged before this was called. A server that was
    /// paused or cut off may still believe that it leads: nothing that ends work or gives something away is said
    /// before the others have confirmed it. One round serves all who wait.
    pub async fn confirmed_state(&self) -> Result<Arc<State>, Refusal> {
        self.leading_term().await?;
        let clock = &self.options.clock;
        let until_ms = clock.monotonic_ms().saturating_add(BARRIER_MAX_MS);
        tokio::select! {
            biased;
            latest = self.options.view.latest() => latest.map_err(|error| self.refusal(error)),
            () = clock.sleep_until_monotonic(until_ms) => Err(Refusal::NotLeader { leader: None }),
        }
    }

    /// The state, with the node in it; that it is unknown is said of a confirmed one alone.
    pub async fn state_with(&self, node: NodeId) -> Result<Arc<State>, Refusal> {
        let state = self.options.view.state();
        if state.node(node).is_some() {
            return Ok(state);
        }
        if !self
            .rates
            .allow(node, Kind::Call, self.options.clock.monotonic_ms())
        {
            return Err(Refusal::TooOften);
        }
        let state = self.confirmed_state().await?;
        match state.node(node).is_some() {
            true => Ok(state),
            false => Err(Refusal::UnknownNode),
        }
    }

    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Refusal> {
        Caller::of(request)
    }

    /// Renews the caller's lease and counts its call. Whoever asks too often lives all the same.
    pub fn hear(&self, node: NodeId, kind: Kind) -> Result<u32, Refusal> {
        let ttl_secs = self.options.leases.renew(node).ok_or_else(|| self.not_leader())?;
        match self.rates.allow(node, kind, self.options.clock.monotonic_ms()) {
            true => Ok(ttl_secs),
            false => Err(Refusal::TooOften),
        }
    }

    /// The same for one whose connection notes when it was heard.
    fn hear_caller(&self, caller: &Caller, kind: Kind) -> Result<u32, Refusal> {
        self.check_role(caller.identity)?;
        let heard = self.hear(caller.node(), kind);
        if let Some(connection) = &caller.heard {
            connection.renewed_at(self.options.clock.monotonic_ms());
        }
        heard
    }

    async fn open(self: &Arc<Self>, request: Request<SessionRequest>) -> Result<SessionStreamBox, Refusal> {
        let caller = self.caller(&request)?;
        let request = request.into_inner();
        caller.check_named(request.node_id)?;
        let term = self.leading_term().await?;
        let node = caller.node();
        let is_known = self.options.view.state().node(node).is_some();
        let ttl_secs = self.hear_caller(&caller, Kind::Call)?;
        let admitted = async {
            let state = self.confirmed_state().await?;
            let followed = Term(request.highest_term);
            self.check_followed(&state, node, &request.highest_cluster, followed)?;
            self.admit(&caller, &state, request.info).await
        };
        if let Err(refusal) = admitted.await {
            if !is_known {
                self.options.leases.forget(node);
            }
            return Err(refusal);
        }
        let (leases, clock) = (self.options.leases.clone(), Arc::clone(&self.options.clock));
        let guard = self.sessions.open(node, caller.heard, leases, clock);
        let state = self.options.view.state();
        let opened = Opened {
            cluster_id: state.cluster_id.as_deref().unwrap_or_default().to_owned(),
            next_ttl_secs: ttl_secs,
            grace_secs: self.options.leases.grace_secs(),
            leader_id: self.options.view.leadership().leader.unwrap_or_default(),
            term,
        };
        tracing::debug!(%node, instance = request.instance, "a node has opened its session");
        let last = request.last_revision.map(Revision);
        Ok(SessionStream::new(Arc::clone(self), node, guard, term, last).begin(opened))
    }

    /// A node that has acted on a higher term than this cluster has reached follows another history of it: it would
    /// refuse whatever it is told here, and is given no session, so that its work goes elsewhere.
    fn check_followed(
        &self,
        state: &State,
        node: NodeId,
        cluster_id: &str,
        followed: Term,
    ) -> Result<(), Refusal> {
        if followed <= state.term || state.cluster_id.as_deref() != Some(cluster_id) {
            return Ok(());
        }
        self.options.leases.higher_term(node, followed, state.term);
        Err(Refusal::NotLeader { leader: None })
    }

    async fn report(&self, request: Request<StatusReport>) -> Result<StatusAck, Refusal> {
        let caller = self.caller(&request)?;
        let report = request.into_inner();
        caller.check_named(report.node_id)?;
        self.leading_term().await?;
        let node = caller.node();
        self.state_with(node).await?;
        let ttl_secs = self.hear_caller(&caller, Kind::Call)?;
        self.take_status(node, ttl_secs, report).await
    }

    async fn tell_secrets(&self, request: Request<SecretsRequest>) -> Result<SecretsReply, Refusal> {
        let caller = self.caller(&request)?;
        self.leading_term().await?;
        let node = caller.node();
        self.state_with(node).await?;
        self.hear_caller(&caller, Kind::Secrets)?;
        let state = self.confirmed_state().await?;
        if state.node(node).is_none() {
            return Err(Refusal::UnknownNode);
        }
        secrets::answer(&self.options.secrets, &state, node, &request.get_ref().names)
    }
}

type SessionStreamBox = BoxStream<'static, Result<SessionEvent, Status>>;

#[tonic::async_trait]
impl Nodes for NodeGateway {
    type SessionStream = SessionStreamBox;

    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<RegisterReply>, Status> {
        Ok(Response::new(self.inner.register(request.into_inner()).await?))
    }

    async fn session(&self, request: Request<SessionRequest>) -> Result<Response<SessionStreamBox>, Status> {
        Ok(Response::new(self.inner.open(request).await?))
    }

    async fn report_status(&self, request: Request<StatusReport>) -> Result<Response<StatusAck>, Status> {
        Ok(Response::new(self.inner.report(request).await?))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        Ok(Response::new(self.inner.renew(&request).await?))
    }

    async fn secrets(&self, request: Request<SecretsRequest>) -> Result<Response<SecretsReply>, Status> {
        Ok(Response::new(self.inner.tell_secrets(request).await?))
    }
}

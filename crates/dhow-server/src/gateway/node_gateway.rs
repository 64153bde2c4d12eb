//! The service itself: each call's caller, its limits, and whether this server leads.

use std::sync::Arc;

use axum::Router;
use dhow_core::directory::{Interest, WordOfInterest};
use dhow_core::ids::{NodeId, Revision, Term};
use dhow_core::state::State;
use dhow_wire::grpc::proto::{
    FilesReply, FilesRequest, HeldReport, OpenSession, Opened, ReachReply, ReachRequest, RegisterReply,
    RegisterRequest, RenewReply, RenewRequest, SecretsReply, SecretsRequest, ServerAddress, ServiceName,
    SessionEvent, SessionRequest, StatusAck, StatusReport, WantReply, WantRequest,
};
use dhow_wire::grpc::{
    HoldersServer, LeaderHint, MESSAGE_BYTES_MAX, Nodes, NodesServer, REPORT_BYTES_MAX, Refusal, SpecTexts,
    from_node_info, from_service_names,
};
use futures_util::stream::BoxStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tower::ServiceExt;

use super::caller::Caller;
use super::given::{Given, Unserved};
use super::holder::Holder;
use super::limits::{BARRIER_MAX_MS, CLUSTER_NAME_BYTES_MAX, WARM_UP_MS};
use super::options::{GatewayOptions, SessionAddress};
use super::rates::{JoinRate, Kind, NodeRates};
use super::session_stream::{Asked, SessionStream};
use super::{files, secrets};
use crate::net::identity::Identity;
use crate::plane::runtime::HeartbeatIngest;

/// The gRPC service for sessions of nodes at one port of a server, and the calls that its HTTP routes share with it;
/// clones are the same.
#[derive(Clone)]
pub struct NodeGateway {
    pub(super) inner: Arc<GatewayState>,
}

/// What all calls at one port work with.
pub(super) struct GatewayState {
    pub options: GatewayOptions,
    pub heartbeats: HeartbeatIngest,
    /// Shared with the other port's, as the sessions are.
    pub rates: Arc<NodeRates>,
    /// Registrations, which come from those who are nobody yet.
    pub joins: Arc<JoinRate>,
    /// The same for all nodes.
    pub spec_texts: Arc<SpecTexts>,
    /// This server as a holder of sessions; the same at all its ports.
    pub holder: Holder,
}

/// How this server serves nodes at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// It leads.
    Leads,
    /// Another server leads, and this one holds sessions for it.
    Holds,
}

/// The service as routes, to be merged into the API's port.
pub fn routes(gateway: NodeGateway) -> Router {
    let service = NodesServer::new(gateway)
        .max_decoding_message_size(REPORT_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let service = service.map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new));
    Router::new().route_service("/dhow.v1.Nodes/{*call}", service)
}

/// What other servers ask the leader for the nodes whose sessions they hold, as routes of the servers' own port.
pub fn holder_routes(gateway: NodeGateway) -> Router {
    let service = HoldersServer::new(gateway)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let service = service.map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new));
    Router::new().route_service("/dhow.v1.Holders/{*call}", service)
}

impl NodeGateway {
    pub fn new(options: GatewayOptions) -> Self {
        let heartbeats = HeartbeatIngest::new(options.input.clone(), Arc::clone(&options.clock));
        let holder = Holder::new(
            options.leases.clone(),
            options.view.clone(),
            Arc::clone(&options.clock),
            options.leader_door.clone(),
            options.move_after_ms,
        );
        Self {
            inner: Arc::new(GatewayState {
                options,
                heartbeats,
                rates: Arc::default(),
                joins: Arc::default(),
                spec_texts: Arc::default(),
                holder,
            }),
        }
    }

    /// The same door at another port: whoever comes to the wrong server is sent to this address of the right one.
    pub fn at(&self, session_address: Arc<SessionAddress>) -> Self {
        let inner = &self.inner;
        Self {
            inner: Arc::new(GatewayState {
                options: GatewayOptions {
                    session_address,
                    ..inner.options.clone()
                },
                heartbeats: inner.heartbeats.clone(),
                rates: Arc::clone(&inner.rates),
                joins: Arc::clone(&inner.joins),
                spec_texts: Arc::clone(&inner.spec_texts),
                holder: inner.holder.clone(),
            }),
        }
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.inner.holder.sessions().len()
    }

    /// Tells whoever leads of the sessions here, and forwards what is for it, until `end`. Once for all ports.
    pub async fn hold(self, end: CancellationToken) {
        self.inner.holder.clone().run(end).await;
    }
}

impl GatewayState {
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
        self.leading_term_by(self.warm_by_ms()).await
    }

    /// Until when a server that was just elected, or has just lost its leader, is waited for by one who comes now.
    fn warm_by_ms(&self) -> u64 {
        self.options.clock.monotonic_ms().saturating_add(WARM_UP_MS)
    }

    async fn leading_term_by(&self, until_ms: u64) -> Result<u64, Refusal> {
        if let Some(term) = self.options.leases.term() {
            return Ok(term);
        }
        if !self.options.view.leadership().is_here {
            return Err(self.not_leader());
        }
        let mut terms = self.options.leases.terms();
        tokio::select! {
            biased;
            term = terms.wait_for(Option::is_some) => term.ok().and_then(|term| *term),
            () = self.options.clock.sleep_until_monotonic(until_ms) => None,
        }
        .ok_or_else(|| self.not_leader())
    }

    /// How this server can serve this node, or one that joins: as the leader, or as a holder that the leader has answered lately.
    pub async fn serving(&self, node: Option<NodeId>) -> Result<Serving, Refusal> {
        let until_ms = self.warm_by_ms();
        match self.leading_term_by(until_ms).await {
            Ok(_) => Ok(Serving::Leads),
            Err(_) if self.holder.is_fresh() => Ok(Serving::Holds),
            // Its session stays: the next leader will be there in a moment.
            Err(_) if node.is_some_and(|node| self.holder.has(node)) => Err(Refusal::Busy),
            Err(_) if self.holder.until_fresh(until_ms).await => Ok(Serving::Holds),
            Err(refusal) if self.holder.is_led_by_older() => Err(refusal),
            // The leader has its own nodes: another holder may be better off.
            Err(_) => Err(Refusal::NotLeader { leader: None }),
        }
    }

    /// The state with everything in it that any server had acknowledged before this was called. A server that was
    /// paused or cut off may still believe that it leads: nothing that ends work or gives something away is said
    /// before the others have confirmed it. One round serves all who wait.
    pub async fn confirmed_state(&self) -> Result<Arc<State>, Refusal> {
        if let Err(refusal) = self.leading_term().await {
            return match self.holder.is_fresh() {
                true => self.holder.confirmed_state().await,
                false => Err(refusal),
            };
        }
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
        // Seldom, and large: each session would have room for it.
        let state = Box::pin(self.confirmed_state()).await?;
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

    /// The same for one whose connection notes when it was heard, and also where this server only holds its session.
    fn hear_caller(&self, caller: &Caller, kind: Kind) -> Result<u32, Refusal> {
        self.check_role(caller.identity)?;
        let (node, now_ms) = (caller.node(), self.options.clock.monotonic_ms());
        let held_ttl_secs = self.holder.heard(node);
        let ttl_secs = match self.options.leases.renew(node) {
            Some(ttl_secs) => ttl_secs,
            None if self.holder.is_alone() => return Err(self.not_leader()),
            None => held_ttl_secs,
        };
        if let Some(connection) = &caller.heard {
            connection.renewed_at(now_ms);
        }
        match self.rates.allow(node, kind, now_ms) {
            true => Ok(ttl_secs),
            false => Err(Refusal::TooOften),
        }
    }

    async fn open(self: &Arc<Self>, request: Request<SessionRequest>) -> Result<SessionStreamBox, Refusal> {
        let caller = self.caller(&request)?;
        let mut request = request.into_inner();
        caller.check_named(request.node_id)?;
        let node = caller.node();
        let is_worker = matches!(caller.identity, Identity::Worker(_));
        check_told(is_worker, &mut request)?;
        let interest = match request.by_interest {
            true => interest_in(&request.wanted)?,
            false => Interest::All,
        };
        let asked = OpenSession {
            node_id: node.0,
            is_worker,
            info: request.info,
            highest_term: request.highest_term,
            highest_cluster: request.highest_cluster,
        };
        // Before what the node says is written: should the level be raised meanwhile, the node says it again.
        let feature_level = self.options.view.state().feature_level;
        let until_ms = self.holder.answered_until_ms();
        let given = self.given(&caller, asked, until_ms).await?;
        let clock = Arc::clone(&self.options.clock);
        if let Some(connection) = &caller.heard {
            connection.renewed_at(clock.monotonic_ms());
        }
        self.holder.opened(node, given.session);
        let sessions = self.holder.sessions();
        let guard = sessions.open((node, given.session), caller.heard, self.holder.clone(), clock);
        let state = self.options.view.state();
        let opened = Opened {
            cluster_id: state.cluster_id.as_deref().unwrap_or_default().to_owned(),
            next_ttl_secs: given.ttl_secs,
            grace_secs: self.options.leases.grace_secs(),
            leader_id: self.options.view.leadership().leader.unwrap_or_default(),
            term: state.term.0,
            server_id: self.options.leases.own().0,
            servers: self.servers(),
        };
        tracing::debug!(%node, instance = request.instance, "a node has opened its session");
        let asked = Asked {
            last: request.last_revision.map(Revision),
            takes_directory: request.takes_directory,
            interest,
            opening: request.opening,
            feature_level,
        };
        let takes_tunnels = is_worker && request.takes_tunnels;
        let dials = takes_tunnels.then(|| self.options.tunnels.attach(node));
        let asked = (asked, dials);
        Ok(SessionStream::new(Arc::clone(self), node, guard, asked).begin(opened))
    }

    /// The session that the leader gives a node, whichever server leads by `until_ms`.
    async fn given(&self, caller: &Caller, asked: OpenSession, until_ms: u64) -> Result<Given, Refusal> {
        loop {
            let outcome = match self.serving(Some(caller.node())).await? {
                Serving::Leads => {
                    let (own, boot) = (self.options.leases.own(), self.holder.boot());
                    return self.open_for(own, boot, asked).await;
                }
                Serving::Holds => {
                    self.hear_caller(caller, Kind::Call)?;
                    self.holder.ask_for(asked.clone(), until_ms).await
                }
            };
            // It was elected itself while it waited for whoever would be.
            let leads = self.options.view.leadership().is_here;
            let has_time = self.options.clock.monotonic_ms() < until_ms;
            match outcome {
                Err(Refusal::NotLeader { .. }) if leads && has_time => {}
                outcome => return outcome.map(Unserved::take),
            }
        }
    }

    /// Where nodes may go instead; none where only the leader takes sessions.
    fn servers(&self) -> Vec<ServerAddress> {
        if self.holder.is_led_by_older() {
            return Vec::new();
        }
        let members = (self.options.members)().into_iter();
        let known = members.filter_map(|server| {
            Some(ServerAddress {
                server_id: server.0,
                address: (self.options.session_address)(server)?,
            })
        });
        known.collect()
    }

    /// A node that has acted on a higher term than this cluster has reached follows another history of it: it would
    /// refuse every assignment of this server, and gets no session, so that its work goes elsewhere.
    pub(super) fn check_followed(
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
        let node = caller.node();
        let until_ms = self.holder.answered_until_ms();
        let serving = self.serving(Some(node)).await?;
        self.state_with(node).await?;
        let ttl_secs = self.hear_caller(&caller, Kind::Call)?;
        match serving {
            Serving::Leads => self.take_status(node, ttl_secs, report).await,
            Serving::Holds => {
                let report = HeldReport {
                    node_id: node.0,
                    is_worker: matches!(caller.identity, Identity::Worker(_)),
                    report: Some(report),
                };
                let acknowledged = self.holder.forward(report, until_ms).await;
                acknowledged.map_err(kept_with_session)
            }
        }
    }

    /// A node says which services it wants to be told of: what there is of them comes over its session, which is here.
    fn want(&self, request: &Request<WantRequest>) -> Result<WantReply, Refusal> {
        let caller = self.caller(request)?;
        let request = request.get_ref();
        caller.check_named(request.node_id)?;
        self.hear_caller(&caller, Kind::Call)?;
        let interest = interest_in(&request.services)?;
        let word = WordOfInterest {
            opening: request.opening,
            number: request.number,
        };
        match self
            .options
            .view
            .directories()
            .want(caller.node(), word, interest)
        {
            true => Ok(WantReply {}),
            // Its session is about to end or to open: the node says it again with the next one.
            false => Err(Refusal::Busy),
        }
    }

    async fn tell_secrets(&self, request: Request<SecretsRequest>) -> Result<SecretsReply, Refusal> {
        let caller = self.caller(&request)?;
        let (state, node) = self.state_for_values(&caller).await?;
        secrets::answer(&self.options.secrets, &state, node, &request.get_ref().names)
    }

    /// A state that the other servers have confirmed, for a node that asks for what its replicas may see.
    async fn state_for_values(&self, caller: &Caller) -> Result<(Arc<State>, NodeId), Refusal> {
        let node = caller.node();
        self.serving(Some(node)).await?;
        self.state_with(node).await?;
        self.hear_caller(caller, Kind::Secrets)?;
        let state = self
            .confirmed_state()
            .await
            .map_err(|refusal| match self.holder.is_alone() {
                true => refusal,
                false => kept_with_session(refusal),
            })?;
        if state.node(node).is_none() {
            return Err(Refusal::UnknownNode);
        }
        Ok((state, node))
    }

    async fn tell_files(&self, request: Request<FilesRequest>) -> Result<FilesReply, Refusal> {
        let caller = self.caller(&request)?;
        let (state, node) = self.state_for_values(&caller).await?;
        files::answer(&self.options.secrets, &state, node, request.get_ref())
    }
}

fn interest_in(wanted: &[ServiceName]) -> Result<Interest, Refusal> {
    let wanted = from_service_names(wanted);
    wanted
        .map(Interest::In)
        .map_err(|error| Refusal::Malformed(error.to_string()))
}

/// Refuses a node that says too much of itself: a holder passes the openings of many nodes on to the leader in one
/// message, which one of them must not spoil for the others. The labels of a worker are the cluster's to say.
fn check_told(is_worker: bool, request: &mut SessionRequest) -> Result<(), Refusal> {
    if let Some(info) = &mut request.info {
        if is_worker {
            info.labels.clear();
        }
        from_node_info(info.clone()).map_err(|error| Refusal::Malformed(error.to_string()))?;
    }
    match request.highest_cluster.len() <= CLUSTER_NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(Refusal::Malformed("the name of a cluster is too long".into())),
    }
}

/// What a holder could not pass on: its node tries again here. It leaves by itself if this server stays without a leader.
pub(super) fn kept_with_session(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::NotLeader { .. } | Refusal::ShuttingDown => Refusal::Busy,
        Refusal::UnknownNode
        | Refusal::Busy
        | Refusal::TooOften
        | Refusal::Identity(_)
        | Refusal::Replaced
        | Refusal::Malformed(_)
        | Refusal::Credential(_)
        | Refusal::NotGiven(_) => refusal,
    }
}

type SessionStreamBox = BoxStream<'static, Result<SessionEvent, Status>>;

#[tonic::async_trait]
impl Nodes for NodeGateway {
    type SessionStream = SessionStreamBox;

    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<RegisterReply>, Status> {
        let (inner, request) = (&self.inner, request.into_inner());
        Ok(Response::new(match inner.serving(None).await? {
            Serving::Leads => inner.register(request).await?,
            Serving::Holds => {
                inner.check_joining(&request)?;
                inner.holder.register(request).await?
            }
        }))
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

    async fn reach(&self, request: Request<ReachRequest>) -> Result<Response<ReachReply>, Status> {
        Ok(Response::new(self.inner.reach(&request).await?))
    }

    async fn files(&self, request: Request<FilesRequest>) -> Result<Response<FilesReply>, Status> {
        Ok(Response::new(self.inner.tell_files(request).await?))
    }

    async fn want(&self, request: Request<WantRequest>) -> Result<Response<WantReply>, Status> {
        Ok(Response::new(self.inner.want(&request)?))
    }
}

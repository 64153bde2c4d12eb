//! A worker joins: its token is proved, counted in the log with the key that it brings, and its key is certified.

use std::sync::Arc;

use dhow_core::command::{ClusterCommand, Command, Outcome, Refused};
use dhow_core::ids::NodeId;
use dhow_core::spec::check::check_worker;
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_wire::grpc::proto::{RegisterReply, RegisterRequest};
use dhow_wire::grpc::{Refusal, from_node_info};
use dhow_wire::token::VerifiedToken;
use dhow_wire::{WorkerBootstrapToken, WorkerRegisterResponse};

use super::join_error::JoinError;
use super::join_key;
use super::tier::WorkerTier;
use crate::gateway::limits::INFO_BYTES;
use crate::gateway::node_gateway::GatewayState;
use crate::gateway::rates::Joiner;
use crate::plane::runtime::WriteError;

/// The longest name that a client makes up for itself.
const CLIENT_ID_BYTES_MAX: usize = 128;

/// What a worker asks with.
pub(super) struct Joining {
    pub token: String,
    pub wish: Option<NodeId>,
    pub info: NodeInfo,
    pub csr_pem: Option<String>,
    pub client_id: Option<String>,
    /// It speaks the JSON form.
    pub is_plain: bool,
}

impl GatewayState {
    pub(super) fn tier(&self) -> Result<&WorkerTier, JoinError> {
        self.options.workers.as_ref().ok_or(JoinError::NoTier)
    }

    /// The cluster's id, once there is one.
    pub(super) fn cluster_id(&self) -> Result<Arc<str>, Refusal> {
        self.options.view.state().cluster_id.clone().ok_or(Refusal::Busy)
    }

    pub(super) fn now_unix_secs(&self) -> i64 {
        self.options.clock.wall_unix_ms().div_euclid(1_000)
    }

    /// The call.
    pub(in crate::gateway) async fn register(
        &self,
        request: RegisterRequest,
    ) -> Result<RegisterReply, Refusal> {
        let info = request
            .info
            .ok_or_else(|| Refusal::Malformed("a worker says what it is in `info`".into()))?;
        let info = from_node_info(info).map_err(|error| Refusal::Malformed(error.to_string()))?;
        let joined = self.join(Joining {
            token: request.token,
            wish: request.desired_node_id.map(NodeId),
            info,
            csr_pem: request.csr_pem,
            client_id: None,
            is_plain: false,
        });
        let joined = joined.await?;
        Ok(RegisterReply {
            node_id: joined.node_id,
            cluster_id: joined.cluster_id,
            heartbeat_ttl_secs: joined.heartbeat_ttl_secs,
            heartbeat_grace_secs: joined.heartbeat_grace_secs,
            internal_token: joined.internal_token,
            certificate_chain_pem: joined.certificate_chain_pem,
        })
    }

    /// What a holder looks at before it passes a joining on, so that nobody without a token of this cluster speaks to the
    /// leader through it, or says more there than a worker has to say.
    pub(in crate::gateway) fn check_joining(&self, request: &RegisterRequest) -> Result<(), Refusal> {
        self.check_credentials(request)?;
        let info = request.info.clone().map(from_node_info).transpose();
        info.map(drop)
            .map_err(|error| Refusal::Malformed(error.to_string()))
    }

    fn check_credentials(&self, request: &RegisterRequest) -> Result<(), JoinError> {
        let tier = self.tier()?;
        let token = WorkerBootstrapToken::parse(&request.token)?;
        self.allow_join(&token)?;
        token.verify(&tier.token_key, &self.cluster_id()?, self.now_unix_secs())?;
        let asked = request.csr_pem.as_deref().map(join_key::of_csr);
        asked.transpose().map(drop)
    }

    /// Whether this one may be proved now. Proving takes time, so that it is counted before: of those who name a token that
    /// takes workers, which nobody knows but its holder and administrators, apart from everybody else.
    fn allow_join(&self, token: &WorkerBootstrapToken) -> Result<(), Refusal> {
        let state = self.options.view.state();
        let known = state.tokens.get(token.nonce().to_string().as_str());
        let takes =
            known.is_some_and(|known| !known.revoked && known.uses.len() < known.uses_allowed as usize);
        let joiner = match takes {
            true => Joiner::Awaited,
            false => Joiner::Stranger,
        };
        match self.joins.allow(joiner, self.options.clock.monotonic_ms()) {
            true => Ok(()),
            false => Err(Refusal::Busy),
        }
    }

    /// Everything that can be refused without a write is, so that a bad request costs no use of a token.
    pub(super) async fn join(&self, joining: Joining) -> Result<WorkerRegisterResponse, JoinError> {
        let tier = self.tier()?;
        self.leading_term().await?;
        let cluster_id = self.cluster_id()?;
        let now_unix_secs = self.now_unix_secs();
        let token = WorkerBootstrapToken::parse(&joining.token)?;
        self.allow_join(&token)?;
        let token = token.verify(&tier.token_key, &cluster_id, now_unix_secs)?;
        token.check_labels(&joining.info.labels)?;
        let mut info = of_worker(joining.info.clone());
        check_worker(&mut info).map_err(Refusal::Malformed)?;
        let info = Arc::new(info);
        let state = self.options.view.state();
        let nonce: Arc<str> = token.nonce().to_string().into();
        let key_hash = self.key_hash(&state, &joining, &nonce, &info)?;
        let known = state
            .tokens
            .get(&nonce)
            .and_then(|token| token.uses.get(&key_hash).copied());
        let (node, ttl_secs) = match self.joined(&state, &nonce, &key_hash, &info)? {
            Some(joined) => joined,
            None => {
                let use_token = ClusterCommand::UseToken {
                    wish: self.granted(&state, &token, joining.wish)?,
                    nonce,
                    key_hash,
                    now_unix_secs,
                    info,
                    is_plain: joining.is_plain,
                };
                self.write_join(use_token).await?
            }
        };
        let chain = joining
            .csr_pem
            .map(|csr_pem| tier.certificates.issue(&csr_pem, node));
        // A request for a certificate is no secret: whoever sends it again proves nothing by it, and is given what is of
        // use with its key alone. Only an answer that may have been lost is given again.
        let is_proved = known.is_none_or(|node| self.may_have_lost(&state, node));
        let number = match state.feature_level >= State::COUNTS_INTERNAL_TOKENS {
            true => 1,
            false => 0,
        };
        let internal_token = match is_proved {
            true => tier
                .internal_tokens
                .issue(&cluster_id, node, number, now_unix_secs),
            false => String::new(),
        };
        tracing::info!(%node, "a worker has joined");
        Ok(WorkerRegisterResponse {
            node_id: node.0,
            heartbeat_ttl_secs: ttl_secs,
            heartbeat_grace_secs: self.options.leases.grace_secs(),
            internal_token,
            certificate_chain_pem: chain.transpose().map_err(JoinError::Csr)?,
            cluster_id: cluster_id.to_string(),
        })
    }

    /// What the worker is known by, should it ask again.
    fn key_hash(
        &self,
        state: &State,
        joining: &Joining,
        nonce: &str,
        info: &NodeInfo,
    ) -> Result<Arc<str>, JoinError> {
        let key = match (&joining.csr_pem, &joining.client_id) {
            (Some(csr_pem), _) => join_key::of_csr(csr_pem)?,
            (None, Some(id)) if id.is_empty() || id.len() > CLIENT_ID_BYTES_MAX => {
                let why = format!("a `client_id` has 1 to {CLIENT_ID_BYTES_MAX} bytes");
                return Err(Refusal::Malformed(why).into());
            }
            (None, Some(client_id)) => {
                let key = join_key::of_client(nonce, client_id);
                let known = state
                    .tokens
                    .get(nonce)
                    .and_then(|token| token.uses.get(key.as_str()));
                if known.is_some_and(|node| self.was_heard(state, *node)) {
                    return Err(JoinError::State(Refused::NotNow(CLIENT_WAS_HEARD)));
                }
                key
            }
            (None, None) => join_key::of_plain(state, nonce, info, joining.wish, |node| {
                self.was_heard(state, node)
            }),
        };
        Ok(key.into())
    }

    /// The answer to a worker of which the state knows enough: asking again and again writes nothing. The answer stays
    /// so, because uses are never given back and a revoked token stays one.
    fn joined(
        &self,
        state: &State,
        nonce: &str,
        key_hash: &str,
        info: &Arc<NodeInfo>,
    ) -> Result<Option<(NodeId, u32)>, JoinError> {
        let Some(token) = state.tokens.get(nonce) else {
            return Ok(None);
        };
        if token.revoked {
            return Err(JoinError::State(Refused::TokenRevoked));
        }
        let Some(node) = token.uses.get(key_hash).copied() else {
            return match token.uses.len() >= token.uses_allowed as usize {
                true => Err(JoinError::State(Refused::TokenUsedUp(token.uses_allowed))),
                false => Ok(None),
            };
        };
        let known = state
            .node(node)
            .ok_or(JoinError::State(Refused::NodeIdUsed(node)))?;
        if known.info != *info && self.may_have_lost(state, node) {
            let now_ms = self.options.clock.monotonic_ms();
            return match self.rates.allow_bytes(node, INFO_BYTES, now_ms) {
                true => Ok(None),
                false => Err(Refusal::TooOften.into()),
            };
        }
        let ttl_secs = self.options.leases.renew(node).ok_or_else(|| self.not_leader())?;
        Ok(Some((node, ttl_secs)))
    }

    /// Whether the worker has shown the token that its registration gave.
    fn was_heard(&self, state: &State, node: NodeId) -> bool {
        let known = state.node(node);
        known.is_some_and(|node| node.internal_token.is_heard()) || self.rates.has_asked(node)
    }

    /// Whether the worker is one of the JSON form whose answer may have been lost: it was not heard since. One with a
    /// session is known by its certificate alone.
    fn may_have_lost(&self, state: &State, node: NodeId) -> bool {
        let is_plain = state.node(node).is_some_and(|node| node.is_plain);
        let is_told_apart = state.feature_level >= State::COUNTS_INTERNAL_TOKENS;
        (is_plain || !is_told_apart) && !self.was_heard(state, node)
    }

    /// The id that a new worker is given out of turn, where it wishes for one and its token allows that.
    fn granted(
        &self,
        state: &State,
        token: &VerifiedToken,
        wish: Option<NodeId>,
    ) -> Result<Option<NodeId>, Refusal> {
        let servers = (self.options.server_ids)();
        if state.keeps_node_ids() {
            // Before they are, a server that has not started yet could lose its id to a worker.
            return match state.node_ids.servers.is_empty() && !servers.is_empty() {
                true => Err(Refusal::Busy),
                false => Ok(token.node_ids(wish).find(|id| state.is_node_id_free(*id))),
            };
        }
        // At the level before, ids are given above the highest one that there was, or as it is said here.
        let above = servers
            .into_iter()
            .chain([state.last_node_id])
            .max()
            .unwrap_or_default();
        let allowed = token.node_ids(wish).find(|id| *id > above && id.is_in_range());
        Ok(allowed.or_else(|| Some(above.next()).filter(|_| above > state.last_node_id)))
    }
}

/// Only a lost answer is a reason to ask again, and the answer was not lost.
const CLIENT_WAS_HEARD: &str = "the worker with this `client_id` has joined and was heard since: it goes on with the \
                                token that it was given; another worker sends another `client_id`";

impl GatewayState {
    /// Counts and registers, and gives the new node its lease. In a task of its own: should whoever asked be gone by
    /// then, the node has a lease all the same and is given up in time.
    async fn write_join(&self, use_token: ClusterCommand) -> Result<(NodeId, u32), JoinError> {
        let (input, leases) = (self.options.input.clone(), self.options.leases.clone());
        let written = tokio::spawn(async move {
            let applied = input.write(Command::Cluster(use_token), None).await?;
            Ok::<_, WriteError>(match applied.outcome {
                Outcome::Registered { node } => Some((node, leases.renew(node))),
                Outcome::Done
                | Outcome::Deployed { .. }
                | Outcome::Placed { .. }
                | Outcome::RunBegan { .. }
                | Outcome::Reported { .. } => None,
            })
        });
        match written.await {
            Ok(Ok(Some((node, Some(ttl_secs))))) => Ok((node, ttl_secs)),
            Ok(Ok(Some((_, None)))) => Err(self.not_leader().into()),
            Ok(Ok(None)) | Err(_) => Err(Refusal::Busy.into()),
            Ok(Err(WriteError::Refused(refused))) => Err(JoinError::State(refused)),
            Ok(Err(error)) => Err(self.refusal(error).into()),
        }
    }
}

/// A worker is a worker that runs replicas, whatever it says.
fn of_worker(told: NodeInfo) -> NodeInfo {
    NodeInfo {
        role: NodeRole::Worker,
        runs_replicas: true,
        ..told
    }
}

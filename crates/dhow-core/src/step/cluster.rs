//! The cluster itself: its id, its leaders, tokens and secrets.

use std::sync::Arc;

use imbl::OrdMap;

use super::{api_tokens, epoch, files, notify, sources, worker_cas};
use crate::change::{Change, ChangeSink, ClusterChange};
use crate::command::{ClusterCommand, Missing, Outcome, Refused};
use crate::ids::{NodeId, Term};
use crate::maps::retain;
use crate::spec::TimeSpan;
use crate::state::{ClockMark, NodeInfo, State, Token};

/// Notes what the wall clock says at this time. Servers before level 2 do not.
pub(super) fn mark_clock(state: &mut State, wall_unix_ms: i64) {
    if state.feature_level >= 2 {
        let (term, time) = (state.term, state.time);
        state.clock_marks.note(ClockMark {
            term,
            time,
            wall_unix_ms,
        });
    }
}

pub(super) fn apply(
    state: &mut State,
    term: Term,
    command: &ClusterCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    let level = state.feature_level;
    let outcome = change(state, term, command, sink)?;
    let is_raised = state.feature_level > level;
    if let Some(change) = change_of(command, is_raised) {
        sink.tell(state, Change::Cluster(change));
    }
    Ok(outcome)
}

/// What a command that was carried out has changed of the cluster; what it changed of nodes is told where that happens.
fn change_of(command: &ClusterCommand, is_raised: bool) -> Option<ClusterChange<'_>> {
    Some(match command {
        ClusterCommand::Bootstrap { cluster_id, .. } => ClusterChange::Created { cluster_id },
        ClusterCommand::TermBegan { leader, .. } => ClusterChange::TermBegan { leader: *leader },
        ClusterCommand::IssueToken { uses_allowed, .. } => ClusterChange::WorkerTokenIssued {
            uses_allowed: *uses_allowed,
        },
        ClusterCommand::RevokeToken { .. } => ClusterChange::WorkerTokenRevoked,
        ClusterCommand::SetSecret { name, .. } => ClusterChange::SecretSet { name },
        ClusterCommand::RemoveSecret { name } => ClusterChange::SecretRemoved { name },
        ClusterCommand::IssueApiToken { id, token } => ClusterChange::ApiTokenIssued { id, token },
        ClusterCommand::RevokeApiToken { id } => ClusterChange::ApiTokenRevoked { id },
        ClusterCommand::RotateWorkerCa { .. } => ClusterChange::WorkerCaRotated,
        ClusterCommand::RaiseFeatureLevel { level, .. } if is_raised => {
            ClusterChange::FeatureLevelRaised { level: *level }
        }
        ClusterCommand::SetSource { name, settings } => ClusterChange::SourceSet { name, settings },
        ClusterCommand::RemoveSource { name } => ClusterChange::SourceRemoved { name },
        ClusterCommand::SetNotify { name, settings } => ClusterChange::NotifySet { name, settings },
        ClusterCommand::RemoveNotify { name } => ClusterChange::NotifyRemoved { name },
        ClusterCommand::RaiseFeatureLevel { .. }
        | ClusterCommand::UseToken { .. }
        | ClusterCommand::KeepServerIds { .. }
        | ClusterCommand::NotifyTold { .. }
        // The beginning of its leader's term follows, and is told.
        | ClusterCommand::EpochBegan { .. } => return None,
    })
}

fn change(
    state: &mut State,
    term: Term,
    command: &ClusterCommand,
    sink: &mut dyn ChangeSink,
) -> Result<Outcome, Refused> {
    match command {
        ClusterCommand::Bootstrap {
            cluster_id,
            feature_level,
            nodes_limit,
        } => bootstrap(state, cluster_id, *feature_level, *nodes_limit)?,
        ClusterCommand::TermBegan { wall_unix_ms, .. } => begin_term(state, term, *wall_unix_ms)?,
        ClusterCommand::IssueToken {
            nonce,
            uses_allowed,
            expires_unix_secs,
        } => {
            issue_token(state, nonce, *uses_allowed, *expires_unix_secs)?;
        }
        ClusterCommand::RevokeToken { nonce } => {
            let token = state.tokens.get_mut(nonce).ok_or(Missing::Token)?;
            Arc::make_mut(token).revoked = true;
        }
        ClusterCommand::UseToken {
            nonce,
            key_hash,
            now_unix_secs,
            wish,
            info,
            is_plain,
        } => {
            let (token, worker) = ((nonce, key_hash), (info, *is_plain));
            let node = use_token(state, token, *now_unix_secs, *wish, worker, sink)?;
            return Ok(Outcome::Registered { node });
        }
        ClusterCommand::SetSecret { name, sealed } => files::set_secret(state, name, sealed, sink),
        ClusterCommand::RemoveSecret { name } => {
            if state.secrets.contains_key(name) {
                files::check_unused(state, name)?;
                sources::check_secret(state, name)?;
            }
            state
                .secrets
                .remove(name)
                .ok_or_else(|| Missing::Secret(name.clone()))?;
        }
        ClusterCommand::IssueApiToken { id, token } => api_tokens::issue(state, id, token)?,
        ClusterCommand::RevokeApiToken { id } => api_tokens::revoke(state, id)?,
        ClusterCommand::RotateWorkerCa {
            now_unix_secs,
            believed_until_unix_secs,
        } => worker_cas::rotate(state, *now_unix_secs, *believed_until_unix_secs)?,
        ClusterCommand::RaiseFeatureLevel { level, nodes_limit } => {
            raise_feature_level(state, *level, *nodes_limit)?;
        }
        ClusterCommand::KeepServerIds { nodes } => {
            super::needs_node_ids(state)?;
            state.keep_server_ids(nodes)?;
        }
        ClusterCommand::SetSource { name, settings } => sources::set(state, name, settings)?,
        ClusterCommand::RemoveSource { name } => sources::remove(state, name)?,
        ClusterCommand::SetNotify { name, settings } => notify::set(state, name, settings)?,
        ClusterCommand::RemoveNotify { name } => notify::remove(state, name)?,
        ClusterCommand::NotifyTold { name, done } => notify::told(state, name, *done)?,
        ClusterCommand::EpochBegan { revision, time } => epoch::begin(state, term, *revision, *time)?,
    }
    Ok(Outcome::Done)
}

fn begin_term(state: &mut State, term: Term, wall_unix_ms: Option<i64>) -> Result<(), Refused> {
    if term < state.term {
        return Err(Refused::OldTerm {
            proposed: term,
            current: state.term,
        });
    }
    state.term = term;
    if let Some(wall_unix_ms) = wall_unix_ms.filter(|_| state.feature_level >= 2) {
        // A new term begins after all that was before it, also where no time has passed for the cluster: the
        // wall clock may have gone on for hours.
        state.time = state.time.after(TimeSpan::from_millis(1));
        mark_clock(state, wall_unix_ms);
    }
    Ok(())
}

/// No token is good for longer than this, so that one that ends so long before a new one has ended already.
const TOKEN_LIFE_SECS_MAX: i64 = 31 * 86_400;

/// Those that have expired make room.
fn issue_token(
    state: &mut State,
    nonce: &Arc<str>,
    uses_allowed: u32,
    expires_unix_secs: i64,
) -> Result<(), Refused> {
    if state.tokens.contains_key(nonce) {
        return Err(Refused::TokenKnown);
    }
    let over = expires_unix_secs.saturating_sub(TOKEN_LIFE_SECS_MAX);
    let is_good = |token: &Token| token.expires_unix_secs >= over;
    if state.tokens.values().filter(|token| is_good(token)).count() >= state.worker_tokens_max() {
        return Err(Refused::NotNow(
            "too many tokens of workers are kept: wait until earlier ones have expired, or make one with more uses",
        ));
    }
    retain(&mut state.tokens, |_, token| is_good(token));
    let token = Token {
        uses_allowed,
        expires_unix_secs,
        revoked: false,
        uses: OrdMap::new(),
    };
    state.tokens.insert(nonce.clone(), Arc::new(token));
    Ok(())
}

fn bootstrap(
    state: &mut State,
    cluster_id: &Arc<str>,
    feature_level: u32,
    nodes_limit: Option<u32>,
) -> Result<(), Refused> {
    if state.cluster_id.is_some() {
        return Err(Refused::AlreadyBootstrapped);
    }
    // First what can be refused: a refusal changes nothing.
    raise_feature_level(state, feature_level, nodes_limit)?;
    state.cluster_id = Some(cluster_id.clone());
    Ok(())
}

/// A level never falls: what was written at the higher one could not be read at the lower. Neither does the number of
/// nodes, which servers before level 2 do not keep.
fn raise_feature_level(state: &mut State, level: u32, nodes_limit: Option<u32>) -> Result<(), Refused> {
    if level > State::FEATURE_LEVEL {
        return Err(Refused::FeatureLevel {
            needed: level,
            has: State::FEATURE_LEVEL,
        });
    }
    state.feature_level = state.feature_level.max(level);
    if let Some(limit) = nodes_limit
        && state.feature_level >= State::KEEPS_NODES_LIMIT
        && limit as usize > state.nodes_max()
    {
        state.nodes_limit = Some(limit);
    }
    Ok(())
}

/// One use registers one worker: the same key asking again gets the same node.
fn use_token(
    state: &mut State,
    (nonce, key_hash): (&Arc<str>, &Arc<str>),
    now_unix_secs: i64,
    wish: Option<NodeId>,
    (info, is_plain): (&Arc<NodeInfo>, bool),
    sink: &mut dyn ChangeSink,
) -> Result<NodeId, Refused> {
    let token = state.tokens.get(nonce).ok_or(Missing::Token)?.clone();
    if token.revoked {
        return Err(Refused::TokenRevoked);
    }
    if let Some(node) = token.uses.get(key_hash) {
        super::node::register(state, *node, info, sink)?;
        return Ok(*node);
    }
    if now_unix_secs > token.expires_unix_secs {
        return Err(Refused::TokenExpired);
    }
    if token.uses.len() >= token.uses_allowed as usize {
        return Err(Refused::TokenUsedUp(token.uses_allowed));
    }
    let node = match state.keeps_node_ids() {
        true => match wish.filter(|wish| state.is_node_id_free(*wish)) {
            Some(granted) => granted,
            None => state.fresh_node_id()?,
        },
        false => {
            let fresh = state.last_node_id.next();
            wish.filter(|wish| *wish >= fresh).unwrap_or(fresh)
        }
    };
    super::node::register(state, node, info, sink)?;
    if is_plain
        && state.keeps_node_ids()
        && let Some(node) = super::replicas::node_mut(state, node)
    {
        node.is_plain = true;
    }
    if let Some(token) = state.tokens.get_mut(nonce) {
        Arc::make_mut(token).uses.insert(key_hash.clone(), node);
    }
    Ok(node)
}

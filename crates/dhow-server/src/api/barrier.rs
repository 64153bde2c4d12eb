//! What the API does before it refuses a token that this server does not know, lets one change something, or runs a
//! command in a replica. What this server knows may be old, because it lags behind, or leads no more and has not heard
//! of it: it asks the leader, and waits until the leader's state is here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use dhow_core::ids::{NodeId, Revision};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::context::Api;
use super::forward::{FORWARDED, REVISION, no_leader};
use super::limits::{FOLLOW_WAIT, LEADER_WAIT, RETRY_PAUSE};
use super::problem::Answer;

/// Where the leader says what its state is. One of an older version does not have it, and says the same with its
/// refusal.
pub(super) const PATH: &str = "/api/v1/barrier";

/// Waits until this server has everything that the leader had when it was asked; clones share their rounds.
#[derive(Clone)]
pub(super) struct Barrier {
    api: Api,
    rounds: Arc<Rounds>,
}

#[derive(Default)]
struct Rounds {
    /// How many have asked.
    asked: AtomicU64,
    last: Mutex<Round>,
}

#[derive(Clone, Copy, Default)]
struct Round {
    /// It answers those who had asked before it began.
    answers: u64,
    succeeded: bool,
}

/// What a member is answered: all that matters stands in the header that every answer of the leader has.
pub(super) async fn reached() -> StatusCode {
    StatusCode::NO_CONTENT
}

impl Barrier {
    pub fn new(api: &Api) -> Self {
        Self {
            api: api.clone(),
            rounds: Arc::default(),
        }
    }

    /// Until the state here has everything that any server had acknowledged before this was called. One round serves
    /// all who wait, so that strangers who ask by the thousand cost no more than one.
    pub async fn wait(&self) -> Answer<()> {
        let own = self.rounds.asked.fetch_add(1, Ordering::SeqCst).saturating_add(1);
        let mut last = self.rounds.last.lock().await;
        if last.answers < own {
            let answers = self.rounds.asked.load(Ordering::SeqCst);
            let succeeded = self.round().await;
            *last = Round { answers, succeeded };
        }
        match last.succeeded {
            true => Ok(()),
            false => Err(no_leader(self.api.cluster.mode())),
        }
    }

    async fn round(&self) -> bool {
        let give_up = Instant::now() + LEADER_WAIT;
        let mut leaderships = self.api.manager.view().leaderships();
        loop {
            let leadership = *leaderships.borrow_and_update();
            let left = give_up.saturating_duration_since(Instant::now());
            let asked = async {
                match leadership.leader {
                    Some(_) if leadership.is_here => self.api.cluster.barrier().await.is_ok(),
                    Some(leader) => self.is_reached(NodeId(leader)).await,
                    None => false,
                }
            };
            if timeout(left, asked).await.unwrap_or(false) {
                return true;
            }
            if Instant::now() >= give_up {
                return false;
            }
            let news = timeout(RETRY_PAUSE, leaderships.changed()).await;
            if matches!(news, Ok(Err(_))) {
                return false;
            }
        }
    }

    /// Asks the leader, and waits until its state is here.
    async fn is_reached(&self, leader: NodeId) -> bool {
        let members = self.api.cluster.members();
        let member = members.iter().find(|member| member.node == leader);
        let Some(api_addr) = member.and_then(|member| member.api_addr) else {
            return false;
        };
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = axum::http::Uri::from_static(PATH);
        request
            .headers_mut()
            .insert(&FORWARDED, HeaderValue::from_static("1"));
        let answered = self.api.peers.send(leader, api_addr, request).await;
        let Ok(answer) = answered else { return false };
        if !matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_FOUND) {
            return false;
        }
        let revision = answer.headers().get(&REVISION);
        let Some(revision) = revision.and_then(|value| value.to_str().ok()?.parse().ok()) else {
            return false;
        };
        let mut states = self.api.manager.view().states();
        let caught_up = states.wait_for(|state| state.revision >= Revision(revision));
        matches!(timeout(FOLLOW_WAIT, caught_up).await, Ok(Ok(_)))
    }
}

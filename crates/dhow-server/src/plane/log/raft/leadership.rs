//! Watches who leads, and tells the reducer as soon as it changes. A leader that a quorum has not answered for as
//! long as others keep to it is not sure any more, and says so before anybody else can be elected.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::admission::Admission;
use super::engine::Engine;
use super::options::RaftPeerAddrs;
use crate::plane::log::store::StoreError;
use crate::plane::log::{Leadership, LogEvent, ProposeError};

/// Watches until the log is closed or fails.
pub async fn run(engine: Arc<Engine>, events: mpsc::Sender<LogEvent>) {
    let cancel = engine.shared.cancel.clone();
    let mut server = engine.raft.server_metrics();
    let mut watch = Watch {
        metrics: engine.raft.metrics(),
        answered: None,
        has_log: false,
        pause: engine.shared.timings.heartbeat(),
    };
    loop {
        if watch.metrics.borrow().running_state.is_err() {
            return tell_failure(&engine, &events).await;
        }
        let now = watch.look(&engine);
        let is_news = engine.shared.leadership.send_if_modified(|known| {
            let is_news = *known != now;
            *known = now;
            is_news
        });
        if is_news && events.send(LogEvent::Leadership(now)).await.is_err() {
            return;
        }
        // The whole report changes with every entry: it is followed only until a new leader is sure.
        let waits_for_answer = server.borrow_and_update().state == ServerState::Leader && !now.is_here;
        let rest = watch.rest(&engine, now);
        let changed = tokio::select! {
            () = cancel.cancelled() => return,
            changed = server.changed() => changed,
            changed = watch.metrics.changed(), if waits_for_answer => {
                watch.metrics.mark_changed();
                changed
            }
            () = tokio::time::sleep(rest) => Ok(()),
        };
        if changed.is_err() {
            return tell_failure(&engine, &events).await;
        }
    }
}

struct Watch {
    metrics: watch::Receiver<openraft::RaftMetrics<u64, RaftPeerAddrs>>,
    /// When a quorum had last answered this leader, as far as was reported.
    answered: Option<Instant>,
    /// Whether there was a log at the last look: the first entry is what makes a node a member.
    has_log: bool,
    /// The longest wait between two looks of a leader.
    pause: Duration,
}

impl Watch {
    /// How long nothing can change that nobody tells of: a leader's certainty, a follower's that its leader is there,
    /// and whether there is a log.
    fn rest(&self, engine: &Engine, now: Leadership) -> Duration {
        let is_followed = self.has_log && now.leader.is_some() && !now.is_here;
        match is_followed {
            true => {
                let rest = engine.shared.lease().saturating_sub(engine.shared.silence());
                rest.max(self.pause)
            }
            false => self.pause,
        }
    }

    fn look(&mut self, engine: &Engine) -> Leadership {
        let has_changed = self.metrics.has_changed().unwrap_or(true);
        let metrics = self.metrics.borrow_and_update();
        let lease = engine.shared.lease();
        let has_log = metrics.last_log_index.is_some();
        if has_log && !self.has_log {
            engine.shared.admission.send_replace(Admission::Member);
        }
        self.has_log = has_log;
        let term = metrics.current_term;
        if metrics.state != ServerState::Leader {
            self.answered = None;
            let is_heard = engine.shared.silence() <= lease;
            let leader = metrics.current_leader.filter(|_| is_heard);
            let leader = leader.filter(|leader| *leader != engine.shared.node_id);
            return Leadership {
                term,
                leader,
                is_here: false,
            };
        }
        // A report may be as old as the wait before this look, and one that was seen before says nothing new.
        match metrics.millis_since_quorum_ack {
            None => self.answered = None,
            Some(ms) if has_changed => {
                let age = Duration::from_millis(ms) + self.pause;
                self.answered = self.answered.max(Instant::now().checked_sub(age));
            }
            Some(_) => {}
        }
        let is_here = self.answered.is_some_and(|at| at.elapsed() <= lease);
        Leadership {
            term,
            leader: is_here.then_some(engine.shared.node_id),
            is_here,
        }
    }
}

/// The library has stopped: everybody who waits hears of it, and the reducer last.
async fn tell_failure(engine: &Engine, events: &mpsc::Sender<LogEvent>) {
    if engine.shared.cancel.is_cancelled() {
        return;
    }
    let cause = engine
        .shared
        .failure()
        .unwrap_or_else(|| Arc::new(StoreError::Closed));
    for part in engine.shared.pending.give_up_all() {
        let refused = LogEvent::Refused {
            proposal: part.proposal,
            cause: ProposeError::Unknown,
        };
        if events.send(refused).await.is_err() {
            return;
        }
    }
    // A reducer that has ended knows.
    let _ = events.send(LogEvent::Failed(cause)).await;
}

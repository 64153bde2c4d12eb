//! Tells the server of an open session which services this node wants to be told of, whenever that changes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::ServiceKey;
use dhow_wire::grpc::proto::WantRequest;
use dhow_wire::grpc::to_service_names;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Code, Request};

use super::link::SessionState;
use super::wire::Client;
use crate::limits::CALL_TIMEOUT;

/// Calls that may follow each other at once: a replica that starts asks for a handful of names, one after the other.
const BURST: u32 = 10;
/// The mean time between calls beyond these. Who asks for thousands of names costs a server two calls a second, of at most
/// 512 names each, and leaves the node the other calls that a server takes from it; a question waits four times as long.
const EVERY: Duration = Duration::from_millis(500);
/// The pause after a call that failed. One that fails for good ends with its session.
const RETRY: Duration = Duration::from_millis(500);

/// What the server of one session has been told that the node wants.
#[derive(Clone, Debug)]
pub(super) struct Wanting {
    /// Names the session: chosen at random.
    pub opening: u64,
    pub told: BTreeSet<ServiceKey>,
}

impl Wanting {
    /// This is said with the opening.
    pub fn begin(told: BTreeSet<ServiceKey>) -> Self {
        Self {
            opening: rand::random(),
            told,
        }
    }

    /// Runs for as long as the session does.
    pub async fn keep_told(self, state: Arc<SessionState>, mut client: Client) -> Infallible {
        // None while nobody knows what of it the server has taken.
        let mut told = Some(self.told);
        let mut wanted = state.wanted.subscribe();
        let mut pace = Pace::begin(Instant::now());
        for number in 1.. {
            let is_news = wanted
                .wait_for(|wanted| told.as_ref() != Some(wanted))
                .await
                .is_ok();
            if !is_news {
                break;
            }
            sleep_until(pace.next(Instant::now())).await;
            let next = wanted.borrow_and_update().clone();
            let request = Request::new(WantRequest {
                node_id: state.options.node.0,
                services: to_service_names(&next),
                opening: self.opening,
                number,
            });
            match timeout(CALL_TIMEOUT, client.want(request)).await {
                Ok(Ok(_)) => told = Some(next),
                // An older server has told of everything.
                Ok(Err(status)) if status.code() == Code::Unimplemented => break,
                Ok(Err(status)) => {
                    tracing::debug!(%status, "the server does not take what this node wants to be told of");
                    told = None;
                    sleep(RETRY).await;
                }
                Err(_) => {
                    told = None;
                    sleep(RETRY).await;
                }
            }
        }
        std::future::pending().await
    }
}

/// Spreads calls: so many at once, then one after the other.
struct Pace {
    /// When all calls so far would have been made, had each waited for its turn.
    made_at: Instant,
}

impl Pace {
    fn begin(now: Instant) -> Self {
        Self { made_at: now }
    }

    /// When the next call may be made.
    fn next(&mut self, now: Instant) -> Instant {
        self.made_at = self.made_at.max(now) + EVERY;
        self.made_at.checked_sub(EVERY * BURST).unwrap_or(now).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_calls_are_made_at_once_and_many_at_a_pace() {
        let begin = Instant::now();
        let mut pace = Pace::begin(begin);
        let calls: Vec<Instant> = (0..20).map(|_| pace.next(begin)).collect();
        assert!(calls[..10].iter().all(|call| *call == begin), "{calls:?}");
        assert_eq!(calls[10] - begin, EVERY);
        assert_eq!(calls[19] - begin, EVERY * 10);
        // After a rest there is room for a few again.
        let later = begin + EVERY * 60;
        assert_eq!(pace.next(later), later);
    }
}

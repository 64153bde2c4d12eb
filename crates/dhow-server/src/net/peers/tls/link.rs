//! The way to one peer on one lane: a connection that is made when it is needed, once at a time, and after a failure
//! not at once again.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::connection::Connection;
use super::limits::{BACKOFF_MAX, BACKOFF_MIN};

/// How an attempt ended; none while it is under way.
type Attempt = Option<Result<Arc<Connection>, Arc<str>>>;

/// The one connection, or attempt at one, to a server on one lane.
#[derive(Debug, Default)]
pub(super) struct Link(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The address of the attempt or the connection.
    addr: Option<SocketAddr>,
    attempt: Option<watch::Receiver<Attempt>>,
    /// In a row.
    failures: u32,
    not_before: Option<Instant>,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, or why there is none. `connect` starts an attempt of its own, which goes on when nobody waits
    /// for it any more: a peer that swallows every packet is known as such however short the questions' patience is.
    pub async fn connection<F>(
        self: &Arc<Self>,
        addr: SocketAddr,
        connect: impl FnOnce() -> F,
    ) -> Result<Arc<Connection>, Arc<str>>
    where
        F: Future<Output = Result<Connection, String>> + Send + 'static,
    {
        let mut attempt = self.attempt(addr, connect)?;
        let ended = attempt.wait_for(Option::is_some).await;
        let ended = ended.map(|ended| ended.clone());
        // The attempt always says how it ended; where the runtime is going down it may not come to that.
        ended
            .ok()
            .flatten()
            .unwrap_or_else(|| Err("this server is shutting down".into()))
    }

    fn attempt<F>(
        self: &Arc<Self>,
        addr: SocketAddr,
        connect: impl FnOnce() -> F,
    ) -> Result<watch::Receiver<Attempt>, Arc<str>>
    where
        F: Future<Output = Result<Connection, String>> + Send + 'static,
    {
        let mut state = self.lock();
        if let Some(known) = state.attempt.clone().filter(|_| state.addr == Some(addr)) {
            let ended = known.borrow().clone();
            match ended {
                None => return Ok(known),
                Some(Ok(connection)) if !connection.is_over() => return Ok(known),
                Some(Err(why)) if state.not_before.is_some_and(|at| Instant::now() < at) => return Err(why),
                Some(Ok(_) | Err(_)) => {}
            }
        }
        let (ended, attempt) = watch::channel(None);
        state.addr = Some(addr);
        state.attempt = Some(attempt.clone());
        drop(state);
        let (link, connecting) = (Arc::clone(self), connect());
        tokio::spawn(async move {
            let result = connecting.await.map(Arc::new).map_err(Arc::from);
            link.note(result.is_ok());
            // Where a newer attempt has replaced this one, nobody listens.
            let _ = ended.send(Some(result));
        });
        Ok(attempt)
    }

    fn note(&self, is_good: bool) {
        let mut state = self.lock();
        if is_good {
            state.failures = 0;
            state.not_before = None;
        } else {
            state.not_before = Some(Instant::now() + backoff(state.failures));
            state.failures = state.failures.saturating_add(1);
        }
    }

    /// Drops a connection to a process that is no more, and tries the new one at once.
    pub fn drop_others_than(&self, incarnation: u64) {
        let mut state = self.lock();
        state.not_before = None;
        let ended = state
            .attempt
            .as_ref()
            .and_then(|attempt| attempt.borrow().clone());
        if let Some(Ok(connection)) = ended
            && connection.incarnation != incarnation
        {
            connection.drop_it("the other server was started anew");
        }
    }
}

fn backoff(failures: u32) -> Duration {
    let factor = 1_u32 << failures.min(8);
    BACKOFF_MIN.saturating_mul(factor).min(BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_to_its_limit() {
        let pauses: Vec<_> = [0, 1, 2, 3, 4, u32::MAX]
            .map(|failures| backoff(failures).as_millis())
            .into();
        assert_eq!(pauses, [50, 100, 200, 400, 400, 400]);
    }

    #[tokio::test]
    async fn one_attempt_serves_all_and_a_failure_is_remembered() {
        let link = Arc::new(Link::default());
        let addr = "127.0.0.1:1".parse().unwrap();
        let refused = || async { Err("refused".to_owned()) };
        let (one, two) = tokio::join!(link.connection(addr, refused), async {
            // The attempt is under way: this one starts none.
            let never = || async { panic!("a second attempt") };
            link.connection(addr, never).await
        });
        assert_eq!(one.unwrap_err().as_ref(), "refused");
        assert_eq!(two.unwrap_err().as_ref(), "refused");
        let never = || async { panic!("an attempt during the pause") };
        assert_eq!(
            link.connection(addr, never).await.unwrap_err().as_ref(),
            "refused"
        );
        link.drop_others_than(7);
        let again = || async { Err("again".to_owned()) };
        assert_eq!(link.connection(addr, again).await.unwrap_err().as_ref(), "again");
        let elsewhere = "127.0.0.1:2".parse().unwrap();
        let other = || async { Err("elsewhere".to_owned()) };
        assert_eq!(
            link.connection(elsewhere, other).await.unwrap_err().as_ref(),
            "elsewhere"
        );
    }
}

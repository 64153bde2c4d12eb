//! One request and the backends that it is tried on: chooses one, sends it, and chooses again where that is safe.
//!
//! Safe is: nothing of the request was sent (the connection was refused, or had been closed while idle), for
//! every request; and the backend went away before it answered, for requests without a body that may be
//! repeated by their method. All else is the client's to decide, with a 502.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::spec::TimeSpan;
use hyper::StatusCode;
use tokio::time::Instant;

use super::Connection;
use super::exchange::ExchangeError;
use super::failed::Failed;
use super::pool::{self, Link, Reuse, Speaks};
use crate::proxy::backend::Lease;
use crate::proxy::mesh::Origin;
use crate::proxy::meters::{Call, Waiting};
use crate::proxy::routes::{Route, StickyTo, Tried};

/// How long a request waits for a backend when there is none: a replica that is just being replaced.
pub const BACKEND_WAIT: Duration = Duration::from_secs(2);
/// How often it looks again meanwhile; a new table wakes it at once.
pub const BACKEND_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How often a request that was sent is sent again. A request that kills whoever serves it must not go round
/// all of them.
const REPLAYS_MAX: u32 = 2;

/// A request as it is tried: one that hyper has read, or a usual one.
pub trait Asked: Send {
    type Answer: Send;

    /// The host that it is for, without a port.
    fn host(&self) -> &str;

    fn path(&self) -> &str;

    fn speaks(&self) -> Speaks;

    /// The replica that its client had.
    fn sticky(&self) -> Option<StickyTo>;

    /// It is about to be tried by this route; `is_first` is whether it is counted there.
    fn begin(&mut self, route: &Route, is_first: bool);

    fn ask(&mut self, link: Link) -> impl Future<Output = Result<Self::Answer, ExchangeError>> + Send;

    fn status(answer: &Self::Answer) -> StatusCode;

    /// Whether the replica says that it failed.
    fn has_failed(answer: &Self::Answer) -> bool {
        Self::status(answer).is_server_error()
    }
}

/// What became of a request so far.
pub struct Attempts<'c> {
    connection: &'c Connection,
    /// It may be sent again where it is not known what became of it.
    may_replay: bool,
    replays: u32,
    /// A connection that was trusted in had been closed: no further one is.
    was_stale: bool,
    tried: Tried,
    deadline: Instant,
    /// It waits for the first replica of a service that has none.
    waiting: Option<Waiting>,
    /// Counted for the endpoint whose route was found first.
    call: Option<Call>,
}

impl<'c> Attempts<'c> {
    pub fn new(connection: &'c Connection, may_replay: bool) -> Self {
        Self {
            connection,
            may_replay,
            replays: 0,
            was_stale: false,
            tried: Tried::default(),
            deadline: Instant::now() + BACKEND_WAIT,
            waiting: None,
            call: None,
        }
    }

    /// Sends it and counts what becomes of it.
    pub async fn send<A: Asked>(
        mut self,
        route: Arc<Route>,
        asked: &mut A,
    ) -> Result<(A::Answer, Lease), Failed> {
        let sent = self.answered(route, asked).await;
        let call = self.call.take();
        match sent {
            Ok((answer, mut lease)) => {
                if let Some(call) = &call {
                    call.answered();
                    if A::status(&answer).is_server_error() {
                        call.failed();
                    }
                }
                lease.call = call;
                Ok((answer, lease))
            }
            Err(failed) => {
                if let Some(call) = call.filter(|_| failed.is_of_replicas()) {
                    call.failed();
                }
                Err(failed)
            }
        }
    }

    async fn answered<A: Asked>(
        &mut self,
        mut route: Arc<Route>,
        asked: &mut A,
    ) -> Result<(A::Answer, Lease), Failed> {
        let mut routes = None;
        loop {
            if !self.connection.may_call(&route) {
                return Err(Failed::Forbidden);
            }
            let is_first = self.call.is_none();
            if is_first {
                self.call = Some(Call::begin(&route.meter));
            }
            asked.begin(&route, is_first);
            if let Some(done) = self.try_route(&route, asked).await? {
                return Ok(done);
            }
            self.wait_for_first(&route)?;
            let now = Instant::now();
            if now >= self.deadline {
                return Err(Failed::NoBackend);
            }
            let look_again = (now + BACKEND_LOOK_INTERVAL).min(self.deadline);
            let routes = routes.get_or_insert_with(|| self.connection.listener.routes.clone());
            // Whether there is a new table or not: look again. A sender that is gone means that the
            // listener ends, and what it had stays.
            if let Ok(Err(_)) = tokio::time::timeout_at(look_again, routes.changed()).await {
                tokio::time::sleep_until(look_again).await;
            }
            self.tried.clear();
            let (host, path) = (asked.host(), asked.path());
            let found = routes.borrow_and_update().find(host, path);
            route = found.ok_or_else(|| Failed::no_route(host, path))?;
        }
    }

    /// Has the request wait longer where its service has no replica yet and may get one. Nothing of its body is read
    /// meanwhile.
    fn wait_for_first(&mut self, route: &Route) -> Result<(), Failed> {
        let Some(cold_start) = route.cold_start.filter(|_| !route.has_backend()) else {
            return Ok(());
        };
        if !route.meter.is_heard() {
            return Err(Failed::Unheard);
        }
        if self.waiting.is_none() {
            self.waiting = Some(route.meter.wait().ok_or(Failed::Crowded)?);
            self.deadline = Instant::now() + cold_start;
        }
        Ok(())
    }

    /// Tries one backend after the other; `None` when none of them took the request.
    async fn try_route<A: Asked>(
        &mut self,
        route: &Route,
        asked: &mut A,
    ) -> Result<Option<(A::Answer, Lease)>, Failed> {
        let timeout = route.options.request_timeout.map(TimeSpan::to_std);
        while let Some(lease) = route.pick_for(asked.sticky(), &self.tried) {
            let reuse = match self.may_replay {
                true => Reuse {
                    idle_max: pool::IDLE_TIMEOUT,
                    trusts: !self.was_stale,
                },
                false => Reuse {
                    idle_max: pool::FRESH_TIMEOUT,
                    trusts: false,
                },
            };
            let origin = || -> Origin { self.connection.origin(route) };
            let Ok((link, reused)) = Link::open(&lease.backend, origin, asked.speaks(), reuse).await else {
                lease.backend.refused();
                lease.fails();
                self.tried.add(&lease.backend);
                continue;
            };
            let sending = asked.ask(link);
            let sent = match timeout {
                Some(timeout) => tokio::time::timeout(timeout, sending).await,
                None => Ok(sending.await),
            };
            let sent = sent.map_err(|_| {
                lease.fails();
                Failed::Late
            })?;
            match sent {
                Ok(answer) => {
                    lease.backend.accepted();
                    if A::has_failed(&answer) {
                        lease.fails();
                    }
                    return Ok(Some((answer, lease)));
                }
                Err(error) => self.failed(&error, &lease, reused)?,
            }
        }
        Ok(None)
    }

    /// Lets the request be sent once more, where that is safe.
    fn failed(&mut self, error: &ExchangeError, lease: &Lease, reused: bool) -> Result<(), Failed> {
        match error {
            ExchangeError::Lost | ExchangeError::Bad(_) => lease.fails(),
            ExchangeError::Unsent if !reused => lease.fails(),
            ExchangeError::Unsent | ExchangeError::Stale | ExchangeError::Body | ExchangeError::Stalled => {
                lease.says_nothing();
            }
        }
        match error {
            ExchangeError::Unsent => {
                // An old connection says nothing about the backend; a new one that is closed at once does.
                if !reused {
                    lease.backend.refused();
                    self.tried.add(&lease.backend);
                }
                Ok(())
            }
            // The next one is looked at, with this backend or another.
            ExchangeError::Stale if self.may_replay && self.replays < REPLAYS_MAX => {
                self.replays += 1;
                self.was_stale = true;
                Ok(())
            }
            ExchangeError::Lost if self.may_replay && self.replays < REPLAYS_MAX => {
                self.replays += 1;
                self.tried.add(&lease.backend);
                Ok(())
            }
            ExchangeError::Body => Err(Failed::Body),
            ExchangeError::Stalled => Err(Failed::Stalled),
            ExchangeError::Lost | ExchangeError::Stale => Err(Failed::Lost),
            ExchangeError::Bad(why) => Err(Failed::Answer(*why)),
        }
    }
}

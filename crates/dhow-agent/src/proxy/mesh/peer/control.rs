//! The control connection to a node whose replicas are called: whether it lives, and which of them are ending.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::{Health, IDLE_TIMEOUT, Peer, Refused, lock};
use crate::proxy::backend::BackendState;
use crate::proxy::mesh::connection::{Connection, Frame, bad};
use crate::proxy::mesh::frame::{BadFrame, Kind};
use crate::proxy::mesh::silence::Silence;
use crate::proxy::note;

/// Between two attempts to reach a node that is not there.
const PAUSE: Duration = Duration::from_millis(250);

/// How a control connection ended.
enum Ended {
    /// It was there and said nothing: host or proxy hangs, or the network is cut.
    Silent,
    /// The other side closed it: its proxy was replaced, or has ended.
    Closed,
    /// Nobody calls its replicas any more.
    Unused,
}

impl Peer {
    /// Has somebody look whether the node lives, for as long as it is used.
    pub(super) fn watch(self: &Arc<Self>) {
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            tokio::spawn(Arc::clone(self).watched());
        }
    }

    async fn watched(self: Arc<Self>) {
        loop {
            let ended = match self.dial().await {
                Ok(connection) => self.converse(connection).await,
                Err(refused) => {
                    self.lost(&refused);
                    sleep(PAUSE).await;
                    match self.is_used() {
                        true => continue,
                        false => Ended::Unused,
                    }
                }
            };
            match ended {
                Ended::Silent => self.silent(),
                Ended::Closed => {
                    // Streams that were opened to a proxy that is being replaced would keep it for as long as they are used.
                    self.known_backends()
                        .iter()
                        .for_each(|backend| backend.pool.retire());
                    self.set_health(Health::Unknown);
                    sleep(PAUSE).await;
                }
                Ended::Unused => {
                    self.set_health(Health::Unknown);
                    self.is_watched.store(false, Ordering::Release);
                    // Somebody who came in between is not forgotten.
                    if self.is_used() {
                        self.watch();
                    }
                    return;
                }
            }
        }
    }

    /// Exchanges signs of life until one side has none.
    async fn converse(&self, mut connection: Connection) -> Ended {
        let timing = self.own.timing;
        let mut beat = interval(timing.beat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = Silence::new(timing, Instant::now());
        let mut greeting = Some(Kind::Control);
        loop {
            let deadline = silence.deadline();
            tokio::select! {
                biased;
                frame = connection.frame() => {
                    silence.heard(Instant::now());
                    match frame.and_then(|frame| self.hear(frame)) {
                        Ok(()) => {}
                        Err(_) => return Ended::Closed,
                    }
                }
                _ = beat.tick() => {
                    if !self.is_used() {
                        return Ended::Unused;
                    }
                    let kind = greeting.take().unwrap_or(Kind::Beat);
                    match timeout(timing.silence, connection.send(kind, &[])).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) => return Ended::Closed,
                        Err(_) => return Ended::Silent,
                    }
                }
                () = sleep_until(deadline) => if silence.is_too_long(Instant::now()) {
                    return Ended::Silent;
                },
            }
        }
    }

    fn hear(&self, frame: Option<Frame>) -> io::Result<()> {
        let Some(Frame { kind, body }) = frame else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        match kind {
            Kind::Beat => self.set_health(Health::Alive),
            Kind::Drain => {
                let replica = String::from_utf8(body).map_err(|_| bad(BadFrame::Content { kind }))?;
                let backends = self.known_backends();
                for backend in backends.iter().filter(|backend| backend.id == replica) {
                    backend.told_to_drain();
                }
            }
            Kind::Data
            | Kind::End
            | Kind::Abort
            | Kind::Open
            | Kind::Answer
            | Kind::Control
            | Kind::Offer
            | Kind::Call
            | Kind::Arrive
            | Kind::Through => {
                return Err(bad(BadFrame::Place { found: kind }));
            }
        }
        Ok(())
    }

    /// The backends that are reached through it.
    fn known_backends(&self) -> Vec<Arc<BackendState>> {
        let known = lock(&self.backends);
        known.iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    /// There is no way to it.
    fn lost(&self, refused: &Refused) {
        self.say(refused);
        // One that has no room lives, and what is open to it goes on.
        if refused.is_busy() {
            return;
        }
        match refused {
            // A host that does not even answer: what was open is dead too.
            Refused::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut => self.silent(),
            Refused::Io { .. }
            | Refused::OtherNode { .. }
            | Refused::There { .. }
            | Refused::Relay { .. } => {
                self.set_health(Health::Silent);
                lock(&self.idle).clear();
            }
            // These say nothing about the node.
            Refused::Unknown { .. } | Refused::Silent { .. } | Refused::NoIdentity | Refused::Busy { .. } => {
            }
        }
    }

    /// Passes its replicas over, and ends what hangs on it.
    fn silent(&self) {
        self.set_health(Health::Silent);
        lock(&self.idle).clear();
        self.connections.cut();
    }

    fn set_health(&self, health: Health) {
        let before = self.health.swap(health.number(), Ordering::Relaxed);
        let (was_silent, is_silent) = (before == Health::Silent.number(), health == Health::Silent);
        match (was_silent, is_silent) {
            (false, true) => note(&format!(
                "node {} is silent: its replicas are passed over",
                self.node
            )),
            (true, false) if health == Health::Alive => note(&format!("node {} is heard again", self.node)),
            (true, _) | (false, false) => {}
        }
    }

    /// Whether streams are open, or one was wanted lately. The control connection itself is one of the open ones.
    fn is_used(&self) -> bool {
        let since_ms = self.now_ms().saturating_sub(self.used_ms.load(Ordering::Relaxed));
        Duration::from_millis(since_ms) < IDLE_TIMEOUT || self.connections.count() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::mesh::frame::Why;
    use crate::proxy::mesh::own::{Own, Timing};

    /// Its replicas would be passed over, and what is open to them would be cut, just when they have most to do.
    #[test]
    fn a_node_that_has_no_room_is_not_silent() {
        let node = 7;
        let peer = Peer::new(node, Arc::new(Own::new(Timing::default())));
        let relay = |why| Refused::Relay { node, relay: 2, why };
        for busy in [
            relay(Why::Busy),
            Refused::There { node, why: Why::Busy },
            Refused::Busy { node },
        ] {
            peer.lost(&busy);
            assert!(!peer.is_silent(), "{busy}");
        }
        peer.lost(&relay(Why::NoTunnel));
        assert!(peer.is_silent());
    }
}

//! The control connection of a node that calls: it hears signs of life and which replicas are ending. Where it falls
//! silent, its streams are cut.

use std::io;
use std::sync::atomic::Ordering;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::{Caller, Far};
use crate::proxy::mesh::connection::{Connection, Frame};
use crate::proxy::mesh::frame::Kind;
use crate::proxy::mesh::silence::Silence;

impl Far {
    /// Serves it to its end.
    pub(super) async fn control(&self, connection: Connection, caller: &Caller) {
        caller.inbound.controls.fetch_add(1, Ordering::AcqRel);
        let ended = self.beat(connection).await;
        let is_last = caller.inbound.controls.fetch_sub(1, Ordering::AcqRel) == 1;
        match ended {
            // Nothing of the node is heard any more: whatever its streams hold is let go.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && is_last => {
                caller.inbound.connections.cut()
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// An error of the kind `TimedOut` is silence.
    async fn beat(&self, mut connection: Connection) -> io::Result<()> {
        let timing = self.own.timing;
        let mut drains = self.drains.subscribe();
        // Those of which nobody told it while it was away.
        let already: Vec<_> = self.draining().iter().cloned().collect();
        for replica in already {
            connection.send(Kind::Drain, replica.as_bytes()).await?;
        }
        let mut beat = interval(timing.beat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = Silence::new(timing, Instant::now());
        loop {
            let deadline = silence.deadline();
            let (kind, body) = tokio::select! {
                biased;
                frame = connection.frame() => match frame? {
                    Some(Frame { kind: Kind::Beat, .. }) => {
                        silence.heard(Instant::now());
                        continue;
                    }
                    Some(_) | None => return Ok(()),
                },
                () = self.stop.cancelled() => return Ok(()),
                drained = drains.recv() => match drained {
                    Ok(replica) => (Kind::Drain, Some(replica)),
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return Ok(()),
                },
                _ = beat.tick() => (Kind::Beat, None),
                () = sleep_until(deadline) => match silence.is_too_long(Instant::now()) {
                    true => return Err(io::ErrorKind::TimedOut.into()),
                    false => continue,
                },
            };
            let body = body.as_deref().unwrap_or_default();
            let sent = timeout(timing.silence, connection.send(kind, body.as_bytes())).await;
            sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
                .flatten()?;
        }
    }
}

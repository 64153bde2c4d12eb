//! The tunnels of a node that nobody can dial, to those who pass on for it: one that is idle to each of them, and one more
//! for each call that it is told of. What comes over these is served like a connection that came in at the mesh's port.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Frame, bad};
use super::far::Far;
use super::frame::{BadFrame, Kind, read_number, write_number};
use super::peer::{Peer, Refused};
use super::silence::Silence;
use crate::proxy::note;

/// Between two attempts to reach a relay: from the first to the second, and at most. A relay that was restarted is offered to
/// again within a second.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Calls of one relay that are being answered at a time. More wait at the relay, which gives them up.
const ARRIVALS_MAX: usize = 256;

/// This node's tunnels to relays.
pub struct Offers {
    far: Arc<Far>,
    running: Mutex<BTreeMap<u64, CancellationToken>>,
}

impl Offers {
    pub fn new(far: Arc<Far>) -> Self {
        Self {
            far,
            running: Mutex::default(),
        }
    }

    /// Has a tunnel to each of these from now on, and to no others.
    pub fn set(&self, relays: Vec<Arc<Peer>>) {
        let mut running = self.running();
        running.retain(|node, stop| {
            let stays = relays.iter().any(|relay| relay.node == *node);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for relay in relays {
            running.entry(relay.node).or_insert_with(|| {
                let stop = CancellationToken::new();
                let offer = Offer {
                    relay,
                    far: Arc::clone(&self.far),
                    room: Arc::new(Semaphore::new(ARRIVALS_MAX)),
                };
                let stopped = stop.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = offer.keep() => {}
                        () = stopped.cancelled() => {}
                    }
                });
                stop
            });
        }
    }

    /// No new calls: what is open finishes.
    pub fn end(&self) {
        self.set(Vec::new());
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        // Nothing that runs under the lock leaves the map half changed.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tunnel to one relay.
struct Offer {
    relay: Arc<Peer>,
    far: Arc<Far>,
    room: Arc<Semaphore>,
}

impl Offer {
    /// Comes back after every break.
    async fn keep(self) {
        let relay = self.relay.node;
        let mut pause = PAUSE;
        let mut is_told = false;
        loop {
            match self.relay.dial_directly().await {
                Ok(connection) => {
                    let began = Instant::now();
                    // Whatever ends it, it is made anew.
                    let _ = self.attend(connection).await;
                    is_told = false;
                    if began.elapsed() > PAUSE_MAX {
                        pause = PAUSE;
                    }
                }
                Err(refused) if !is_told => {
                    let why = dhow_driver::driver::error_chain(&refused);
                    note(&format!(
                        "this node cannot be called through node {relay} now: {why}"
                    ));
                    is_told = true;
                }
                Err(_) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn attend(&self, mut connection: Connection) -> io::Result<()> {
        let timing = self.far.timing().idle();
        connection.send(Kind::Offer, &[]).await?;
        let mut beat = interval(timing.beat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = Silence::new(timing, Instant::now());
        let mut is_taken = false;
        loop {
            tokio::select! {
                biased;
                frame = connection.frame() => {
                    silence.heard(Instant::now());
                    let frame = frame?;
                    // One that passes nothing on, or is of an older version, says nothing.
                    if frame.is_some() && !std::mem::replace(&mut is_taken, true) {
                        note(&format!("this node is called through node {}", self.relay.node));
                    }
                    match frame {
                        Some(Frame { kind: Kind::Beat, .. }) => {}
                        Some(Frame { kind: Kind::Call, body }) => {
                            self.answer(read_number(Kind::Call, &body).map_err(bad)?);
                        }
                        Some(Frame { kind: found, .. }) => return Err(bad(BadFrame::Place { found })),
                        None => return Ok(()),
                    }
                }
                _ = beat.tick() => {
                    let sent = timeout(timing.beat, connection.send(Kind::Beat, &[])).await;
                    sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut)).flatten()?;
                }
                () = sleep_until(silence.deadline()) => if silence.is_too_long(Instant::now()) {
                    return Err(io::ErrorKind::TimedOut.into());
                },
            }
        }
    }

    /// Arrives for a call, and serves whoever is there.
    fn answer(&self, number: u64) {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            return;
        };
        let (relay, far) = (Arc::clone(&self.relay), Arc::clone(&self.far));
        tokio::spawn(async move {
            let arrived = async {
                let mut connection = relay.dial_directly().await?;
                let sent = connection.send(Kind::Arrive, &write_number(number)).await;
                let node = relay.node;
                sent.map_err(|source| Refused::Io { node, source })?;
                Ok::<_, Refused>(connection)
            };
            let arrived = arrived.await;
            drop(place);
            if let Ok(connection) = arrived {
                let (socket, registered) = connection.into_socket();
                far.take_in(socket, &registered).await;
            }
        });
    }
}

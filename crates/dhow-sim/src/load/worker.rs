//! One worker: it joins, looks for a server, keeps its session and reports, as its order says.

mod books;
mod gate;
mod identity;
mod search;
mod session;
mod told;
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dhow_core::amount::Amount;
use dhow_core::state::{NodeInfo, NodeRole};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::order::Order;
use super::seat::Seat;
use super::tally::Tally;
use books::Books;
use identity::Identity;
use search::Search;
use session::{Ended, Session};

pub use identity::Invitation;
pub use told::{Telling, View};
pub use wire::{SUBNET_WORKERS, address_of};

/// What all workers share.
pub struct Surroundings {
    /// Where the servers take workers, in the order of their ids.
    pub servers: Vec<SocketAddr>,
    pub invitation: Invitation,
    /// How many join at a time: as many machines as are switched on together.
    pub doorway: Semaphore,
    /// All call from the first one's address.
    pub one_address: bool,
    pub tally: Tally,
    /// Where workers follow their directories.
    pub telling: Option<Telling>,
}

impl Surroundings {
    /// Where the worker of a place calls from.
    fn address_of(&self, place: usize) -> Ipv4Addr {
        address_of(if self.one_address { 0 } else { place })
    }
}

/// The task of one worker of a load run.
pub struct Worker {
    around: Arc<Surroundings>,
    seat: Arc<Seat>,
    orders: watch::Receiver<Order>,
    books: Books,
    search: Search,
    /// When its last session ended against its will, while it has none.
    ended_at: Option<Instant>,
}

impl Worker {
    pub fn new(around: Arc<Surroundings>, seat: Arc<Seat>) -> Self {
        Self {
            orders: seat.orders(),
            search: Search::new(around.servers.clone(), seat.place),
            books: Books::new(rand::random()),
            ended_at: None,
            around,
            seat,
        }
    }

    /// Until it is aborted, or turned away for good.
    pub async fn run(mut self) {
        let Some(identity) = self.join().await else { return };
        loop {
            if self.wait_until_called().await.is_none() {
                return;
            }
            let server = tokio::select! {
                server = self.search.next() => server,
                _ = self.orders.changed() => continue,
            };
            let ended = self.session(&identity, server).await;
            self.seat.set_server(None);
            match ended {
                Ended::Unreached => Tally::count(&self.around.tally.unreached),
                Ended::SentOn(leader) => {
                    Tally::count(&self.around.tally.sent_on);
                    self.search.sent_to(leader);
                }
                Ended::Over => self.search.left(server),
                Ended::Moved(to) => {
                    Tally::count(&self.around.tally.moved);
                    self.search.sent_to(Some(to));
                }
                Ended::TurnedAway(why) => {
                    self.around.tally.turn_away(why);
                    return;
                }
            }
        }
    }

    async fn join(&mut self) -> Option<Identity> {
        let around = Arc::clone(&self.around);
        let _turn = around.doorway.acquire().await.ok()?;
        let began = Instant::now();
        let joined = Identity::join(&around, self.seat.place, &mut self.search).await;
        match joined {
            Ok(identity) => {
                around.tally.joining.add(began.elapsed());
                self.seat.node.store(identity.node.0, Ordering::Relaxed);
                Some(identity)
            }
            Err(why) => {
                around.tally.turn_away(why);
                None
            }
        }
    }

    async fn wait_until_called(&mut self) -> Option<()> {
        self.orders.wait_for(|order| order.has_session()).await.ok()?;
        Some(())
    }

    async fn session(&mut self, identity: &Identity, server: SocketAddr) -> Ended {
        let opened = Session::open(&self.around, &self.seat, identity, server, &mut self.books).await;
        let session = match opened {
            Ok(session) => session,
            Err(ended) => return ended,
        };
        let tally = &self.around.tally;
        if let Some(since) = self.ended_at.take() {
            tally.reopening.add(since.elapsed());
        }
        let place = self.around.servers.iter().position(|known| *known == server);
        self.seat.set_server(place);
        self.search.succeeded();
        let ended = session.serve(&mut self.orders).await;
        // Whoever was told to go, or to move, has not lost its session.
        if self.seat.order().has_session() && !matches!(ended, Ended::Moved(_)) {
            self.ended_at = Some(Instant::now());
            tally.session_ended(place.unwrap_or_default());
        }
        ended
    }
}

/// What a worker says of itself: a machine of 64 cores.
fn info_of(place: usize, around: &Surroundings) -> NodeInfo {
    let interests = around.telling.as_ref().map(|telling| telling.interests);
    let group = interests.and_then(|interests| interests.group_of(place));
    let label = group.map(|group| ("group".to_owned(), group.to_string()));
    NodeInfo {
        role: NodeRole::Worker,
        api_addr: Some(format!("{}:3669", address_of(place)).into()),
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::new(label.into_iter().collect()),
        capacity: Amount {
            cpu_milli: 64_000,
            memory_bytes: 256 << 30,
        },
        runs_replicas: true,
        tries_settings: false,
        mounts_files: false,
        runs_steps: false,
        volumes: dhow_core::spec::VolumeSupport::Named,
        mesh_addr: interests.map(|_| format!("{}:3672", address_of(place)).into()),
    }
}

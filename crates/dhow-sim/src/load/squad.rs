//! The workers of one process: as many as one process may have files for.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::order::Order;
use super::seat::Seat;
use super::talk::{Answer, Ask, Look, Setup, Timing, ToldCounts, Views};
use super::tally::Tally;
use super::worker::{Invitation, Surroundings, Telling, Worker};

/// The workers that this process has, for the script that asks over its pipes. They end with it.
struct Squad {
    around: Arc<Surroundings>,
    seats: Vec<Arc<Seat>>,
    first: usize,
    workers: JoinSet<()>,
}

/// Has workers as the setup on stdin says, and answers on stdout until stdin ends.
pub async fn serve_squad() -> anyhow::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    let setup = lines.next_line().await?.context("no setup came")?;
    let mut squad = Squad::new(serde_json::from_str(&setup)?)?;
    while let Some(line) = lines.next_line().await? {
        let mut answer = serde_json::to_vec(&squad.answer(serde_json::from_str(&line)?))?;
        answer.push(b'\n');
        out.write_all(&answer).await?;
        out.flush().await?;
    }
    Ok(())
}

impl Squad {
    fn new(setup: Setup) -> anyhow::Result<Self> {
        let around = Arc::new(Surroundings {
            tally: Tally::new(setup.servers.len()),
            servers: setup.servers,
            invitation: Invitation::new(&setup.token)?,
            doorway: Semaphore::new(setup.at_once.max(1)),
            one_address: setup.one_address,
            telling: setup.interests.map(Telling::new),
        });
        Ok(Self {
            around,
            first: setup.places.start,
            seats: setup.places.map(|place| Arc::new(Seat::new(place))).collect(),
            workers: JoinSet::new(),
        })
    }

    fn answer(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::Go => self.go(),
            Ask::Give { places, order } => {
                self.here(places).iter().for_each(|seat| seat.give(order));
                Answer::Done
            }
            Ask::GiveAt { server, count, order } => Answer::Gave(self.give_at(server, count, order)),
            Ask::Look => Answer::Look(Box::new(self.look())),
            Ask::Take(Timing::Telling) => Answer::Samples(match &self.around.telling {
                Some(telling) => telling.latencies.take(),
                None => Vec::new(),
            }),
            Ask::Take(timing) => Answer::Samples(self.around.tally.timed(timing).take()),
            Ask::Held => Answer::Held(self.held()),
            Ask::ChangeEvery(every_ms) => {
                if let Some(telling) = &self.around.telling {
                    telling.every.send_replace(every_ms.map(Duration::from_millis));
                }
                Answer::Done
            }
            Ask::Told => Answer::Told(self.told()),
            Ask::Views => Answer::Views(Box::new(self.views())),
        }
    }

    fn go(&mut self) -> Answer {
        if !self.workers.is_empty() {
            return Answer::Failed("they have set out already".to_owned());
        }
        for seat in &self.seats {
            let worker = Worker::new(Arc::clone(&self.around), Arc::clone(seat));
            self.workers.spawn(worker.run());
        }
        Answer::Done
    }

    fn here(&self, places: Range<usize>) -> &[Arc<Seat>] {
        let at = |place: usize| place.saturating_sub(self.first).min(self.seats.len());
        &self.seats[at(places.start)..at(places.end)]
    }

    fn give_at(&self, server: usize, count: usize, order: Order) -> Vec<usize> {
        let there = |seat: &&Arc<Seat>| seat.server() == Some(server);
        let chosen = self.seats.iter().filter(there).take(count);
        let told = chosen.inspect(|seat| seat.give(order));
        told.map(|seat| seat.place).collect()
    }

    fn look(&self) -> Look {
        let tally = &self.around.tally;
        let mut look = Look {
            open_at: vec![0; self.around.servers.len()],
            ..tally.look()
        };
        for seat in &self.seats {
            look.joined += usize::from(seat.is_joined());
            if let Some(open) = seat.server().and_then(|server| look.open_at.get_mut(server)) {
                *open += 1;
            }
            if seat.order().counts() {
                look.running += u64::from(seat.running.load(Ordering::Relaxed));
            }
            look.started += u64::from(seat.started.load(Ordering::Relaxed));
            look.stopped += u64::from(seat.stopped.load(Ordering::Relaxed));
        }
        look
    }

    fn told(&self) -> ToldCounts {
        let Some(telling) = &self.around.telling else {
            return ToldCounts::default();
        };
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ToldCounts {
            changes: read(&telling.changes),
            messages: read(&telling.messages),
            heard: read(&telling.heard),
            to_idle: read(&telling.to_idle),
            uninvited: read(&telling.uninvited),
        }
    }

    fn views(&self) -> Views {
        let mut views = Views::default();
        for seat in &self.seats {
            seat.view().add_to(&mut views);
        }
        views
    }

    fn held(&self) -> Vec<u64> {
        let counted = self.seats.iter().filter(|seat| seat.order().counts());
        counted.flat_map(|seat| seat.held()).collect()
    }
}

/// The same for the same name in every process of one build.
pub fn hash_of(name: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

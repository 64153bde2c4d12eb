//! What the script and the processes that have the workers say to each other: one line of JSON each way, over the pipes of
//! the process. A process ends with its input.

use std::net::SocketAddr;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::order::Order;

pub use super::interests::{GROUP_SERVICES, GROUP_WORKERS, Interests, ToldCounts, Views};

/// The first line that a process reads: its workers, and where they go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Where the servers take workers, in the order of their ids.
    pub servers: Vec<SocketAddr>,
    pub token: String,
    /// The places of its workers among all.
    pub places: Range<usize>,
    pub at_once: usize,
    /// All call from one address, as behind a router that translates addresses.
    pub one_address: bool,
    /// Workers follow their directories, and use these services.
    pub interests: Option<Interests>,
}

/// What the script asks a process for, after its setup. Each is answered with one line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// The workers set out. Answered with [`Answer::Done`].
    Go,
    /// Those of these places that are here do this from now on. Answered with [`Answer::Done`].
    Give { places: Range<usize>, order: Order },
    /// So many of those whose session is with the server do this from now on. Answered with [`Answer::Gave`].
    GiveAt {
        server: usize,
        count: usize,
        order: Order,
    },
    /// Answered with [`Answer::Look`].
    Look,
    /// What has gathered since it was last taken. Answered with [`Answer::Samples`].
    Take(Timing),
    /// The replicas that run on workers that count. Answered with [`Answer::Held`].
    Held,
    /// Each worker changes one of its replicas that often, in milliseconds. Answered with [`Answer::Done`].
    ChangeEvery(Option<u64>),
    /// Answered with [`Answer::Told`].
    Told,
    /// Answered with [`Answer::Views`].
    Views,
}

/// What is answered to an [`Ask`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    /// The places of those who were told so.
    Gave(Vec<usize>),
    Look(Box<Look>),
    /// In microseconds.
    Samples(Vec<u32>),
    /// A hash of each one's name.
    Held(Vec<u64>),
    Told(ToldCounts),
    Views(Box<Views>),
    /// It could not be done.
    Failed(String),
}

/// What is timed at the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timing {
    Joining,
    Opening,
    /// From the end of a session that the worker wanted to keep to the next one.
    Reopening,
    Beating,
    Reporting,
    /// From the assignment of a replica to the acknowledgement that it runs.
    Delivering,
    /// From the change of a replica to a worker that uses its service and hears of it.
    Telling,
}

/// One look at all workers, of one process or of all: every figure comes from the same pass over them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    pub joined: usize,
    /// Open sessions by server.
    pub open_at: Vec<usize>,
    /// Replicas that run on workers that are there.
    pub running: u64,
    /// How often replicas were started, and stopped, so far.
    pub started: u64,
    pub stopped: u64,
    /// Sessions that ended against the worker's will, by server.
    pub ended_at: Vec<u64>,
    /// Sessions that a server sent to another one, where they belong.
    pub moved: u64,
    /// Calls that no answer came to in time.
    pub unanswered: u64,
    /// Servers that were left because nothing was heard of them.
    pub unheard: u64,
    /// Assignments below one that the same worker had before.
    pub behind: u64,
    pub unreached: u64,
    pub joins_refused: u64,
    pub reports_refused: u64,
    pub sent_on: u64,
    pub turned_away: u64,
    pub last_refusal: Option<String>,
    pub heartbeats: u64,
}

impl Look {
    pub fn open(&self) -> usize {
        self.open_at.iter().sum()
    }

    pub fn ended(&self) -> u64 {
        self.ended_at.iter().sum()
    }

    /// Whether none has been turned away for good.
    pub fn is_whole(&self) -> bool {
        self.turned_away == 0
    }

    /// Both together.
    pub fn and(mut self, other: Self) -> Self {
        self.joined += other.joined;
        add_each(&mut self.open_at, &other.open_at);
        self.running += other.running;
        self.started += other.started;
        self.stopped += other.stopped;
        add_each(&mut self.ended_at, &other.ended_at);
        self.moved += other.moved;
        self.unanswered += other.unanswered;
        self.unheard += other.unheard;
        self.behind += other.behind;
        self.unreached += other.unreached;
        self.joins_refused += other.joins_refused;
        self.reports_refused += other.reports_refused;
        self.sent_on += other.sent_on;
        self.turned_away += other.turned_away;
        self.last_refusal = other.last_refusal.or(self.last_refusal);
        self.heartbeats += other.heartbeats;
        self
    }
}

fn add_each<T: Copy + Default + std::ops::AddAssign>(to: &mut Vec<T>, other: &[T]) {
    to.resize(to.len().max(other.len()), T::default());
    to.iter_mut().zip(other).for_each(|(sum, one)| *sum += *one);
}

impl std::fmt::Display for Look {
    /// What the workers have met, for a run that goes wrong.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} joined, {:?} sessions open, {} replicas run, {} unreached, {} sent on, {} joins and {} reports refused as \
             busy, {} turned away, {:?} sessions ended; {:?}",
            self.joined,
            self.open_at,
            self.running,
            self.unreached,
            self.sent_on,
            self.joins_refused,
            self.reports_refused,
            self.turned_away,
            self.ended_at,
            self.last_refusal,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_add_up_server_by_server() {
        let one = Look {
            joined: 2,
            open_at: vec![1, 1],
            ended_at: vec![0, 3],
            running: 5,
            ..Look::default()
        };
        let other = Look {
            joined: 1,
            open_at: vec![0, 0, 1],
            last_refusal: Some("no".into()),
            ..Look::default()
        };
        let both = one.and(other);
        assert_eq!(
            (both.joined, both.open(), both.ended(), both.running),
            (3, 3, 3, 5)
        );
        assert_eq!(both.open_at, [1, 1, 1]);
        assert_eq!(both.last_refusal.as_deref(), Some("no"));
    }
}

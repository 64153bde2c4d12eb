//! `kill -9` under load: what was acknowledged is there.
//!
//! The test starts itself again as a child that writes from several threads and prints each acknowledgement.
//! The parent kills it after a random number of them, opens the store and compares.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dhow_server::plane::log::store::{Batch, LogPosition, Op, StoreOptions};

use super::support::{Random, append, long, open, payload, read_all, seed, small};

const CHILD_DIR: &str = "DHOW_TEST_KILL_DIR";
const CHILD_SEED: &str = "DHOW_TEST_KILL_SEED";
const THREADS: u64 = 4;
/// Entries that a child keeps; what is older it purges, so that segments are deleted under load too.
const KEPT: u64 = 300;
/// A child ends by itself after this many commits for each thread, in case nobody kills it.
const MAX_COMMITS: u64 = 100_000;

fn options() -> StoreOptions {
    StoreOptions {
        segment_size_bytes: 64 * 1024,
        ..small()
    }
}

/// The bytes that thread `thread` writes as its commit `number` in the round with this seed.
fn bytes_of(seed: u64, thread: u64, number: u64) -> bytes::Bytes {
    let name = seed ^ (thread << 56) ^ (number << 20);
    payload(name, Random::new(name).below(1500) as usize)
}

/// Not a test of its own: does nothing unless the test below started it as a child.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let seed: u64 = std::env::var(CHILD_SEED).unwrap().parse().unwrap();
    let store = open(Path::new(&dir), options());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = store.clone();
            scope.spawn(move || {
                for number in 0..MAX_COMMITS {
                    let index = store
                        .commit(Batch::of(append(bytes_of(seed, thread, number))))
                        .unwrap()
                        .first_index;
                    print_line(&format!("ack {index} {thread} {number}"));
                    if thread == 0 && number % 50 == 49 && index > KEPT {
                        let up_to = LogPosition {
                            index: index - KEPT,
                            term: 1,
                        };
                        print_line(&format!("purging {}", up_to.index));
                        store.commit(Batch::of(Op::Purge(up_to))).unwrap();
                        print_line(&format!("purged {}", up_to.index));
                    }
                }
            });
        }
    });
}

/// One write for each line, so that a kill leaves at most the last line unfinished.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn start_child(dir: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "kill::child_that_writes_until_it_is_killed",
            "--nocapture",
        ])
        .env(CHILD_DIR, dir)
        .env(CHILD_SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What the children told before they were killed.
#[derive(Default)]
struct Acknowledged {
    /// Acknowledged entries: index to seed, thread and number.
    acked: BTreeMap<u64, (u64, u64, u64)>,
    /// The last purge that was asked for, and the last that was acknowledged.
    purging: u64,
    purged: u64,
}

impl Acknowledged {
    fn line(&mut self, seed: u64, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "ack" => {
                let before = self.acked.insert(number(1), (seed, number(2), number(3)));
                assert_eq!(before, None, "index {} was given twice", number(1));
                return true;
            }
            "purging" => self.purging = number(1),
            "purged" => self.purged = number(1),
            // Lines of the test harness.
            _ => {}
        }
        false
    }
}

/// Runs a child until it has told so many acknowledgements, kills it, and takes in what it still told.
fn round(dir: &Path, seed: u64, acks: u64, told: &mut Acknowledged) {
    let mut child = start_child(dir, seed);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut seen = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if out.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            break;
        }
        seen += u64::from(told.line(seed, line.trim_end()));
        if seen == acks {
            // SIGKILL. What is already in the pipe is still read.
            child.kill().unwrap();
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        seen >= acks,
        "the child ended by itself after {seen} of {acks} acknowledgements"
    );
}

#[test]
fn everything_acknowledged_survives_kill_9() {
    let seed = seed("kill -9");
    let mut random = Random::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut told = Acknowledged::default();
    let (mut torn, mut total) = (0, 0);
    let rounds = if long() { 500 } else { 20 };
    for number in 0..rounds {
        let (child_seed, acks) = (random.next(), 1 + random.below(400));
        let before = told.acked.len();
        round(dir.path(), child_seed, acks, &mut told);
        total += told.acked.len() - before;
        let (store, recovery) =
            dhow_server::plane::log::store::SegmentStore::open(dir.path(), options()).unwrap();
        torn += u32::from(recovery.repaired.is_some());
        let bounds = store.bounds();
        let gone = bounds.purged.map_or(0, |purged| purged.index);
        assert!(
            gone >= told.purged && gone <= told.purging.max(told.purged),
            "round {number}: purged up to {gone}"
        );
        let found: BTreeMap<u64, _> = read_all(&store)
            .into_iter()
            .map(|entry| (entry.index, entry))
            .collect();
        told.acked = told.acked.split_off(&bounds.first_index);
        for (index, (seed, thread, count)) in &told.acked {
            let entry = found
                .get(index)
                .unwrap_or_else(|| panic!("round {number}: entry {index} is lost"));
            assert!(
                entry.payload == bytes_of(*seed, *thread, *count),
                "round {number}: entry {index} changed"
            );
        }
        // What was not acknowledged may be there; the next round must not be given its index again.
        told.acked.retain(|index, _| found.contains_key(index));
    }
    println!("{rounds} rounds, {total} acknowledged entries, {torn} torn tails repaired");
}

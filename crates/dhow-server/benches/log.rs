//! Commits a second through the store, beside a bare loop of one write and one fdatasync on the same disk.
//!
//! A caller hands in one entry of 256 bytes, waits until it is durable, and hands in the next; many callers are many
//! such loops at once. The table at the end compares both in turns within one run, because absolute numbers
//! are those of the disk and of the moment: read the ratios.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use dhow_server::plane::log::store::{Batch, LogPosition, Op, SegmentStore, StoreOptions};

const ENTRY_BYTES: usize = 256;
const CALLERS: [u64; 3] = [1, 16, 256];
/// A frame with one such entry takes one sector, so the bare loop writes as much.
const BARE_WRITE_BYTES: usize = 512;
const BARE_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Turns of the table; each measures everything once.
const TURNS: usize = 5;
const COMMITS_A_CALLER: u64 = 40;
const MIN_COMMITS: u64 = 1500;

struct Bench {
    store: SegmentStore,
    entry: Bytes,
    tell: Sender<()>,
    told: Receiver<()>,
}

impl Bench {
    fn open(dir: &Path) -> Self {
        let options = StoreOptions {
            purged_needs_snapshot: false,
            ..StoreOptions::default()
        };
        let (store, _) = SegmentStore::open(dir, options).expect("the directory is new");
        let (tell, told) = channel();
        Bench {
            store,
            entry: Bytes::from(vec![7; ENTRY_BYTES]),
            tell,
            told,
        }
    }

    fn submit(&self) {
        let tell = self.tell.clone();
        let append = Op::AppendNext {
            term: 1,
            payload: self.entry.clone(),
        };
        let done = Box::new(move |result: Result<_, _>| {
            black_box(result).expect("the disk works");
            tell.send(()).expect("the benchmark waits for it");
        });
        self.store
            .submit(Batch::of(append), done)
            .expect("the queue has room");
    }

    /// Commits so many entries with so many callers at once; returns how long it took.
    fn commits(&self, callers: u64, count: u64) -> Duration {
        let start = Instant::now();
        let mut submitted = callers.min(count);
        (0..submitted).for_each(|_| self.submit());
        for _ in 0..count {
            self.told.recv().expect("the store answers");
            if submitted < count {
                self.submit();
                submitted += 1;
            }
        }
        let took = start.elapsed();
        self.forget();
        took
    }

    /// Gives the room back between measurements.
    fn forget(&self) {
        let Some(LogPosition { index, term }) = self.store.bounds().last else {
            return;
        };
        let purge = Op::Purge(LogPosition { index, term });
        self.store.commit(Batch::of(purge)).expect("the disk works");
    }
}

/// The loop without a store: one write and one fdatasync after the other, into a file of written zeros.
struct Bare {
    file: File,
    at: u64,
}

impl Bare {
    fn open(dir: &Path) -> Self {
        let file = File::create_new(dir.join("bare")).expect("the directory is new");
        file.write_all_at(&vec![0; BARE_FILE_BYTES as usize], 0)
            .expect("the disk has room");
        file.sync_all().expect("the disk works");
        Bare { file, at: 0 }
    }

    fn commits(&mut self, count: u64) -> Duration {
        let bytes = [7; BARE_WRITE_BYTES];
        let start = Instant::now();
        for _ in 0..count {
            self.file.write_all_at(&bytes, self.at).expect("the disk works");
            self.file.sync_data().expect("the disk works");
            self.at = (self.at + BARE_WRITE_BYTES as u64) % BARE_FILE_BYTES;
        }
        start.elapsed()
    }
}

fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Measures bare and store in turns, and prints the medians and their ratios.
fn table(bench: &Bench, bare: &mut Bare) {
    let mut bare_rates = Vec::new();
    let mut rates: Vec<Vec<(f64, f64)>> = vec![Vec::new(); CALLERS.len()];
    for _ in 0..TURNS {
        bare_rates.push(rate(MIN_COMMITS, bare.commits(MIN_COMMITS)));
        for (callers, rates) in CALLERS.into_iter().zip(&mut rates) {
            let count = (callers * COMMITS_A_CALLER).max(MIN_COMMITS);
            let frames = bench.store.stats().frames;
            let took = bench.commits(callers, count);
            rates.push((rate(count, took), rate(bench.store.stats().frames - frames, took)));
        }
    }
    let bare = median(bare_rates);
    println!(
        "\nentries of {ENTRY_BYTES} bytes, medians of {TURNS} turns; a frame is one write and one fdatasync"
    );
    println!("bare write and fdatasync: {bare:.0}/s");
    println!("callers  commits/s  ratio to bare  frames/s  ratio to bare");
    for (callers, rates) in CALLERS.into_iter().zip(rates) {
        let (commits, frames): (Vec<_>, Vec<_>) = rates.into_iter().unzip();
        let (commits, frames) = (median(commits), median(frames));
        println!(
            "{callers:>7} {commits:>10.0} {:>14.2} {frames:>9.0} {:>14.2}",
            commits / bare,
            frames / bare
        );
    }
}

/// How fast a log is read back when it is opened.
fn opening(dir: &Path) {
    const ENTRIES: u64 = 200_000;
    let bench = Bench::open(dir);
    let append = |_| Op::AppendNext {
        term: 1,
        payload: bench.entry.clone(),
    };
    for _ in 0..ENTRIES / 100 {
        let batch = Batch::new((0..100).map(append).collect());
        bench.store.commit(batch).expect("the disk works");
    }
    drop(bench);
    let start = Instant::now();
    let bench = Bench::open(dir);
    let opened = start.elapsed();
    let start = Instant::now();
    let mut from = bench.store.bounds().first_index;
    while from < bench.store.bounds().next_index {
        let entries = bench.store.read(from..u64::MAX, 1 << 20).expect("the disk works");
        from += black_box(entries).len() as u64;
    }
    let read = start.elapsed();
    println!("{ENTRIES} entries: opened in {opened:.0?}, read in {read:.0?}\n");
}

fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target directory can be written");
    let bench = Bench::open(&dir.path().join("log"));
    let mut bare = Bare::open(dir.path());
    // `cargo test --benches` only asks whether it runs.
    let measured = std::env::args().any(|arg| arg == "--bench");
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("commit");
    group.throughput(Throughput::Elements(1));
    group.bench_function("bare", |bencher| bencher.iter_custom(|count| bare.commits(count)));
    for callers in CALLERS {
        group.bench_function(format!("callers/{callers}"), |bencher| {
            bencher.iter_custom(|count| bench.commits(callers, count))
        });
    }
    group.finish();
    criterion.final_summary();
    if measured {
        table(&bench, &mut bare);
        opening(&dir.path().join("opening"));
    }
}

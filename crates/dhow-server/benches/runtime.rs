//! Acknowledged writes a second through the whole runtime, beside the same entries through the bare log: what the
//! reducer, the state and the answers cost on top of the disk. A third column is the runtime on a log that keeps
//! nothing, which is the reducer's own speed. The log and the runtime take turns within one run: read the ratios.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use dhow_core::command::{ClusterCommand, Command, Entry};
use dhow_core::ids::Term;
use dhow_core::state::State;
use dhow_core::time::ClusterTime;
use dhow_server::clock::SystemClock;
use dhow_server::plane::log::local::LocalLog;
use dhow_server::plane::log::store::StoreOptions;
use dhow_server::plane::log::{Log, LogEvent, ProposalId};
use dhow_server::plane::runtime::{InputSender, RuntimeHandle, drain, open_local, spawn, spawn_with};
use dhow_wire::log_form::encode_entry;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const CALLERS: [usize; 3] = [1, 16, 256];
const TURNS: usize = 5;
const MIN_WRITES: usize = 2_000;
const WRITES_A_CALLER: usize = 40;

fn command(number: usize) -> Command {
    Command::Cluster(ClusterCommand::SetSecret {
        name: format!("secret-{}", number % 1_000).into(),
        sealed: vec![7; 200].into(),
    })
}

fn writes(callers: usize) -> usize {
    MIN_WRITES.max(callers * WRITES_A_CALLER) / callers * callers
}

/// Each caller sends a write and waits for its answer, again and again.
async fn through_runtime(input: InputSender, callers: usize) -> f64 {
    let count = writes(callers);
    let begin = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let input = input.clone();
            tokio::spawn(async move {
                for number in 0..count / callers {
                    let written = input.write(command(caller + number), None).await;
                    written.expect("the inbox has room for every caller");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no caller panics");
    }
    count as f64 / begin.elapsed().as_secs_f64()
}

/// The same number of proposals on their way, without a reducer.
fn through_log(dir: &Path, callers: usize) -> f64 {
    let mut opened = LocalLog::open(dir, StoreOptions::default()).expect("the directory is new");
    opened.events.blocking_recv();
    let entry = Entry {
        time: ClusterTime(1),
        term: Term(1),
        request: None,
        command: command(1),
    };
    let bytes = Bytes::from(encode_entry(&entry, State::FEATURE_LEVEL).expect("the entry is small"));
    let propose = |number: usize| {
        let proposed = opened.log.propose(ProposalId(number as u64), vec![bytes.clone()]);
        proposed.expect("the queue has room for every caller");
    };
    let count = writes(callers);
    let begin = Instant::now();
    (0..callers).for_each(propose);
    for done in 1..=count {
        let event = opened.events.blocking_recv();
        assert!(matches!(event, Some(LogEvent::Committed { .. })));
        if done + callers <= count {
            propose(done);
        }
    }
    count as f64 / begin.elapsed().as_secs_f64()
}

fn end(tokio: &Runtime, cancel: &CancellationToken, handle: RuntimeHandle) {
    cancel.cancel();
    tokio.block_on(drain(handle.into_join_handles(), &SystemClock::new(), 10_000));
}

fn on_disk(tokio: &Runtime, dir: &Path, callers: usize) -> f64 {
    let opened = open_local(dir, StoreOptions::default()).expect("the directory is new");
    let cancel = CancellationToken::new();
    let clock = Arc::new(SystemClock::new());
    let handle = {
        let _inside = tokio.enter();
        spawn_with(cancel.clone(), opened.state, clock, opened.options)
    };
    let rate = tokio.block_on(through_runtime(handle.input(), callers));
    end(tokio, &cancel, handle);
    rate
}

fn in_memory(tokio: &Runtime, callers: usize) -> f64 {
    let cancel = CancellationToken::new();
    let handle = {
        let _inside = tokio.enter();
        spawn(cancel.clone(), State::default(), Arc::new(SystemClock::new()))
    };
    let rate = tokio.block_on(through_runtime(handle.input(), callers));
    end(tokio, &cancel, handle);
    rate
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let tokio = Runtime::new().expect("threads can be had");
    println!("callers  log/s  runtime/s  runtime of log  in memory/s");
    for callers in CALLERS {
        let (mut log, mut disk, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let dir = TempDir::new().expect("a directory can be made");
            log.push(through_log(&dir.path().join("bare"), callers));
            disk.push(on_disk(&tokio, &dir.path().join("runtime"), callers));
            memory.push(in_memory(&tokio, callers));
        }
        let (log, disk, memory) = (median(log), median(disk), median(memory));
        let ratio = disk / log;
        println!("{callers:>7}  {log:>5.0}  {disk:>9.0}  {ratio:>14.2}  {memory:>11.0}");
    }
}

//! The proxy's process: `dhow proxy --dir DIR`. It comes up with what the proxy before it serves, or with the
//! table on disk, and serves until it is told to end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{interval, timeout};

use super::balancer::{Balancer, ListenerKey};
use super::control::Control;
use super::limits::{Limits, raise_descriptors};
use super::protocol::{self, HandOver, Reply, Request};
use super::table::Table;
use super::{descriptors, note, socket, store};

/// Tens of thousands of requests a second need no more, and each costs memory.
const WORKER_THREADS: usize = 2;
/// With fewer cores one thread does more: a request that changes threads costs a third more time.
const CORES_FOR_THREADS: usize = 4;
/// Only files and `/proc` are read there.
const BLOCKING_THREADS_MAX: usize = 4;
/// How often idle connections are let go and unbound listeners are tried again.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// What a proxy that was asked to stop may still finish.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// What a proxy that has handed over may still finish: long transfers and tunnels.
const HANDED_OVER_TIMEOUT: Duration = Duration::from_secs(600);
/// The old proxy answers at once, or it hangs.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// What stands on the command line: `--dir DIR [--generation N] [--build TEXT]`.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    dir: PathBuf,
    /// Counts the proxies of a folder: a higher one takes over from a lower one.
    generation: u32,
    build: String,
}

/// Runs a proxy to its end: the binary's `proxy` command, called with what follows that word. Gives the exit
/// code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let ran = Arguments::parse(args).and_then(|arguments| {
        let runtime = runtime()?;
        let ran = runtime.block_on(run(arguments));
        // What is still open at the deadline is cut.
        runtime.shutdown_background();
        ran
    });
    match ran {
        Ok(()) => 0,
        Err(error) => {
            note(&format!("the proxy cannot run: {error}"));
            1
        }
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    use tokio::runtime::Builder;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut builder = if cores < CORES_FOR_THREADS {
        Builder::new_current_thread()
    } else {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(WORKER_THREADS);
        builder
    };
    builder
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("dhow-proxy")
        .enable_all()
        .build()
}

impl Arguments {
    fn parse(args: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        let usage = || io::Error::other("usage: proxy --dir DIR [--generation N] [--build TEXT]");
        let (mut dir, mut generation, mut build) = (None, 0, String::new());
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(usage)?;
            match name.to_str() {
                Some("--dir") => dir = Some(std::path::absolute(PathBuf::from(value))?),
                Some("--generation") => {
                    let number = value.to_str().and_then(|text| text.parse().ok());
                    generation = number.ok_or_else(usage)?;
                }
                Some("--build") => build = value.into_string().map_err(|_| usage())?,
                Some(_) | None => return Err(usage()),
            }
        }
        let dir = dir.ok_or_else(usage)?;
        Ok(Self {
            dir,
            generation,
            build,
        })
    }
}

async fn run(arguments: Arguments) -> io::Result<()> {
    let Arguments {
        dir,
        generation,
        build,
    } = arguments;
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let name = protocol::socket_name(generation);
    if socket::connect(&dir, &name).await.is_ok() {
        return Err(io::Error::other(format!(
            "a proxy serves {} already: stop it first",
            dir.join(&name).display()
        )));
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A terminal that goes away is no reason to end.
    let _hangup = signal(SignalKind::hangup())?;
    let balancer = Arc::new(Balancer::new(Limits::new(raise_descriptors())));
    begin(&dir, generation, &balancer).await?;
    let control = Arc::new(Control {
        dir: dir.clone(),
        build,
        balancer: balancer.clone(),
        ended: AtomicBool::new(false),
        handed_over: Notify::new(),
    });
    let listener = socket::listen(&dir, &name)?;
    let serving = tokio::spawn(control.clone().serve(listener));
    let mut sweep = interval(SWEEP_INTERVAL);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = control.handed_over.notified() => {
                // Handed over. Whoever asks it to stop now shortens what it may still take.
                tokio::select! {
                    _ = timeout(HANDED_OVER_TIMEOUT, balancer.finished()) => {}
                    _ = terminate.recv() => {}
                }
                break;
            }
            _ = sweep.tick() => {
                balancer.sweep();
                balancer.retry_unbound().await;
            }
        }
    }
    control.end().await;
    if timeout(STOP_TIMEOUT, balancer.finished()).await.is_err() {
        note("what was still open after the time to finish is cut");
    }
    serving.abort();
    socket::remove(&dir, &name)
}

/// Takes over from the proxy that serves now, or else reads the table from disk.
async fn begin(dir: &Path, generation: u32, balancer: &Balancer) -> io::Result<()> {
    for (older, name) in predecessors(dir, generation)? {
        let Ok(stream) = socket::connect(dir, &name).await else {
            // Left by one that was killed.
            socket::remove(dir, &name)?;
            continue;
        };
        let taken = timeout(HAND_OVER_TIMEOUT, take_over(stream, balancer)).await;
        let taken = taken.map_err(|_| io::Error::from(io::ErrorKind::TimedOut));
        match taken.flatten() {
            Ok(Taken::All) => return Ok(()),
            Ok(Taken::Nothing) => {}
            // It died over it: then there is nothing to take over, and its ports are free.
            Err(_) if socket::connect(dir, &name).await.is_err() => {}
            Err(error) => {
                let what = format!("taking over from proxy {older} failed: {error}");
                return Err(io::Error::other(what));
            }
        }
    }
    match store::load(dir) {
        Ok(Some(table)) => {
            let applied = balancer.apply(table, BTreeMap::new()).await;
            applied.map(drop).map_err(io::Error::other)
        }
        Ok(None) => Ok(()),
        Err(error) => {
            // The daemon sends another: better none until then than none at all.
            note(&format!("the saved table is not used: {error}"));
            Ok(())
        }
    }
}

/// The sockets of older proxies, the youngest first.
fn predecessors(dir: &Path, generation: u32) -> io::Result<Vec<(u32, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let Ok(name) = entry?.file_name().into_string() else {
            continue;
        };
        if let Some(older) = protocol::socket_generation(&name).filter(|other| *other < generation) {
            found.push((older, name));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

enum Taken {
    All,
    /// It had handed over to somebody else.
    Nothing,
}

async fn take_over(mut stream: UnixStream, balancer: &Balancer) -> io::Result<Taken> {
    protocol::send(&mut stream, Request::HandOver).await?;
    let HandOver { table, listeners } = match protocol::receive(&mut stream).await? {
        Reply::HandOver(hand_over) => hand_over,
        Reply::Refused { .. } => return Ok(Taken::Nothing),
        other => {
            return Err(io::Error::other(format!(
                "an answer to another question: {other:?}"
            )));
        }
    };
    let received = descriptors::receive(&stream, listeners.len()).await?;
    let inherited: BTreeMap<ListenerKey, OwnedFd> = listeners.into_iter().zip(received).collect();
    serve_inherited(table, inherited, balancer).await?;
    // From here on both accept; now the other stops.
    protocol::send(&mut stream, Request::TookOver).await?;
    if let Err(error) = protocol::receive::<Reply>(&mut stream).await {
        // This one serves, whatever has become of the other.
        note(&format!("the proxy before this one said no more: {error}"));
    }
    Ok(Taken::All)
}

async fn serve_inherited(
    table: Table,
    inherited: BTreeMap<ListenerKey, OwnedFd>,
    balancer: &Balancer,
) -> io::Result<()> {
    let applied = balancer.apply(table, inherited).await.map_err(io::Error::other)?;
    for (addr, bound) in applied.listeners {
        if let Err(why) = bound {
            note(&format!("{addr}: {why}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parse = |words: &[&str]| Arguments::parse(words.iter().map(OsString::from));
        let good = parse(&["--dir", "/d", "--generation", "3", "--build", "b"]).unwrap();
        let expected = Arguments {
            dir: "/d".into(),
            generation: 3,
            build: "b".into(),
        };
        assert_eq!(good, expected);
        assert_eq!(parse(&["--dir", "/d"]).unwrap().generation, 0);
        for bad in [
            &["--dir"][..],
            &[],
            &["--what", "x"],
            &["--dir", "/d", "--generation", "x"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}

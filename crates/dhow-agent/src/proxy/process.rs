//! The proxy's process: `dhow proxy --dir DIR`. It comes up with what the proxy before it serves, or with the
//! table on disk, and serves until it is told to end. What needs root it does first, before it has a second thread
//! and before it hears a stranger; then it gives root up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{interval, timeout};

use super::balancer::{Balancer, ListenerKey};
use super::control::Control;
use super::kept_sockets::{self, StoreConnection};
use super::limits::{Limits, raise_descriptors};
use super::predecessor::{self, Inherited};
use super::service_sockets::ServiceSockets;
use super::store::Store;
use super::{begin_notes, end_notes, note, privileges, protocol, socket};

/// Tens of thousands of requests a second need no more, and each costs memory.
const WORKER_THREADS: usize = 2;
/// With fewer cores one thread does more: a request that changes threads costs a third more time.
const CORES_FOR_THREADS: usize = 4;
/// Only files and `/proc` are read there.
const BLOCKING_THREADS_MAX: usize = 4;
/// How often idle connections are let go and unbound listeners are tried again.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How often it is looked whether listeners are open for nothing.
const UNREADY_INTERVAL: Duration = Duration::from_secs(1);
/// What a proxy that was asked to stop may still finish.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// What a proxy that has handed over may still finish: long transfers and tunnels.
const HANDED_OVER_TIMEOUT: Duration = Duration::from_secs(600);

/// The name under which the host shows a proxy.
pub const PROCESS_NAME: &str = "dhow-proxy";

/// What stands on the command line: `--dir DIR [--generation N] [--build TEXT] [--namespace FILE]`.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    dir: PathBuf,
    /// Counts the proxies of a folder: a higher one takes over from a lower one.
    generation: u32,
    build: String,
    /// Where the network of service addresses is pinned.
    namespace: Option<PathBuf>,
}

/// Runs a proxy to its end: the binary's `proxy` command, called with what follows that word. Gives the exit
/// code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> i32 {
    // For whoever looks at who has a port; a host that does not take it shows another name.
    let _ = std::fs::write("/proc/self/comm", PROCESS_NAME);
    let ran = Arguments::parse(args).and_then(|arguments| {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let prepared = Prepared::make(&arguments)?;
        // Its privileges are gone by now, so that no thread can have them.
        begin_notes();
        let runtime = runtime(cores)?;
        let ran = runtime.block_on(run(arguments, prepared));
        // What is still open at the deadline is cut.
        runtime.shutdown_background();
        ran
    });
    let code = match ran {
        Ok(()) => 0,
        Err(error) => {
            note(&format!("the proxy cannot run: {error}"));
            1
        }
    };
    end_notes();
    code
}

fn runtime(cores: usize) -> io::Result<tokio::runtime::Runtime> {
    use tokio::runtime::Builder;
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
        let usage =
            || io::Error::other("usage: proxy --dir DIR [--generation N] [--build TEXT] [--namespace FILE]");
        let (mut dir, mut generation, mut build, mut namespace) = (None, 0, String::new(), None);
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(usage)?;
            match name.to_str() {
                Some("--dir") => dir = Some(std::path::absolute(PathBuf::from(value))?),
                Some("--generation") => {
                    let number = value.to_str().and_then(|text| text.parse().ok());
                    generation = number.ok_or_else(usage)?;
                }
                Some("--namespace") => namespace = Some(PathBuf::from(value)),
                Some("--build") => build = value.into_string().map_err(|_| usage())?,
                Some(_) | None => return Err(usage()),
            }
        }
        let dir = dir.ok_or_else(usage)?;
        Ok(Self {
            dir,
            generation,
            build,
            namespace,
        })
    }
}

/// What a proxy has of the time when it was privileged.
struct Prepared {
    store: Store,
    control: StdListener,
    inherited: Option<Inherited>,
    descriptors_max: u64,
    /// Whose word counts: that of the user who started it.
    owner: u32,
    services: Option<ServiceSockets>,
    kept: Option<Kept>,
}

/// The socket store, and what it held when this proxy came up.
struct Kept {
    store: OwnedFd,
    sockets: Vec<(String, OwnedFd)>,
}

impl Kept {
    /// `None` where there is no store: then what a killed proxy listened on is bound anew.
    async fn find(dir: &Path, takes: bool) -> Option<Self> {
        let found = async {
            let store = kept_sockets::connect(dir)?;
            let sockets = match takes {
                true => StoreConnection::new(store.try_clone()?)?.take().await?,
                false => Vec::new(),
            };
            Ok::<_, io::Error>(Self { store, sockets })
        };
        match found.await {
            Ok(kept) => Some(kept),
            Err(error) => {
                note(&format!(
                    "listeners are not held while a proxy is restarted: {error}"
                ));
                None
            }
        }
    }
}

impl Prepared {
    fn make(arguments: &Arguments) -> io::Result<Self> {
        let Arguments { dir, generation, .. } = arguments;
        socket::make_dir(dir)?;
        let name = protocol::socket_name(*generation);
        let descriptors_max = raise_descriptors();
        // A runtime of this thread alone: what follows must hold for all threads there will be.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (inherited, kept) = runtime.block_on(async {
            if socket::connect(dir, &name).await.is_ok() {
                return Err(io::Error::other(format!(
                    "a proxy serves {} already: stop it first",
                    dir.join(&name).display()
                )));
            }
            let inherited = predecessor::ask(dir, *generation).await?;
            // What another proxy still serves it hands over itself.
            let kept = Kept::find(dir, inherited.is_none()).await;
            Ok((inherited, kept))
        })?;
        drop(runtime);
        let store = Store::open(dir)?;
        let control = socket::listen(dir, &name)?;
        let owner = nix::unistd::geteuid().as_raw();
        let services = arguments.namespace.as_deref().and_then(enter);
        let prepared = Self {
            store,
            control,
            inherited,
            descriptors_max,
            owner,
            services,
            kept,
        };
        privileges::give_up(dir, &prepared.store)?;
        if let Some(services) = &prepared.services {
            services.give_up()?;
        }
        Ok(prepared)
    }
}

/// Without the network of service addresses the host's listeners are served all the same.
fn enter(namespace: &Path) -> Option<ServiceSockets> {
    match ServiceSockets::enter(namespace) {
        Ok(services) => Some(services),
        Err(error) => {
            note(&format!(
                "service addresses are not served: {} cannot be entered: {error}",
                namespace.display()
            ));
            None
        }
    }
}

async fn run(arguments: Arguments, prepared: Prepared) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A terminal that goes away is no reason to end.
    let _hangup = signal(SignalKind::hangup())?;
    let limits = Limits::new(prepared.descriptors_max);
    let balancer = Arc::new(Balancer::new(limits, prepared.owner, prepared.services));
    identify(&prepared.store, &balancer);
    certify(&prepared.store, &balancer);
    begin(prepared.inherited, prepared.kept, &prepared.store, &balancer).await?;
    let control = Arc::new(Control {
        store: Arc::new(prepared.store),
        build: arguments.build,
        owner: prepared.owner,
        balancer: balancer.clone(),
        ended: AtomicBool::new(false),
        handed_over: Notify::new(),
    });
    let listener = UnixListener::from_std(prepared.control)?;
    let serving = tokio::spawn(control.clone().serve(listener));
    let mut sweep = interval(SWEEP_INTERVAL);
    let mut unready = interval(UNREADY_INTERVAL);
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
            _ = unready.tick() => balancer.quieten_unready().await,
        }
    }
    control.end().await;
    if timeout(STOP_TIMEOUT, balancer.finished()).await.is_err() {
        note("what was still open after the time to finish is cut");
    }
    serving.abort();
    // One that is not root any more leaves its socket to whoever comes next.
    let _ = socket::remove(&arguments.dir, &protocol::socket_name(arguments.generation));
    Ok(())
}

/// Shows to other nodes what the daemon gave last. Without it they are not reached until the daemon gives it again.
fn identify(store: &Store, balancer: &Balancer) {
    let identified = match store.load_identity() {
        Ok(Some(identity)) => balancer.identify(&identity).map_err(io::Error::other),
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = identified {
        note(&format!("what was shown to other nodes is not used: {error}"));
    }
}

/// Shows to clients what the daemon gave last.
fn certify(store: &Store, balancer: &Balancer) {
    match store.load_certificates() {
        Ok(kept) => {
            for (name, why) in balancer.certify_again(&kept) {
                note(&format!("the certificate in secret `{name}` is not shown: {why}"));
            }
        }
        Err(error) => note(&format!("the certificates of endpoints are not used: {error}")),
    }
}

/// Serves what the proxy before this one did, or else the table on disk. What a proxy that was killed had in its queues
/// is served with it.
async fn begin(
    inherited: Option<Inherited>,
    kept: Option<Kept>,
    store: &Store,
    balancer: &Balancer,
) -> io::Result<()> {
    let (connection, sockets) = match kept {
        Some(kept) => (Some(StoreConnection::new(kept.store)?), kept.sockets),
        None => (None, Vec::new()),
    };
    let names = sockets.iter().map(|(name, _)| name.clone()).collect();
    match inherited {
        Some(inherited) => inherited.serve(balancer).await?,
        None => {
            let sockets = kept_sockets::usable(sockets, balancer.namespace());
            serve_saved(sockets, store, balancer).await?;
        }
    }
    if let Some(connection) = connection {
        balancer.keep_in(connection, names).await;
    }
    Ok(())
}

async fn serve_saved(
    sockets: BTreeMap<ListenerKey, OwnedFd>,
    store: &Store,
    balancer: &Balancer,
) -> io::Result<()> {
    match store.load() {
        Ok(Some(table)) => {
            let applied = balancer.apply(table, sockets).await;
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
            namespace: None,
        };
        assert_eq!(good, expected);
        assert_eq!(parse(&["--dir", "/d"]).unwrap().generation, 0);
        let inside = parse(&["--dir", "/d", "--namespace", "/n"]).unwrap();
        assert_eq!(inside.namespace, Some("/n".into()));
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

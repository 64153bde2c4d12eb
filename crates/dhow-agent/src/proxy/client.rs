//! The daemon's handle on its proxy: finds it, starts it when there is none, replaces one of another build,
//! and brings it back when it dies. Nothing of it is kept in memory alone: a daemon that was killed and one
//! that was started anew see the same.

mod restarts;
mod socket_store;
mod supervisor;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::usage::{EndpointFigures, RelayFigures};
use dhow_driver::logs::{LogDir, LogLimits};
use dhow_driver::shim::{OwnCommand, ShimClient, build_of};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::ProxyError;
use super::mesh::MeshIdentity;
use super::protocol::{self, Applied, Reply, Request, Status};
use super::table::{Table, WantedService};
use super::tls::{GivenCertificates, RefusedCertificate};
use super::{bind, privileges, socket};
use supervisor::Supervisor;

/// From a request to its answer, where nobody asked it to wait. Applying a large table takes milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// A proxy that has just ended is started again and asked once more.
const ATTEMPTS_MAX: u32 = 3;

/// What the daemon opens its client of the proxy with.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// The proxy's own folder: its sockets, table and log.
    pub dir: PathBuf,
    pub shim: Arc<ShimClient>,
    pub command: OwnCommand,
    /// A running proxy of another build hands over to one of this.
    pub build: String,
    pub log: LogLimits,
    /// Where the network of service addresses is pinned; without one there are listeners of the host alone. A running
    /// proxy that is in another hands over to one in this.
    pub namespace: Option<PathBuf>,
}

impl ProxyConfig {
    /// The user that the proxy is, where this process is root.
    pub fn user(&self) -> u32 {
        privileges::user_here(&self.dir)
    }

    /// This binary's own proxy.
    pub fn new(dir: PathBuf, shim: Arc<ShimClient>) -> Result<Self, ProxyError> {
        let command = OwnCommand::of_this_binary("proxy");
        let failed = |doing| {
            let path = command.program.clone();
            move |source| ProxyError::File { doing, path, source }
        };
        let dir = std::path::absolute(dir).map_err(failed("finding the folder beside"))?;
        let build = build_of(&command.program).map_err(failed("looking at"))?;
        Ok(Self {
            dir,
            shim,
            command,
            build,
            log: LogLimits::default(),
            namespace: None,
        })
    }
}

/// A cheap handle. The proxy outlives it; only [`ProxyClient::stop`] ends the proxy.
pub struct ProxyClient {
    supervisor: Arc<Supervisor>,
    watcher: JoinHandle<()>,
}

impl Drop for ProxyClient {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// What a proxy wants to be told of, and whether requests wait there.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Counts the changes of it.
    pub number: u64,
    pub services: Vec<WantedService>,
    /// Requests wait for a first replica.
    pub is_waiting: bool,
}

impl ProxyClient {
    /// Finds the proxy that runs, or starts one; one of another build hands over to a new one first.
    pub async fn open(config: ProxyConfig) -> Result<Self, ProxyError> {
        let supervisor = Arc::new(Supervisor::open(config)?);
        supervisor.ensure().await?;
        let watcher = tokio::spawn(supervisor.clone().watch());
        Ok(Self { supervisor, watcher })
    }

    /// Has a table served. A listener that cannot be bound is no error: its reason is in the answer.
    pub async fn apply(&self, table: Table) -> Result<Applied, ProxyError> {
        match self.call(Request::Apply(Box::new(table)), ANSWER_TIMEOUT).await? {
            Reply::Applied(applied) => Ok(name_owners(applied).await),
            other => Err(unexpected(other)),
        }
    }

    /// Has the proxy show this to those of other nodes. Older ones that still finish something need nothing new.
    pub async fn identify(&self, identity: MeshIdentity) -> Result<(), ProxyError> {
        match self.call(Request::Identify(identity), ANSWER_TIMEOUT).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Has the proxy show these to clients; gives those that it cannot show. Older ones that still finish something greet
    /// nobody any more.
    pub async fn certify(&self, given: GivenCertificates) -> Result<Vec<RefusedCertificate>, ProxyError> {
        match self.call(Request::Certify(given), ANSWER_TIMEOUT).await? {
            Reply::Certified { refused } => Ok(refused),
            other => Err(unexpected(other)),
        }
    }

    /// What is open where, older proxies that still finish something included.
    pub async fn status(&self) -> Result<Status, ProxyError> {
        let mut status = match self.call(Request::Status, ANSWER_TIMEOUT).await? {
            Reply::Status(status) => status,
            other => return Err(unexpected(other)),
        };
        for reply in self.ask_older(Request::Status, ANSWER_TIMEOUT).await {
            if let Reply::Status(older) = reply {
                status.add(older);
            }
        }
        Ok(status)
    }

    /// What has passed each endpoint since the proxy was started; what older proxies still have open is open too.
    pub async fn figures(&self) -> Result<Vec<EndpointFigures>, ProxyError> {
        let mut figures = match self.call(Request::Figures, ANSWER_TIMEOUT).await? {
            Reply::Figures(figures) => figures,
            other => return Err(unexpected(other)),
        };
        for reply in self.ask_older(Request::Figures, ANSWER_TIMEOUT).await {
            let Reply::Figures(older) = reply else { continue };
            for older in older {
                let same = figures.iter_mut().find(|figures| figures.id == older.id);
                if let Some(same) = same {
                    same.open = same.open.saturating_add(older.open);
                }
            }
        }
        Ok(figures)
    }

    /// What was passed on for others since the proxy was started.
    pub async fn relayed(&self) -> Result<RelayFigures, ProxyError> {
        match self.call(Request::Relayed, ANSWER_TIMEOUT).await? {
            Reply::Relayed(relayed) => Ok(relayed),
            other => Err(unexpected(other)),
        }
    }

    /// Which services of other deployments are wanted, with a count: once that is another one, or after the wait. It is told
    /// whether anybody who decides hears this node.
    pub async fn wants(&self, seen: u64, wait: Duration, is_heard: bool) -> Result<Wanted, ProxyError> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let limit = wait.saturating_add(ANSWER_TIMEOUT);
        let request = Request::Wants {
            seen,
            wait_ms,
            unheard: !is_heard,
        };
        match self.call(request, limit).await? {
            Reply::Wants {
                number,
                services,
                waiting,
            } => Ok(Wanted {
                number,
                services,
                is_waiting: waiting,
            }),
            other => Err(unexpected(other)),
        }
    }

    /// Waits until these backends, which a table has marked as draining or no longer names, have nothing in
    /// flight, but no longer than the timeout; gives those that are idle.
    pub async fn wait_drained(&self, ids: Vec<String>, wait: Duration) -> Result<Vec<String>, ProxyError> {
        let timeout_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let request = Request::WaitDrained { ids, timeout_ms };
        let limit = wait.saturating_add(ANSWER_TIMEOUT);
        let (reply, older) = tokio::join!(self.call(request.clone(), limit), self.ask_older(request, limit));
        let mut idle = match reply? {
            Reply::Drained { ids } => ids,
            other => return Err(unexpected(other)),
        };
        for reply in older {
            if let Reply::Drained { ids } = reply {
                idle.retain(|id| ids.contains(id));
            }
        }
        Ok(idle)
    }

    /// Ends the proxy: it finishes what is in flight, for `grace` at most. Nothing is served afterwards, and
    /// the saved table is forgotten.
    pub async fn stop(&self, grace: Duration) -> Result<(), ProxyError> {
        self.supervisor.stop(grace).await
    }

    /// Where the running proxy's output is.
    pub async fn log(&self) -> Result<LogDir, ProxyError> {
        let generation = self.supervisor.ensure().await?;
        Ok(self.supervisor.log_dir(generation))
    }

    /// The running proxy's process.
    pub async fn pid(&self) -> Result<u32, ProxyError> {
        match self.call(Request::Hello, ANSWER_TIMEOUT).await? {
            Reply::Hello(hello) => Ok(hello.pid),
            other => Err(unexpected(other)),
        }
    }

    async fn call(&self, request: Request, limit: Duration) -> Result<Reply, ProxyError> {
        let mut attempt = 1;
        loop {
            let generation = self.supervisor.ensure().await?;
            match ask(&self.supervisor, generation, &request, limit).await {
                Ok(Reply::Refused { why }) => return Err(ProxyError::Refused { why }),
                Ok(reply) => return Ok(reply),
                Err(source) if attempt == ATTEMPTS_MAX => {
                    return Err(self.supervisor.silent(generation, source));
                }
                // Every request may be repeated: they say what shall be, not what shall change.
                Err(_) => self.supervisor.suspect(generation).await,
            }
            attempt += 1;
        }
    }

    /// Asks the proxies that have handed over and still run. One that ends meanwhile has nothing to say.
    async fn ask_older(&self, request: Request, limit: Duration) -> Vec<Reply> {
        let older = self.supervisor.older().await;
        let asked = older
            .iter()
            .map(|generation| ask(&self.supervisor, *generation, &request, limit));
        join_all(asked).await.into_iter().flatten().collect()
    }
}

async fn ask(
    supervisor: &Supervisor,
    generation: u32,
    request: &Request,
    limit: Duration,
) -> io::Result<Reply> {
    let asked = async {
        let name = protocol::socket_name(generation);
        let mut stream = socket::connect(supervisor.dir(), &name).await?;
        protocol::send(&mut stream, request).await?;
        protocol::receive(&mut stream).await
    };
    timeout(limit, asked)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
        .flatten()
}

/// Says who has the addresses that are taken: the proxy itself may not look.
pub(super) async fn name_owners(mut applied: Applied) -> Applied {
    let taken = std::mem::take(&mut applied.taken);
    if taken.is_empty() {
        return applied;
    }
    let asked = tokio::task::spawn_blocking(move || {
        let named = taken.into_iter();
        named
            .map(|(transport, addr)| (addr, bind::taken_by(addr, transport)))
            .collect::<Vec<_>>()
    });
    // Without an answer the proxy's own words stand.
    for (addr, why) in asked.await.unwrap_or_default() {
        let unbound = applied.listeners.iter_mut().filter(|(found, _)| *found == addr);
        for (_, bound) in unbound.filter(|(_, bound)| bound.is_err()) {
            *bound = Err(why.clone());
        }
    }
    applied
}

fn unexpected(reply: Reply) -> ProxyError {
    let why = format!("an answer to another question: {reply:?}");
    ProxyError::Refused { why }
}

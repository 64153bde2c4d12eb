//! Keeps one proxy running. Each is a generation, with a folder under its shim like a replica's and a socket
//! of its own: while one hands over to the next, both run. The youngest that has not ended serves.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dhow_core::ids::{DeploymentName, Generation, NameError, ReplicaName, RoleName, ServiceName};
use dhow_driver::driver::{Cause, ReplicaStatus, StopRequest, StopSignal};
use dhow_driver::logs::{LogDir, LogFilter};
use dhow_driver::shim::protocol::{Program, ShimSpec, Workload};
use dhow_driver::shim::{ReplicaDirs, SignalTarget};
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::ProxyConfig;
use super::restarts::Restarts;
use super::socket_store::SocketStore;
use crate::proxy::error::ProxyError;
use crate::proxy::protocol::{self, Hello, Reply, Request};
use crate::proxy::service_sockets::NamespaceId;
use crate::proxy::{descriptors, socket, store};

/// From the start of a proxy to its first answer: it may take over from another one, which has 10 s for it.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A proxy that runs and does not answer within this hangs.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// What an error quotes of the log of a proxy that ended at once.
const SAID_LINES: usize = 5;
/// Between two attempts of the watcher where starting fails for other reasons than the proxy itself.
const WATCH_PAUSE: Duration = Duration::from_secs(1);

/// Starts and replaces the generations of a proxy, and knows which one serves. The client and its watch share one.
pub struct Supervisor {
    config: ProxyConfig,
    dirs: ReplicaDirs,
    template: ReplicaName,
    store: SocketStore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The generation that serves, as far as we know.
    current: Option<u32>,
    restarts: Restarts,
    stopped: bool,
}

impl Supervisor {
    pub fn open(config: ProxyConfig) -> Result<Self, ProxyError> {
        let template = template().map_err(|error| ProxyError::Refused {
            why: error.to_string(),
        })?;
        let dirs = ReplicaDirs::open(&config.dir.join("run")).map_err(ProxyError::Record)?;
        Ok(Self {
            store: SocketStore::new(config.dir.clone()),
            config,
            dirs,
            template,
            state: Mutex::default(),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.config.dir
    }

    pub fn log_dir(&self, generation: u32) -> LogDir {
        self.dirs.log_dir(&self.name(generation))
    }

    pub fn silent(&self, generation: u32, source: io::Error) -> ProxyError {
        let socket = self.dir().join(protocol::socket_name(generation));
        ProxyError::Silent { socket, source }
    }

    /// The generation that serves; starts one where none does.
    pub async fn ensure(&self) -> Result<u32, ProxyError> {
        let mut state = self.state.lock().await;
        if state.stopped {
            return Err(ProxyError::Stopped);
        }
        if let Some(current) = state.current {
            return Ok(current);
        }
        let found = self.find(&mut state).await?;
        state.current = Some(found);
        Ok(found)
    }

    /// A call to this generation failed: the next one looks anew.
    pub async fn suspect(&self, generation: u32) {
        let mut state = self.state.lock().await;
        if state.current == Some(generation) {
            state.current = None;
        }
    }

    /// Older proxies that still run.
    pub async fn older(&self) -> Vec<u32> {
        let current = self.state.lock().await.current;
        let running = self.running().unwrap_or_default();
        running
            .into_iter()
            .filter(|generation| Some(*generation) != current)
            .collect()
    }

    /// Brings the proxy back whenever it ends, until it is stopped.
    pub async fn watch(self: Arc<Self>) {
        loop {
            match self.ensure().await {
                Ok(generation) => {
                    let name = self.name(generation);
                    tokio::select! {
                        // Whatever comes of the waiting, the next look shows what runs.
                        waited = self.dirs.wait(&name) => {
                            if waited.is_err() {
                                sleep(WATCH_PAUSE).await;
                            }
                            self.suspect(generation).await;
                        }
                        () = self.unheld(generation) => {
                            if !self.has_held(generation).await {
                                sleep(WATCH_PAUSE).await;
                            }
                        }
                    }
                }
                Err(ProxyError::Stopped) => return,
                Err(ProxyError::CrashLoop { pause_ms, .. }) => sleep(Duration::from_millis(pause_ms)).await,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the proxy is not back yet"
                    );
                    sleep(WATCH_PAUSE).await;
                }
            }
        }
    }

    /// Returns when a proxy's listeners are not held, or not any more.
    async fn unheld(&self, generation: u32) {
        if self.hello(generation).await.is_ok_and(|hello| hello.is_held) {
            self.store.ended().await;
        }
    }

    /// Has a proxy's listeners held by a socket store, which is started where there is none. False where that is not so:
    /// the proxy serves all the same.
    async fn has_held(&self, generation: u32) -> bool {
        let given = async {
            let store = self.store.find(&self.config.shim).await?;
            let name = protocol::socket_name(generation);
            let asked = timeout(HELLO_TIMEOUT, async {
                let mut stream = socket::connect(self.dir(), &name).await?;
                protocol::send(&mut stream, Request::KeepSockets).await?;
                descriptors::send(&stream, &[store.as_fd()]).await?;
                protocol::receive::<Reply>(&mut stream).await
            });
            let asked = asked.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut));
            match asked.flatten() {
                Ok(Reply::Refused { why }) => Err(ProxyError::Refused { why }),
                Ok(_) => Ok(()),
                Err(source) => Err(self.silent(generation, source)),
            }
        };
        match given.await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the proxy's listeners are not held: connections would be refused while it is restarted"
                );
                false
            }
        }
    }

    pub async fn stop(&self, grace: Duration) -> Result<(), ProxyError> {
        let mut state = self.state.lock().await;
        state.stopped = true;
        state.current = None;
        let generations = self.generations()?;
        let ended = join_all(generations.iter().map(|generation| self.end(*generation, grace))).await;
        ended.into_iter().collect::<Result<(), ProxyError>>()?;
        self.store.end().await?;
        let dir = self.dir();
        let removed = generations
            .iter()
            .try_for_each(|generation| socket::remove(dir, &protocol::socket_name(*generation)))
            .and_then(|()| store::remove(dir));
        removed.map_err(|source| ProxyError::File {
            doing: "clearing",
            path: dir.to_owned(),
            source,
        })
    }

    async fn end(&self, generation: u32, grace: Duration) -> Result<(), ProxyError> {
        let name = self.name(generation);
        let signal = StopSignal::TERM;
        let how = StopRequest { signal, grace };
        let stopped = self.dirs.stop(&name, how, SignalTarget::Main, None).await;
        stopped.map_err(ProxyError::Record)?;
        self.dirs.remove(&name, None).await.map_err(ProxyError::Record)
    }

    fn name(&self, generation: u32) -> ReplicaName {
        ReplicaName {
            generation: Generation(generation),
            ..self.template.clone()
        }
    }

    /// All that have a folder, the oldest first.
    fn generations(&self) -> Result<Vec<u32>, ProxyError> {
        let names = self.dirs.names().map_err(ProxyError::Record)?;
        let ours = names
            .into_iter()
            .filter(|name| name.service == self.template.service);
        let mut found: Vec<u32> = ours.map(|name| name.generation.0).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn running(&self) -> Result<Vec<u32>, ProxyError> {
        let mut running = Vec::new();
        for generation in self.generations()? {
            match self.dirs.status(&self.name(generation)) {
                Ok(ReplicaStatus::Running(_) | ReplicaStatus::Starting) => running.push(generation),
                Ok(ReplicaStatus::Ended(_)) | Err(Cause::NoSuchReplica) => {}
                Err(cause) => return Err(ProxyError::Record(cause)),
            }
        }
        Ok(running)
    }

    /// Looks at what runs and makes it what should run.
    async fn find(&self, state: &mut State) -> Result<u32, ProxyError> {
        let newest = self.generations()?.last().copied();
        let Some(running) = self.running()?.last().copied() else {
            state.restarts.ended(Instant::now());
            return self.start(state, newest.unwrap_or(1)).await;
        };
        let next = newest.unwrap_or(running).saturating_add(1);
        match self.wait_ready(running).await {
            Ok(hello) if hello.ended => self.start(state, next).await,
            Ok(hello) if hello.build == self.config.build && self.is_in_place(&hello) => {
                state.restarts.started(Instant::now());
                self.remove_ended(running).await?;
                if !hello.is_held {
                    self.has_held(running).await;
                }
                Ok(running)
            }
            Ok(_) => match self.start(state, next).await {
                Ok(started) => Ok(started),
                Err(error) => self.stay_with(running, error).await,
            },
            Err(ProxyError::EndedAtOnce { .. }) => {
                state.restarts.ended(Instant::now());
                self.start(state, running).await
            }
            Err(_) => {
                // It runs and does not answer. Nothing it holds can be handed over.
                self.kill(running).await?;
                state.restarts.ended(Instant::now());
                self.start(state, running).await
            }
        }
    }

    /// Whether a proxy listens in the network that service addresses are in now.
    fn is_in_place(&self, hello: &Hello) -> bool {
        match &self.config.namespace {
            // One that cannot be looked at cannot be entered either.
            Some(pin) => NamespaceId::of(pin).map_or(true, |wanted| hello.namespace == Some(wanted)),
            None => true,
        }
    }

    /// A new proxy could not take over: the old one serves on, if it still does.
    async fn stay_with(&self, running: u32, error: ProxyError) -> Result<u32, ProxyError> {
        match self.hello(running).await {
            Ok(hello) if !hello.ended => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the old proxy stays");
                Ok(running)
            }
            Ok(_) | Err(_) => Err(error),
        }
    }

    async fn kill(&self, generation: u32) -> Result<(), ProxyError> {
        let name = self.name(generation);
        let killed = self
            .dirs
            .stop(&name, StopRequest::kill(), SignalTarget::Main, None)
            .await;
        killed.map(drop).map_err(ProxyError::Record)
    }

    /// Folders of older proxies that have ended.
    async fn remove_ended(&self, current: u32) -> Result<(), ProxyError> {
        let running = self.running()?;
        for generation in self.generations()? {
            if generation != current && !running.contains(&generation) {
                let removed = self.dirs.remove(&self.name(generation), None).await;
                removed.map_err(ProxyError::Record)?;
                // A proxy that is not root any more cannot remove its own.
                let _ = socket::remove(self.dir(), &protocol::socket_name(generation));
            }
        }
        Ok(())
    }

    async fn start(&self, state: &mut State, generation: u32) -> Result<u32, ProxyError> {
        let name = self.name(generation);
        let pause = state.restarts.pause(Instant::now());
        if !pause.is_zero() {
            return Err(ProxyError::CrashLoop {
                times: state.restarts.ends(),
                pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX).max(1),
                log: self.dirs.dir(&name),
            });
        }
        let (dirs, locked) = (self.dirs.clone(), name.clone());
        let locking = tokio::task::spawn_blocking(move || dirs.lock_for_start(&locked)).await;
        let lock = locking
            .map_err(Cause::Task)
            .flatten()
            .map_err(ProxyError::Record)?;
        let spec = ShimSpec {
            dir: lock.dir.clone(),
            log: self.config.log,
            workload: Workload::Program(self.program(generation)),
            group: None,
            after: Vec::new(),
        };
        if let Err(error) = self.store.find(&self.config.shim).await {
            // It binds its listeners anew, and they are held once there is a store.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "there is no socket store"
            );
        }
        state.restarts.started(Instant::now());
        let started = self.config.shim.supervise(spec, &lock).await;
        // From here on the shim alone holds it.
        drop(lock);
        started.map_err(ProxyError::Start)?;
        self.wait_ready(generation).await?;
        self.remove_ended(generation).await?;
        Ok(generation)
    }

    fn program(&self, generation: u32) -> Program {
        let command = &self.config.command;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut argv = vec![text(&command.program)];
        argv.extend(command.args.iter().cloned());
        let generation = generation.to_string();
        let dir = text(self.dir());
        let added = [
            "--dir",
            &dir,
            "--generation",
            &generation,
            "--build",
            &self.config.build,
        ];
        argv.extend(added.map(str::to_owned));
        if let Some(namespace) = &self.config.namespace {
            argv.extend(["--namespace".to_owned(), text(namespace)]);
        }
        Program {
            argv,
            ..Program::default()
        }
    }

    /// Waits until a proxy answers, for as long as it runs.
    async fn wait_ready(&self, generation: u32) -> Result<Hello, ProxyError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let error = match self.hello(generation).await {
                Ok(hello) => return Ok(hello),
                Err(error) => error,
            };
            match self.dirs.status(&self.name(generation)) {
                Ok(ReplicaStatus::Ended(exit)) => {
                    let (exit, said) = (exit.to_string(), self.said(generation));
                    return Err(ProxyError::EndedAtOnce { exit, said });
                }
                Ok(ReplicaStatus::Running(_) | ReplicaStatus::Starting) => {}
                Err(cause) => return Err(ProxyError::Record(cause)),
            }
            if Instant::now() >= deadline {
                return Err(self.silent(generation, error));
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    async fn hello(&self, generation: u32) -> io::Result<Hello> {
        match super::ask(self, generation, &Request::Hello, HELLO_TIMEOUT).await? {
            Reply::Hello(hello) => Ok(hello),
            other => Err(io::Error::other(format!(
                "an answer to another question: {other:?}"
            ))),
        }
    }

    /// The last lines that a proxy wrote.
    fn said(&self, generation: u32) -> String {
        let log = self.log_dir(generation);
        let page = log
            .locate_tail(SAID_LINES)
            .and_then(|from| log.page(from, &LogFilter::default()));
        let lines = page.map(|page| page.lines).unwrap_or_default();
        let texts: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        texts.join("; ")
    }
}

/// The name under which proxies have their folders; each gets its own generation.
fn template() -> Result<ReplicaName, NameError> {
    Ok(ReplicaName {
        deployment: DeploymentName::new("dhow")?,
        service: ServiceName::new("proxy")?,
        role: RoleName::fallback(),
        index: 0,
        generation: Generation(0),
    })
}

//! The fake host and its driver.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::ids::ReplicaName;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::exec;
use super::replica::FakeReplica;
use super::script::Script;
use crate::driver::{
    Capabilities, Cause, Connection, Driver, DriverResult, Enforcement, ExecRequest, ExecSession, Exit,
    LimitSupport, LogSource, Pending, Preparation, Prepared, Progress, ProgressSink, ReplicaStart,
    ReplicaStatus, Running, Stage, StopRequest, StopSignal, Usage,
};
use crate::logs::{LogLine, MemoryLog, Stream};
use crate::shim::ShimError;

/// A host that runs nothing.
#[derive(Clone, Debug, Default)]
pub struct FakeHost {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    replicas: BTreeMap<ReplicaName, FakeReplica>,
    /// Logs go on over restarts of a replica.
    logs: BTreeMap<ReplicaName, MemoryLog>,
    pids: u32,
    starts: u64,
    prepares: u64,
}

impl FakeHost {
    /// A driver on this host; any number of them see the same replicas.
    pub fn driver(&self) -> FakeDriver {
        FakeDriver { host: self.clone() }
    }

    /// How many starts have succeeded so far.
    pub fn starts(&self) -> u64 {
        self.lock().starts
    }

    /// How often something was prepared so far.
    pub fn prepares(&self) -> u64 {
        self.lock().prepares
    }

    /// Ends a replica now, as a crash would.
    pub fn end(&self, name: &ReplicaName, exit: Exit) {
        if let Some(replica) = self.lock().replicas.get(name) {
            replica.decide(Instant::now(), exit);
        }
    }

    /// Everything that is still there.
    pub fn names(&self) -> Vec<ReplicaName> {
        self.lock().replicas.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is one insertion or removal: a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver of a fake host, for tests of whatever uses a driver.
#[derive(Clone, Debug)]
pub struct FakeDriver {
    host: FakeHost,
}

impl FakeDriver {
    fn with<T>(&self, name: &ReplicaName, look: impl FnOnce(&FakeReplica) -> T) -> Result<T, Cause> {
        self.host
            .lock()
            .replicas
            .get(name)
            .map(look)
            .ok_or(Cause::NoSuchReplica)
    }

    fn with_running<T>(&self, name: &ReplicaName, look: impl FnOnce(&FakeReplica) -> T) -> Result<T, Cause> {
        self.with(name, |replica| match replica.status(Instant::now()) {
            ReplicaStatus::Running(_) => Ok(look(replica)),
            ReplicaStatus::Starting | ReplicaStatus::Ended(_) => Err(Cause::NotRunning),
        })?
    }

    async fn start_replica(&self, start: &ReplicaStart) -> Result<Running, Cause> {
        let env: BTreeMap<String, String> = start
            .env
            .iter()
            .chain(&start.secret_env)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let script = Script::read(&env)?;
        if !script.start_delay.is_zero() {
            sleep(script.start_delay).await;
        }
        if let Some(text) = script.start_error {
            return Err(Cause::Scripted(text));
        }
        let mut state = self.host.lock();
        let now = Instant::now();
        if let Some(ReplicaStatus::Running(running)) =
            state.replicas.get(&start.name).map(|old| old.status(now))
        {
            return Err(Cause::AlreadyRuns { pid: running.pid });
        }
        state.pids += 1;
        state.starts += 1;
        let log = state.logs.entry(start.name.clone()).or_default().clone();
        for (stream, lines) in [(Stream::Stdout, &script.stdout), (Stream::Stderr, &script.stderr)] {
            for text in lines {
                log.push(LogLine {
                    at_us: 0,
                    stream,
                    text: text.clone(),
                    partial: false,
                });
            }
        }
        let replica = FakeReplica {
            pid: state.pids,
            started: now,
            script,
            env,
            log,
            end: watch::Sender::new(None),
        };
        let (running, is_silent) = (replica.running(), replica.script.start_silent);
        state.replicas.insert(start.name.clone(), replica);
        match is_silent {
            true => Err(Cause::Shim(ShimError::Silent { timeout_ms: 60_000 })),
            false => Ok(running),
        }
    }

    async fn wait_for(&self, name: &ReplicaName) -> Result<Exit, Cause> {
        loop {
            // Looked at and subscribed to in one step, so that no decision falls in between.
            let (end, mut decided) =
                self.with(name, |replica| (replica.next_end(), replica.end.subscribe()))?;
            let changed = async {
                // The sender lives in the replica: gone means removed, which the next look sees.
                let _ = decided.changed().await;
            };
            match end {
                Some((at, exit)) if at <= Instant::now() => return Ok(exit),
                Some((at, _)) => {
                    tokio::select! {
                        () = sleep_until(at) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    async fn stop_replica(&self, name: &ReplicaName, how: StopRequest) -> Result<Exit, Cause> {
        let now = Instant::now();
        self.with(name, |replica| {
            let is_kill = how.signal == StopSignal::KILL;
            let exit = match replica.script.stop_code {
                Some(code) if !is_kill => Exit::code(code),
                Some(_) | None => Exit::signal(how.signal.number()),
            };
            let at = if is_kill {
                now
            } else {
                now + replica.script.stop_delay
            };
            if is_kill || (!replica.script.ignore_stop && at <= now + how.grace) {
                replica.decide(at, exit);
            } else {
                replica.decide(now + how.grace, Exit::signal(StopSignal::KILL.number()));
            }
        })?;
        self.wait_for(name).await
    }

    fn connect_to(&self, name: &ReplicaName, port: u16) -> Result<Connection, Cause> {
        let healthy = self.with_running(name, |replica| replica.is_healthy(Instant::now()))?;
        if healthy {
            return Ok(Connection::Right(exec::http_ok()));
        }
        Err(Cause::Port {
            port,
            source: std::io::ErrorKind::ConnectionRefused.into(),
        })
    }
}

impl Driver for FakeDriver {
    fn probe(&self) -> Pending<'_, Capabilities> {
        let limits = LimitSupport {
            memory: Enforcement::Absent,
            cpu: Enforcement::Absent,
            pids: Enforcement::Absent,
        };
        Box::pin(async move {
            Capabilities {
                available: true,
                limits,
                notices: Vec::new(),
            }
        })
    }

    fn prepare<'a>(
        &'a self,
        what: &'a Preparation,
        progress: &'a dyn ProgressSink,
    ) -> Pending<'a, DriverResult<Prepared>> {
        Box::pin(async {
            let script = Script::read(&what.spec.env).map_err(|cause| cause.at_host(Stage::Prepare))?;
            progress.report(Progress::Resolving);
            if !script.prepare_delay.is_zero() {
                sleep(script.prepare_delay).await;
            }
            match script.prepare_error {
                Some(text) => Err(Cause::Scripted(text).at_host(Stage::Prepare)),
                None => {
                    self.host.lock().prepares += 1;
                    progress.report(Progress::Ready);
                    Ok(Prepared::default())
                }
            }
        })
    }

    fn start<'a>(&'a self, start: &'a ReplicaStart) -> Pending<'a, DriverResult<Running>> {
        Stage::Start.of(&start.name, self.start_replica(start))
    }

    fn list(&self) -> Pending<'_, DriverResult<Vec<(ReplicaName, ReplicaStatus)>>> {
        Box::pin(async {
            let now = Instant::now();
            let state = self.host.lock();
            Ok(state
                .replicas
                .iter()
                .map(|(name, replica)| (name.clone(), replica.status(now)))
                .collect())
        })
    }

    fn inspect<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<ReplicaStatus>> {
        Box::pin(async {
            let status = self.with(name, |replica| replica.status(Instant::now()));
            status.map_err(|cause| cause.at(Stage::Inspect, name))
        })
    }

    fn wait<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Exit>> {
        Stage::Wait.of(name, self.wait_for(name))
    }

    fn stop<'a>(&'a self, name: &'a ReplicaName, how: StopRequest) -> Pending<'a, DriverResult<Exit>> {
        Stage::Stop.of(name, self.stop_replica(name, how))
    }

    fn signal<'a>(&'a self, name: &'a ReplicaName, signal: StopSignal) -> Pending<'a, DriverResult<()>> {
        Box::pin(async move {
            let noted = self.with_running(name, |replica| {
                replica.log.push(LogLine {
                    at_us: 0,
                    stream: Stream::Stdout,
                    text: format!("got {signal}"),
                    partial: false,
                });
            });
            noted.map_err(|cause| cause.at(Stage::Stop, name))
        })
    }

    fn exec<'a>(
        &'a self,
        name: &'a ReplicaName,
        request: ExecRequest,
    ) -> Pending<'a, DriverResult<ExecSession>> {
        Box::pin(async move {
            let session = self.with_running(name, |replica| {
                exec::run(&request, &replica.env, replica.is_healthy(Instant::now()))
            });
            session.flatten().map_err(|cause| cause.at(Stage::Exec, name))
        })
    }

    fn connect<'a>(&'a self, name: &'a ReplicaName, port: u16) -> Pending<'a, DriverResult<Connection>> {
        Box::pin(async move {
            self.connect_to(name, port)
                .map_err(|cause| cause.at(Stage::Connect, name))
        })
    }

    fn usage<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Usage>> {
        Box::pin(async {
            let usage = self.with_running(name, |_| Usage {
                processes: 1,
                ..Usage::default()
            });
            usage.map_err(|cause| cause.at(Stage::Usage, name))
        })
    }

    fn logs<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<LogSource>> {
        Box::pin(async {
            let log = self.with(name, |replica| LogSource::Memory(replica.log.clone()));
            log.map_err(|cause| cause.at(Stage::Logs, name))
        })
    }

    fn remove<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<()>> {
        Box::pin(async {
            let delay = self.with(name, |replica| replica.script.remove_delay);
            // One that is not there is removed at once.
            tokio::time::sleep(delay.unwrap_or_default()).await;
            let mut state = self.host.lock();
            state.replicas.remove(name);
            state.logs.remove(name);
            Ok(())
        })
    }
}

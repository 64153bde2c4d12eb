//! The process driver: a replica is a host program under a shim, in a session and, where the host allows,
//! a control group of its own.
//!
//! Called by the agent through [`Driver`]. It needs no privileges: without them it cannot switch users or
//! enforce limits, and says so in [`Driver::probe`]. It must never start anything in the daemon itself:
//! what the daemon starts dies with it or outlives it unseen.

mod environment;
mod exec;
mod failure;
pub(crate) mod limits;
mod program;
mod support;
mod usage;
mod user;

use std::path::PathBuf;
use std::sync::Arc;

use dhow_core::ids::ReplicaName;
use tokio::net::TcpStream;

use crate::cgroup::{CgroupError, CgroupHost, Group, Limits, Usage};
use crate::driver::{
    Capabilities, Cause, Connection, Driver, DriverResult, ExecRequest, ExecSession, Exit, LogSource,
    Pending, Preparation, Prepared, Progress, ProgressSink, ReplicaStart, ReplicaStatus, Running, Stage,
    StartRecord, StopRequest, StopSignal,
};
use crate::shim::protocol::{ShimSpec, Workload};
use crate::shim::replica_dirs::{dir_name, parse_dir_name};
use crate::shim::stop::blocking;
use crate::shim::strays;
use crate::shim::{ReplicaDirs, ShimClient, ShimError, SignalTarget, StartLock};

/// What the daemon opens the process driver with.
pub struct ProcessConfig {
    /// Where the replicas' folders are; this driver's alone.
    pub run_dir: PathBuf,
    pub shim: Arc<ShimClient>,
    pub cgroups: Arc<CgroupHost>,
}

/// Runs host programs. A cheap handle on what is on disk.
#[derive(Clone)]
pub struct ProcessDriver {
    dirs: ReplicaDirs,
    shim: Arc<ShimClient>,
    cgroups: Arc<CgroupHost>,
}

/// What a start has set up before the shim is asked.
struct Ready {
    lock: StartLock,
    group: Option<Group>,
    spec: ShimSpec,
    notices: Vec<String>,
}

/// Whose files a host program's are: the ids of the user that it runs as, none where that is the daemon's own. Asks the
/// host's user database: blocks.
pub fn owner_of(user: Option<&str>) -> Result<Option<(u32, u32)>, Cause> {
    let resolved = user::resolve(user)?;
    Ok(resolved.ids.map(|ids| (ids.uid, ids.gid)))
}

impl ProcessDriver {
    pub fn open(config: ProcessConfig) -> DriverResult<Self> {
        let dirs = ReplicaDirs::open(&config.run_dir).map_err(|cause| cause.at_host(Stage::Open))?;
        let driver = Self {
            dirs,
            shim: config.shim,
            cgroups: config.cgroups,
        };
        let swept = driver.sweep().map_err(Cause::Cgroup);
        swept.map_err(|cause| cause.at_host(Stage::Open))?;
        Ok(driver)
    }

    /// Ends what earlier lives of the data directory left running, and names in the log what may belong to another
    /// daemon. Blocks.
    fn sweep(&self) -> Result<(), CgroupError> {
        for leaf in self.cgroups.leaves() {
            let Some(name) = parse_dir_name(&leaf) else {
                continue;
            };
            if !self.dirs.exists(&name) {
                strays::clear(&self.cgroups.group(&leaf), &leaf)?;
            }
        }
        Ok(())
    }

    /// The group that a replica was started in; for one without a record, the one it would get.
    fn group(&self, name: &ReplicaName) -> Result<Option<Group>, Cause> {
        let usual = || {
            self.cgroups
                .is_usable()
                .then(|| self.cgroups.group(&dir_name(name)))
        };
        Ok(self.dirs.spec(name)?.map_or_else(usual, |record| record.group))
    }

    /// Processes that a run before this one left, and its counters, are not this one's to carry.
    fn make_way(&self, before: Option<Group>, lock: &StartLock) -> Result<(), Cause> {
        let Some(before) = before else { return Ok(()) };
        match strays::make_way(&before) {
            Ok(()) => before.remove().map_err(Cause::Cgroup),
            Err(cause) => {
                undo(lock, None)?;
                Err(cause)
            }
        }
    }

    /// Folder, record, group, command line: everything up to the start itself. Blocks.
    fn ready(&self, start: &ReplicaStart) -> Result<Ready, Cause> {
        support::check(&start.spec)?;
        let mut record = StartRecord::from(start);
        let built = program::build(&record, &start.secret_env, &self.cgroups)?;
        let before = self.group(&start.name)?;
        let lock = self.dirs.lock_for_start(&start.name)?;
        self.make_way(before, &lock)?;
        let set_up = self.make_group(start).and_then(|group| {
            record.group = group.clone();
            self.dirs.write_spec(&lock, &record).map(|()| group)
        });
        let group = match set_up {
            Ok(group) => group,
            Err(cause) => {
                undo(&lock, self.group(&start.name)?.as_ref())?;
                return Err(cause);
            }
        };
        let mut program = built.program;
        program.join = group.as_ref().map(Group::join_files).unwrap_or_default();
        let spec = ShimSpec {
            dir: lock.dir.clone(),
            log: start.log,
            workload: Workload::Program(program),
            group: group.clone(),
            after: Vec::new(),
        };
        Ok(Ready {
            lock,
            group,
            spec,
            notices: built.notices,
        })
    }

    fn make_group(&self, start: &ReplicaStart) -> Result<Option<Group>, Cause> {
        if !self.cgroups.is_usable() {
            return Ok(None);
        }
        let limits = Limits::from(&start.spec.resources);
        let made = self.cgroups.create(&dir_name(&start.name), &limits);
        made.map(Some).map_err(Cause::Cgroup)
    }

    async fn start_replica(&self, start: &ReplicaStart) -> Result<Running, Cause> {
        let (driver, owned) = (self.clone(), start.clone());
        let ready = blocking(move || driver.ready(&owned)).await?;
        let Workload::Program(program) = &ready.spec.workload else {
            return Err(Cause::NoCommand);
        };
        let program = program.clone();
        match self.shim.supervise(ready.spec, &ready.lock).await {
            Ok(process) => {
                let state = self.dirs.state(&start.name)?;
                let started_unix_ms = state.map_or(0, |state| state.started_unix_ms);
                Ok(Running {
                    pid: process.pid,
                    started_unix_ms,
                    notices: ready.notices,
                })
            }
            Err(error) => {
                if let ShimError::Refused(_) = error {
                    blocking(move || undo(&ready.lock, ready.group.as_ref())).await?;
                }
                Err(failure::explain(error, &program))
            }
        }
    }

    async fn stop_replica(&self, name: &ReplicaName, how: StopRequest) -> Result<Exit, Cause> {
        let group = self.group(name)?;
        let target = SignalTarget::Group;
        self.dirs.stop(name, how, target, group.as_ref()).await
    }

    async fn remove_replica(&self, name: &ReplicaName) -> Result<(), Cause> {
        let group = self.group(name)?;
        self.dirs.remove(name, group.as_ref()).await
    }

    async fn list_replicas(&self) -> Result<Vec<(ReplicaName, ReplicaStatus)>, Cause> {
        let dirs = self.dirs.clone();
        blocking(move || dirs.list()).await
    }

    /// The port of this host that it was given in place of the one that its service names. Blocks.
    fn given_port(&self, name: &ReplicaName, port: u16) -> Result<u16, Cause> {
        let record: StartRecord = self.dirs.spec(name)?.ok_or(Cause::NotRunning)?;
        let binding = record.ports.iter().find(|binding| binding.target_port == port);
        let given = binding.map(|binding| binding.host_port);
        given.ok_or_else(|| Cause::Port {
            port,
            source: std::io::Error::other(
                "no endpoint of the service has this target port, and a host program is reached at its endpoints alone",
            ),
        })
    }

    async fn connect_to(&self, name: &ReplicaName, port: u16) -> Result<Connection, Cause> {
        match self.dirs.status(name)? {
            ReplicaStatus::Running(_) => {}
            ReplicaStatus::Starting | ReplicaStatus::Ended(_) => return Err(Cause::NotRunning),
        }
        // A host program may listen on either loopback address.
        let stream = match TcpStream::connect(("127.0.0.1", port)).await {
            Ok(stream) => stream,
            Err(source) => {
                let other = TcpStream::connect(("::1", port)).await;
                other.map_err(|_| Cause::Port { port, source })?
            }
        };
        Ok(Connection::Left(stream))
    }
}

/// A start that was refused leaves nothing, except logs of runs before it.
fn undo(lock: &StartLock, group: Option<&Group>) -> Result<(), Cause> {
    if let Some(group) = group {
        group
            .kill_and_wait()
            .and_then(|()| group.remove())
            .map_err(Cause::Cgroup)?;
    }
    if lock.fresh {
        std::fs::remove_dir_all(&lock.dir).map_err(Cause::file("removing", &lock.dir))?;
    }
    Ok(())
}

impl Driver for ProcessDriver {
    fn probe(&self) -> Pending<'_, Capabilities> {
        Box::pin(async { support::capabilities(&self.cgroups) })
    }

    fn prepare<'a>(
        &'a self,
        what: &'a Preparation,
        progress: &'a dyn ProgressSink,
    ) -> Pending<'a, DriverResult<Prepared>> {
        Box::pin(async {
            support::check(&what.spec).map_err(|cause| cause.at_host(Stage::Prepare))?;
            progress.report(Progress::Ready);
            Ok(Prepared::default())
        })
    }

    fn start<'a>(&'a self, start: &'a ReplicaStart) -> Pending<'a, DriverResult<Running>> {
        Stage::Start.of(&start.name, self.start_replica(start))
    }

    fn list(&self) -> Pending<'_, DriverResult<Vec<(ReplicaName, ReplicaStatus)>>> {
        Box::pin(async {
            self.list_replicas()
                .await
                .map_err(|cause| cause.at_host(Stage::List))
        })
    }

    fn inspect<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<ReplicaStatus>> {
        Box::pin(async {
            self.dirs
                .status(name)
                .map_err(|cause| cause.at(Stage::Inspect, name))
        })
    }

    fn wait<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Exit>> {
        Stage::Wait.of(name, self.dirs.wait(name))
    }

    fn stop<'a>(&'a self, name: &'a ReplicaName, how: StopRequest) -> Pending<'a, DriverResult<Exit>> {
        Stage::Stop.of(name, self.stop_replica(name, how))
    }

    fn signal<'a>(&'a self, name: &'a ReplicaName, signal: StopSignal) -> Pending<'a, DriverResult<()>> {
        Box::pin(async move {
            let sent = self.dirs.signal(name, signal.signal(), SignalTarget::Main);
            sent.map_err(|cause| cause.at(Stage::Stop, name))
        })
    }

    fn exec<'a>(
        &'a self,
        name: &'a ReplicaName,
        request: ExecRequest,
    ) -> Pending<'a, DriverResult<ExecSession>> {
        Stage::Exec.of(name, self.exec_in(name, request))
    }

    fn connect<'a>(&'a self, name: &'a ReplicaName, port: u16) -> Pending<'a, DriverResult<Connection>> {
        Stage::Connect.of(name, self.connect_to(name, port))
    }

    fn reach<'a>(&'a self, name: &'a ReplicaName, port: u16) -> Pending<'a, DriverResult<Connection>> {
        Stage::Connect.of(name, async move {
            let (driver, owned) = (self.clone(), name.clone());
            let given = blocking(move || driver.given_port(&owned, port)).await?;
            self.connect_to(name, given).await
        })
    }

    fn usage<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Usage>> {
        Box::pin(async {
            let (driver, owned) = (self.clone(), name.clone());
            let usage = blocking(move || {
                let group = driver.group(&owned)?;
                usage::measure(&driver.dirs, &owned, group.as_ref())
            });
            usage.await.map_err(|cause| cause.at(Stage::Usage, name))
        })
    }

    fn logs<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<LogSource>> {
        Box::pin(async {
            if !self.dirs.exists(name) {
                return Err(Cause::NoSuchReplica.at(Stage::Logs, name));
            }
            Ok(LogSource::Files(self.dirs.log_dir(name)))
        })
    }

    fn remove<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<()>> {
        Stage::Remove.of(name, self.remove_replica(name))
    }
}

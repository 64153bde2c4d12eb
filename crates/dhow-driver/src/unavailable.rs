//! A driver for what this host cannot run: it has no replicas, and says why whenever one is to be started.
//!
//! The daemon uses it in place of a driver that could not be opened, so that the agent need not know.

use dhow_core::ids::ReplicaName;

use crate::driver::{
    Capabilities, Cause, Connection, Driver, DriverError, DriverResult, Enforcement, ExecRequest,
    ExecSession, Exit, LimitSupport, LogSource, Pending, Preparation, Prepared, ProgressSink, ReplicaStart,
    ReplicaStatus, Running, Stage, StopRequest, StopSignal, Usage,
};

/// A driver that this host lacks: it has no replicas, and refuses each start with the reason.
#[derive(Clone, Debug)]
pub struct UnavailableDriver {
    field: &'static str,
    why: String,
}

impl UnavailableDriver {
    /// `field` is what of a service asks for this driver.
    pub fn new(field: &'static str, why: impl Into<String>) -> Self {
        Self {
            field,
            why: why.into(),
        }
    }

    fn cause(&self) -> Cause {
        Cause::Unsupported {
            field: self.field,
            why: self.why.clone(),
        }
    }

    fn missing(name: &ReplicaName, stage: Stage) -> DriverError {
        Cause::NoSuchReplica.at(stage, name)
    }
}

impl Driver for UnavailableDriver {
    fn probe(&self) -> Pending<'_, Capabilities> {
        Box::pin(async {
            Capabilities {
                available: false,
                limits: LimitSupport {
                    memory: Enforcement::Absent,
                    cpu: Enforcement::Absent,
                    pids: Enforcement::Absent,
                },
                notices: vec![self.why.clone()],
            }
        })
    }

    fn prepare<'a>(
        &'a self,
        _: &'a Preparation,
        _: &'a dyn ProgressSink,
    ) -> Pending<'a, DriverResult<Prepared>> {
        Box::pin(async { Err(self.cause().at_host(Stage::Prepare)) })
    }

    fn start<'a>(&'a self, start: &'a ReplicaStart) -> Pending<'a, DriverResult<Running>> {
        Box::pin(async { Err(self.cause().at(Stage::Start, &start.name)) })
    }

    fn list(&self) -> Pending<'_, DriverResult<Vec<(ReplicaName, ReplicaStatus)>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn inspect<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<ReplicaStatus>> {
        Box::pin(async { Err(Self::missing(name, Stage::Inspect)) })
    }

    fn wait<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Exit>> {
        Box::pin(async { Err(Self::missing(name, Stage::Wait)) })
    }

    fn stop<'a>(&'a self, name: &'a ReplicaName, _: StopRequest) -> Pending<'a, DriverResult<Exit>> {
        Box::pin(async { Err(Self::missing(name, Stage::Stop)) })
    }

    fn signal<'a>(&'a self, name: &'a ReplicaName, _: StopSignal) -> Pending<'a, DriverResult<()>> {
        Box::pin(async { Err(Self::missing(name, Stage::Stop)) })
    }

    fn exec<'a>(&'a self, name: &'a ReplicaName, _: ExecRequest) -> Pending<'a, DriverResult<ExecSession>> {
        Box::pin(async { Err(Self::missing(name, Stage::Exec)) })
    }

    fn connect<'a>(&'a self, name: &'a ReplicaName, _: u16) -> Pending<'a, DriverResult<Connection>> {
        Box::pin(async { Err(Self::missing(name, Stage::Connect)) })
    }

    fn usage<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Usage>> {
        Box::pin(async { Err(Self::missing(name, Stage::Usage)) })
    }

    fn logs<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<LogSource>> {
        Box::pin(async { Err(Self::missing(name, Stage::Logs)) })
    }

    fn remove<'a>(&'a self, _: &'a ReplicaName) -> Pending<'a, DriverResult<()>> {
        Box::pin(async { Ok(()) })
    }
}

//! What every case works with.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceName};

use super::subject::{Act, Subject};
use crate::driver::{
    Driver, DriverError, DriverResult, Pending, ReplicaStart, ReplicaStatus, Running, StopRequest,
    StopSignal, error_chain,
};
use crate::logs::{LogFilter, LogLine, Stream};

/// One case: the text of an error says what was found instead.
pub(super) type Case = for<'a> fn(&'a Bench<'a>) -> Pending<'a, Verdict>;
pub(super) type Verdict = Result<(), String>;

/// The driver under test, and the case that works with it.
pub(super) struct Bench<'a> {
    pub subject: &'a dyn Subject,
    pub driver: Arc<dyn Driver>,
    case: &'static str,
}

/// Long enough for any well-behaved replica; nobody waits for it to pass.
pub(super) const LONG_GRACE: Duration = Duration::from_secs(40);

impl<'a> Bench<'a> {
    pub fn new(subject: &'a dyn Subject, case: &'static str) -> Self {
        Self {
            subject,
            driver: subject.open(),
            case,
        }
    }

    /// The same host after a restart of the daemon.
    pub fn reopened(&self) -> Self {
        Self {
            subject: self.subject,
            driver: self.subject.open(),
            case: self.case,
        }
    }

    pub fn name(&self, index: u32) -> Result<ReplicaName, String> {
        Ok(ReplicaName {
            deployment: DeploymentName::new("conformance").map_err(|error| error.to_string())?,
            service: ServiceName::new(self.case).map_err(|error| error.to_string())?,
            role: RoleName::fallback(),
            index,
            generation: Generation(1),
        })
    }

    /// How a replica that does this is started; `None` where the driver has no such thing.
    pub fn start_of(&self, index: u32, act: &Act) -> Result<Option<ReplicaStart>, String> {
        let name = self.name(index)?;
        Ok(self
            .subject
            .spec(act)
            .map(|spec| ReplicaStart::new(name, Arc::new(spec))))
    }

    /// Starts a replica; for a driver without such an act, `None`.
    pub async fn try_start(&self, act: &Act) -> Result<Option<(ReplicaName, Running)>, String> {
        let Some(start) = self.start_of(0, act)? else {
            return Ok(None);
        };
        let running = ok(self.driver.start(&start).await)?;
        ensure(running.pid > 0, || format!("its pid is {}", running.pid))?;
        Ok(Some((start.name, running)))
    }

    pub async fn start(&self, act: &Act) -> Result<(ReplicaName, Running), String> {
        self.try_start(act)
            .await?
            .ok_or_else(|| format!("the subject has no replica for {act:?}"))
    }

    /// Starts a replica that goes on running, and waits until it says that it is ready.
    pub async fn start_ready(&self, act: &Act) -> Result<(ReplicaName, Running), String> {
        let started = self.start(act).await?;
        self.until_ready(&started.0).await?;
        Ok(started)
    }

    pub async fn until_ready(&self, name: &ReplicaName) -> Verdict {
        let logs = ok(self.driver.logs(name).await)?;
        let mut follow = logs.follow(Default::default(), LogFilter::default());
        loop {
            let page = follow.next_page().await.map_err(|error| error.to_string())?;
            if page.lines.iter().any(|line| line.text == "ready") {
                return Ok(());
            }
        }
    }

    /// What a replica has written to a stream.
    pub async fn lines(&self, name: &ReplicaName, stream: Stream) -> Result<Vec<String>, String> {
        let logs = ok(self.driver.logs(name).await)?;
        let lines = logs.tail(1000).await.map_err(|error| error.to_string())?;
        Ok(lines
            .into_iter()
            .filter(|line: &LogLine| line.stream == stream)
            .map(|line| line.text)
            .collect())
    }

    pub async fn running(&self, name: &ReplicaName) -> Result<Running, String> {
        match ok(self.driver.inspect(name).await)? {
            ReplicaStatus::Running(running) => Ok(running),
            other => Err(format!("it is {other:?} and not running")),
        }
    }

    /// Removes what the case has left.
    pub async fn clear(&self) -> Verdict {
        for (name, _) in ok(self.driver.list().await)? {
            ok(self.driver.remove(&name).await)?;
        }
        Ok(())
    }
}

pub(super) fn ok<T>(result: DriverResult<T>) -> Result<T, String> {
    result.map_err(|error| error_chain(&error))
}

/// The error that was to come.
pub(super) fn refused<T>(result: DriverResult<T>) -> Result<DriverError, String> {
    match result {
        Ok(_) => Err("it was accepted".into()),
        Err(error) => Ok(error),
    }
}

pub(super) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise()) }
}

pub(super) fn equal<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Verdict {
    ensure(found == expected, || {
        format!("found {found:?}, expected {expected:?}")
    })
}

pub(super) fn term(grace: Duration) -> StopRequest {
    StopRequest {
        signal: StopSignal::TERM,
        grace,
    }
}

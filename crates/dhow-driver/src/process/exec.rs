//! A command beside a running process, started by the zygote and not by the daemon: cheap, and it cannot
//! inherit anything.

use std::io;
use std::os::fd::OwnedFd;

use dhow_core::ids::ReplicaName;

use super::{ProcessDriver, environment, failure, program};
use crate::cgroup::Group;
use crate::driver::{Cause, ExecRequest, ExecSession, ReplicaStatus, StartRecord};
use crate::shim::protocol::{Program, RunSpec};
use crate::shim::stop::blocking;
use crate::shim::{ExecPipes, exec_session};

impl ProcessDriver {
    pub(super) async fn exec_in(
        &self,
        name: &ReplicaName,
        request: ExecRequest,
    ) -> Result<ExecSession, Cause> {
        let (driver, owned, wanted) = (self.clone(), name.clone(), request.clone());
        let program = blocking(move || driver.exec_program(&owned, &wanted)).await?;
        let pipes = ExecPipes::open(request.stdin).map_err(Cause::file("opening", "a pipe"))?;
        let (ours, theirs): (ExecPipes, [OwnedFd; 3]) = pipes;
        let session = self
            .shim
            .run(
                RunSpec {
                    program: program.clone(),
                },
                theirs,
            )
            .await;
        let session = session.map_err(|error| failure::explain(error, &program))?;
        exec_session(session, ours, name.clone())
            .map_err(|source: io::Error| Cause::file("reading", "a pipe")(source))
    }

    /// The command with the workload's own surroundings. Blocks.
    fn exec_program(&self, name: &ReplicaName, request: &ExecRequest) -> Result<Program, Cause> {
        let ReplicaStatus::Running(running) = self.dirs.status(name)? else {
            return Err(Cause::NotRunning);
        };
        let record: StartRecord = self.dirs.spec(name)?.ok_or(Cause::NotRunning)?;
        let secrets = environment::of_process(running.pid, &record.secret_names);
        let mut program = program::build(&record, &secrets, &self.cgroups)?.program;
        program.argv = request.command.clone();
        program.join = record.group.as_ref().map(Group::join_files).unwrap_or_default();
        if program.argv.is_empty() {
            return Err(Cause::NoCommand);
        }
        Ok(program)
    }
}

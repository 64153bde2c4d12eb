//! A command beside a running process, started by the zygote and not by the daemon: cheap, and it cannot
//! inherit anything.

use std::io;

use dhow_core::ids::ReplicaName;

use super::{ProcessDriver, environment, failure, program};
use crate::cgroup::Group;
use crate::driver::{Cause, ExecRequest, ExecSession, ReplicaStatus, StartRecord};
use crate::shim::protocol::{Program, RunSpec, SetUp};
use crate::shim::stop::blocking;
use crate::shim::{ExecStreams, Manners, exec_session};

impl ProcessDriver {
    pub(super) async fn exec_in(
        &self,
        name: &ReplicaName,
        request: ExecRequest,
    ) -> Result<ExecSession, Cause> {
        let (driver, owned, wanted) = (self.clone(), name.clone(), request.clone());
        let program = blocking(move || driver.exec_program(&owned, &wanted)).await?;
        let streams = ExecStreams::open(&request, Manners::Usual, program.user.as_ref());
        let (ours, theirs) = streams.map_err(Cause::file("opening", "a pipe or a terminal"))?;
        let session = self
            .shim
            .run(
                RunSpec {
                    program: program.clone(),
                    hangs_up: request.hangs_up,
                },
                theirs,
            )
            .await;
        let session = session.map_err(|error| failure::explain(error, &program))?;
        exec_session(session, ours, name.clone())
            .map_err(|source: io::Error| Cause::file("reading", "a pipe or a terminal")(source))
    }

    /// The command with the workload's own surroundings. Blocks.
    fn exec_program(&self, name: &ReplicaName, request: &ExecRequest) -> Result<Program, Cause> {
        let ReplicaStatus::Running(running) = self.dirs.status(name)? else {
            return Err(Cause::NotRunning);
        };
        let record: StartRecord = self.dirs.spec(name)?.ok_or(Cause::NotRunning)?;
        let secrets = environment::of_process(running.pid, &record.secret_names);
        let mut program = program::build(&record, &secrets, &self.cgroups)?.program;
        program.argv = match &request.carry {
            Some(carry) => carry.words(),
            None => request.command.clone(),
        };
        if let Some(terminal) = &request.terminal {
            program.env.retain(|(key, _)| key != "TERM");
            program.env.push(("TERM".into(), terminal.term.clone()));
            program.set_up.push(SetUp::TakeTerminal);
        }
        program.join = record.group.as_ref().map(Group::join_files).unwrap_or_default();
        if program.argv.is_empty() {
            return Err(Cause::NoCommand);
        }
        Ok(program)
    }
}

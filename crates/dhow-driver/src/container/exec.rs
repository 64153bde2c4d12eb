//! A command beside a running container: the runtime runs it, with the workload's own process as its model.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use dhow_core::ids::ReplicaName;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::carry::Carry;
use crate::driver::{Cause, ExecRequest, ExecSession, ReplicaStatus};
use crate::shim::ProcessId;
use crate::shim::protocol::{Program, RunSpec, SetUp};
use crate::shim::stop::blocking;
use crate::shim::{ExecStreams, Manners, exec_session};

use super::oci::{ConsoleSize, Process};
use super::{ContainerDriver, bundle, command, container_id, failure, root_view};

/// The part of the configuration that a command takes over.
#[derive(Deserialize)]
struct Configured {
    process: Process,
}

/// What the container of this bundle runs.
pub(super) fn process_of(bundle: &Path) -> Result<Process, Cause> {
    let path = bundle.join(bundle::CONFIG_FILE);
    let bytes = std::fs::read(&path).map_err(Cause::file("reading", &path))?;
    let configured: Configured =
        serde_json::from_slice(&bytes).map_err(|error| Cause::file("reading", path)(error.into()))?;
    Ok(configured.process)
}

impl ContainerDriver {
    pub(super) async fn exec_in(
        &self,
        name: &ReplicaName,
        request: ExecRequest,
    ) -> Result<ExecSession, Cause> {
        if let Some(carry) = &request.carry {
            return self.carry_in(name, carry.clone(), &request).await;
        }
        let (driver, owned, wanted) = (self.clone(), name.clone(), request.clone());
        let file = blocking(move || driver.exec_file(&owned, &wanted)).await?;
        let file = Temporary(file);
        let join = self.group(name)?.join_unified_only();
        let mut program = self.runtime().await?.exec(&container_id(name), &file.0, join);
        if request.terminal.is_some() {
            program.set_up.push(SetUp::TakeTerminal);
        }
        // The runtime opens a terminal inside the container and passes on what goes through this one.
        let streams = ExecStreams::open(&request, Manners::Raw, None);
        let (ours, theirs) = streams.map_err(Cause::file("opening", "a pipe or a terminal"))?;
        let spec = RunSpec {
            program,
            hangs_up: request.hangs_up,
        };
        let session = self.inner.shim.run(spec, theirs).await.map_err(Cause::Shim)?;
        let session = exec_session(session, ours, name.clone())
            .map_err(|source: io::Error| Cause::file("reading", "a pipe or a terminal")(source))?;
        Ok(with_file(session, file))
    }

    /// Carries files by a helper of this binary, which enters the container's mounts and root as its user.
    async fn carry_in(
        &self,
        name: &ReplicaName,
        carry: Carry,
        request: &ExecRequest,
    ) -> Result<ExecSession, Cause> {
        let (driver, owned) = (self.clone(), name.clone());
        let mut program = blocking(move || driver.carry_program(&owned, &carry)).await?;
        program.join = self.group(name)?.join_files();
        let streams = ExecStreams::open(request, Manners::Usual, None);
        let (ours, theirs) = streams.map_err(Cause::file("opening", "a pipe or a terminal"))?;
        let spec = RunSpec {
            program,
            hangs_up: request.hangs_up,
        };
        let session = self.inner.shim.run(spec, theirs).await.map_err(Cause::Shim)?;
        exec_session(session, ours, name.clone())
            .map_err(|source: io::Error| Cause::file("reading", "a pipe or a terminal")(source))
    }

    /// Blocks.
    fn carry_program(&self, name: &ReplicaName, carry: &Carry) -> Result<Program, Cause> {
        let ReplicaStatus::Running(running) = self.inner.dirs.status(name)? else {
            return Err(Cause::NotRunning);
        };
        let process = ProcessId::of(running.pid).map_err(|_| Cause::NotRunning)?;
        let workload = process_of(&self.inner.volatile.bundle(&container_id(name)))?;
        let gids = std::iter::once(&workload.user.gid).chain(&workload.user.additional_gids);
        let gids: Vec<String> = gids.map(u32::to_string).collect();
        let mut argv = carry.words();
        argv.extend([
            process.pid.to_string(),
            process.start_ticks.to_string(),
            workload.user.uid.to_string(),
            gids.join(","),
            workload.cwd,
        ]);
        Ok(Program {
            argv,
            ..Program::default()
        })
    }

    /// Writes the process that the runtime shall run. Blocks.
    fn exec_file(&self, name: &ReplicaName, request: &ExecRequest) -> Result<PathBuf, Cause> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let ReplicaStatus::Running(running) = self.inner.dirs.status(name)? else {
            return Err(Cause::NotRunning);
        };
        let dir = self.inner.volatile.bundle(&container_id(name));
        let mut process = process_of(&dir)?;
        process.args = request.command.clone();
        if let Some(terminal) = &request.terminal {
            process.terminal = true;
            process.console_size = Some(ConsoleSize {
                height: terminal.size.rows,
                width: terminal.size.cols,
            });
            process.env.retain(|variable| !variable.starts_with("TERM="));
            process.env.push(format!("TERM={}", terminal.term));
        }
        let program = process.args.first().ok_or(Cause::NoCommand)?;
        let path = command::path_of(&process.env);
        // The runtime would say so too, in its own words and in the command's output.
        if let Ok(root) = root_view::of_process(running.pid)
            && !root.has_program(program, path, &process.cwd)
        {
            return Err(failure::not_found(program, path));
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = dir.join(format!("exec-{}-{count}.json", std::process::id()));
        let bytes =
            serde_json::to_vec(&process).map_err(|error| Cause::file("writing", &file)(error.into()))?;
        bundle::write_private(&file, &bytes)?;
        Ok(file)
    }
}

/// A file that goes when the command has ended. It may hold secrets.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // On a memory-backed file system; gone with its folder at the latest.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The session, with a file that is kept until its end.
fn with_file(session: ExecSession, file: Temporary) -> ExecSession {
    let (mut to, exit) = oneshot::channel();
    let inner = session.exit;
    tokio::spawn(async move {
        let _file = file;
        tokio::select! {
            ended = inner => {
                // The sender is dropped without a word only when the runtime shuts down, or nobody listens.
                if let Ok(ended) = ended {
                    let _ = to.send(ended);
                }
            }
            () = to.closed() => {}
        }
    });
    ExecSession { exit, ..session }
}

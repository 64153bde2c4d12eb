//! A shim's life: start the workload, copy its output, reap it, clear up behind it, record its end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use dhow_disk::{Dir, Outlives};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::fs::OFlags;

use super::identity::{self, ProcessId};
use super::init;
use super::privileges;
use super::protocol::{Failure, Program, Reply, ShimSpec, Shown, Step, Workload};
use super::pump::{Pump, Turn, reap_one};
use super::record::{
    EXIT_FILE, ExitRecord, ExitStatus, LOG_DIR, RECORD_VERSION, STATE_FILE, StateRecord, unix_ms, unix_us,
};
use super::spawn::{self, Stdio};
use super::transport;
use crate::cgroup::Group;
use crate::container::root_view;
use crate::logs::{LogWriter, Stream};

/// How long what a workload left behind is killed again and again before it is left to the host.
const CLEAR_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the shim waits for the output of killed processes: another process may hold the pipe.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// A command after the end, such as `runc delete`, is killed when it takes longer.
const AFTER_TIMEOUT: Duration = Duration::from_secs(30);
/// One wait inside the loops with a deadline.
const TURN_MS: u16 = 20;
/// Reserved for the record of the exit, so that a disk that fills up later does not cost it.
const EXIT_RESERVED_BYTES: usize = 256;
const EXIT_RESERVED_FILE: &str = "exit.reserved";

/// What a shim holds of its replica for all of its life.
pub struct Hold {
    folder: Dir,
    lock: File,
}

/// What came with the request.
pub fn hold(descriptors: Vec<OwnedFd>, path: &Path) -> io::Result<Hold> {
    let count = descriptors.len();
    match <[OwnedFd; 2]>::try_from(descriptors) {
        Ok([lock, folder]) => Ok(Hold {
            folder: Dir::from_handle(folder, path),
            lock: File::from(lock),
        }),
        Err(_) => Err(io::Error::other(format!(
            "a replica comes with 2 descriptors, not {count}"
        ))),
    }
}

impl Hold {
    /// Whether the folder or its lock was removed: what is at its path now is another replica's.
    fn is_lost(&self) -> bool {
        self.folder.is_removed() || self.lock.metadata().is_ok_and(|found| found.nlink() == 0)
    }
}

/// Runs a shim to its end. What it holds is held until then; the connection is closed once the workload runs.
pub fn run(connection: &mut Option<UnixStream>, hold: Hold, spec: ShimSpec) -> Result<(), Failure> {
    let ShimSpec {
        dir,
        log,
        workload,
        group,
        after,
    } = spec;
    let logs = hold.folder.make_dir(LOG_DIR);
    let opened = logs
        .and_then(|logs| LogWriter::open(logs, log))
        .inspect(|writer| {
            // Without it the output is there all the same, and counts as that of the run before.
            let _ = writer.begin_run(unix_us());
        })
        .and_then(Pump::open);
    let (pump, outputs) =
        opened.map_err(|error| Failure::io(Step::Log, &error, dir.display().to_string()))?;
    let mut shim = Shim {
        hold,
        pump,
        group,
        ended: Vec::new(),
        restricted: None,
        only: None,
    };
    let main = match shim.start(workload, outputs) {
        Ok(process) => process,
        Err(failure) => {
            shim.undo_start();
            return Err(failure);
        }
    };
    if let Some(mut connection) = connection.take() {
        transport::reply(&mut connection, &Reply::Started { process: main });
    }
    let status = shim.wait_for(main);
    shim.finish(status, &after);
    Ok(())
}

struct Shim {
    hold: Hold,
    pump: Pump,
    group: Option<Group>,
    /// Children that have ended and whose end somebody may ask for.
    ended: Vec<(u32, ExitStatus)>,
    /// A program that was kept from gaining rights.
    restricted: Option<Program>,
    /// The one child whose end is kept. Until the start is done any may turn out to be the workload.
    only: Option<u32>,
}

impl Shim {
    fn start(&mut self, workload: Workload, outputs: super::pump::Outputs) -> Result<ProcessId, Failure> {
        reserve_exit(&self.hold.folder).map_err(|error| self.unrecorded(&error, EXIT_RESERVED_FILE))?;
        let stdin =
            fs::File::open("/dev/null").map_err(|error| Failure::io(Step::Stdio, &error, "/dev/null"))?;
        // Dropped at the end of the start: only the workload holds the writing ends then.
        let stdio = Stdio {
            stdin: stdin.into(),
            stdout: outputs.stdout,
            stderr: outputs.stderr,
        };
        match workload {
            Workload::Program(program) => {
                let waiting = spawn::prepare(&program, &stdio)?;
                self.record(waiting.process)?;
                let process = waiting.release()?;
                if program.no_new_privileges {
                    // A few lines of what it writes, for a hint where it fails.
                    self.pump.keep_recent();
                    self.restricted = Some(program);
                }
                Ok(process)
            }
            Workload::Starter {
                create,
                pid_file,
                start,
                init,
                shown,
            } => {
                self.pump.keep_recent();
                let made = init.map(|init| init::make(&init.link, &init.join));
                let waiting = made.transpose().map_err(init_failed)?;
                self.starter(&create, &stdio)?;
                let process = self.started_process(&pid_file)?;
                self.record(process)?;
                shown.iter().try_for_each(|shown| look_at(process.pid, shown))?;
                if let Some(init) = waiting {
                    init.join(process.pid).map_err(init_failed)?;
                }
                if let Some(start) = start {
                    self.starter(&start, &stdio)?;
                }
                self.pump.take_recent();
                Ok(process)
            }
        }
    }

    /// Says on disk who runs the replica, before it does anything.
    fn record(&self, workload: ProcessId) -> Result<(), Failure> {
        let written = || -> io::Result<()> {
            let record = StateRecord {
                version: RECORD_VERSION,
                boot_id: identity::boot_id()?,
                shim: ProcessId::of_self()?,
                workload,
                started_unix_ms: unix_ms(),
            };
            let bytes = serde_json::to_vec(&record)?;
            self.hold.folder.replace(STATE_FILE, &bytes, Outlives::PowerCut)
        };
        written().map_err(|error| self.unrecorded(&error, STATE_FILE))
    }

    fn unrecorded(&self, error: &io::Error, file: &str) -> Failure {
        let path = self.hold.folder.path().join(file);
        Failure::io(Step::Record, error, path.display().to_string())
    }

    /// Runs a starter to its end; what it wrote is the reason when it fails.
    fn starter(&mut self, program: &Program, stdio: &Stdio) -> Result<(), Failure> {
        let process = spawn::prepare(program, stdio)?.release()?;
        let status = loop {
            self.turn(None);
            if let Some(status) = self.end_of(process.pid) {
                break status;
            }
        };
        if status == ExitStatus::Code(0) {
            return Ok(());
        }
        // What it wrote last may still be in the pipe.
        while self.turn_saw_output() {}
        let name = program.argv.join(" ");
        let output = self.pump.take_recent();
        Err(Failure {
            step: Step::Starter,
            errno: None,
            detail: format!("{name} ended with {status:?}: {output}"),
        })
    }

    /// Who was started. A starter that also lets it run may come back after the workload has ended, and been
    /// reaped: its number is then nobody's, and its end is known.
    fn started_process(&self, pid_file: &Path) -> Result<ProcessId, Failure> {
        let pid = read_pid_file(pid_file)?;
        if self.ended.iter().any(|(ended, _)| *ended == pid) {
            return Ok(ProcessId { pid, start_ticks: 0 });
        }
        ProcessId::of(pid).map_err(|error| Failure::io(Step::PidFile, &error, pid_file.display().to_string()))
    }

    fn turn_saw_output(&mut self) -> bool {
        let before = self.pump.recent_bytes();
        self.turn(Some(0));
        self.pump.recent_bytes() != before
    }

    fn turn(&mut self, timeout_ms: Option<u16>) -> bool {
        // Polling fails only for want of memory: a pause and another try is all there is to do.
        let turn = self.pump.turn(timeout_ms).unwrap_or(Turn {
            children: true,
            drained: false,
        });
        if turn.children {
            while let Some((pid, status)) = reap_one() {
                if self.only.is_none_or(|only| only == pid) {
                    // A starter leaves a handful of children; whoever leaves more loses the oldest.
                    const ENDED_MAX: usize = 256;
                    self.ended.truncate(ENDED_MAX - 1);
                    self.ended.insert(0, (pid, status));
                }
            }
        }
        turn.drained
    }

    fn end_of(&mut self, pid: u32) -> Option<ExitStatus> {
        let at = self.ended.iter().position(|(ended, _)| *ended == pid)?;
        Some(self.ended.remove(at).1)
    }

    fn wait_for(&mut self, main: ProcessId) -> ExitStatus {
        self.only = Some(main.pid);
        self.ended.retain(|(pid, _)| *pid == main.pid);
        loop {
            if let Some(status) = self.end_of(main.pid) {
                return status;
            }
            self.turn(None);
        }
    }

    /// A start that failed leaves no process and no record.
    fn undo_start(&mut self) {
        self.kill_leftovers();
        for file in [STATE_FILE, EXIT_RESERVED_FILE] {
            let _ = self.hold.folder.remove(file);
        }
    }

    fn finish(&mut self, status: ExitStatus, after: &[Program]) {
        let ended_unix_ms = unix_ms();
        let kills = self.group.as_ref().map_or(0, |group| group.oom_kills());
        let oom = status.is_out_of_memory(kills);
        self.kill_leftovers();
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        while !self.turn(Some(TURN_MS)) && Instant::now() < deadline {}
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.pump.log.close(stream, unix_us());
        }
        let said = self.pump.take_recent();
        if matches!(status, ExitStatus::Code(code) if code != 0)
            && let Some(program) = &self.restricted
            && privileges::may_miss_them(program, &said)
        {
            self.pump.log.notice(privileges::HINT, unix_us());
        }
        for program in after {
            self.run_after(program);
        }
        let record = ExitRecord {
            version: RECORD_VERSION,
            status,
            oom,
            ended_unix_ms,
        };
        write_exit(&self.hold, &record);
    }

    /// Kills everything that the workload left: its group where it has one, and whatever is or becomes a
    /// child of this process, which inherits all orphans below it.
    fn kill_leftovers(&mut self) {
        let me = std::process::id();
        let deadline = Instant::now() + CLEAR_UP_TIMEOUT;
        loop {
            let in_group = self.group.as_ref().is_some_and(|group| !group.pids().is_empty());
            let children = identity::children(me);
            if (children.is_empty() && !in_group) || Instant::now() >= deadline {
                return;
            }
            if let Some(group) = self.group.as_ref().filter(|_| in_group) {
                group.kill();
            }
            for child in children {
                // Only this process reaps its children: until then a number is theirs.
                if let Ok(child) = i32::try_from(child) {
                    let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
                }
            }
            self.turn(Some(TURN_MS));
        }
    }

    fn run_after(&mut self, program: &Program) {
        let failed = match self.try_after(program) {
            Ok(ExitStatus::Code(0)) => return,
            Ok(status) => format!("ended with {status:?}"),
            Err(failure) => format!("did not start: {failure:?}"),
        };
        self.pump
            .log
            .notice(&format!("{} {failed}", program.argv.join(" ")), unix_us());
    }

    fn try_after(&mut self, program: &Program) -> Result<ExitStatus, Failure> {
        let null = || {
            let file = OpenOptions::new().read(true).write(true).open("/dev/null");
            file.map(OwnedFd::from)
                .map_err(|error| Failure::io(Step::Stdio, &error, "/dev/null"))
        };
        let stdio = Stdio {
            stdin: null()?,
            stdout: null()?,
            stderr: null()?,
        };
        let process = spawn::prepare(program, &stdio)?.release()?;
        self.only = Some(process.pid);
        let deadline = Instant::now() + AFTER_TIMEOUT;
        loop {
            if let Some(status) = self.end_of(process.pid) {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                self.kill_leftovers();
            }
            self.turn(Some(TURN_MS));
        }
    }
}

/// Whether a mount of the workload shows what it was to show.
fn look_at(pid: u32, shown: &Shown) -> Result<(), Failure> {
    let found = root_view::of_process(pid).and_then(|root| root.metadata(&shown.target));
    let source = shown.source.display();
    match found {
        Ok(found) if (found.dev(), found.ino()) == (shown.device, shown.inode) => Ok(()),
        Ok(_) => Err(Failure {
            step: Step::SetUp,
            errno: None,
            detail: format!("{source} led elsewhere when it was mounted than when it was looked at"),
        }),
        Err(error) => Err(Failure::io(
            Step::SetUp,
            &error,
            format!("looking at {}", shown.target),
        )),
    }
}

fn init_failed(errno: Errno) -> Failure {
    Failure::new(Step::SetUp, errno, "an init of its own")
}

fn read_pid_file(path: &Path) -> Result<u32, Failure> {
    let failure = |error: &io::Error| Failure::io(Step::PidFile, error, path.display().to_string());
    let text = fs::read_to_string(path).map_err(|error| failure(&error))?;
    text.trim()
        .parse()
        .map_err(|_| failure(&io::Error::other("no number in it")))
}

/// A power cut may cost the room, but by then there is no process whose end is to be told.
fn reserve_exit(folder: &Dir) -> io::Result<()> {
    let room = [b' '; EXIT_RESERVED_BYTES];
    folder.replace(EXIT_RESERVED_FILE, &room, Outlives::Process)
}

/// Writes into the space reserved at the start. Tries for a minute where even that fails: until it is
/// written, the exit is known to this process alone. A folder that was taken away wants to know nothing.
fn write_exit(hold: &Hold, record: &ExitRecord) {
    const TRIES_MAX: u32 = 60;
    for _ in 0..TRIES_MAX {
        if hold.is_lost() || try_write_exit(&hold.folder, record).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn try_write_exit(folder: &Dir, record: &ExitRecord) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(record)?;
    bytes.resize(bytes.len().max(EXIT_RESERVED_BYTES), b' ');
    let mut file = folder.open_file(EXIT_RESERVED_FILE, OFlags::WRONLY | OFlags::CREATE)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    folder.rename(EXIT_RESERVED_FILE, EXIT_FILE)
}

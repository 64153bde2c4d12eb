//! A daemon to be killed: starts replicas as its input says and waits for its end.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use dhow_driver::driver::Driver;
use dhow_driver::process::{ProcessConfig, ProcessDriver};

use crate::test_host::{Groups, TestHost};

/// The daemon's side: `daemon DIR GROUPS PARENT`, then a shell text per line on stdin, each answered with
/// the replica's pid.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let dir = PathBuf::from(args.next().unwrap());
    let groups = if args.next().unwrap() == "use" {
        Groups::Use
    } else {
        Groups::Without
    };
    let parent = args.next().unwrap().into_string().unwrap();
    let cgroups = Arc::new(TestHost::detect(groups, &parent));
    let shim = Arc::new(TestHost::client(&dir, &cgroups));
    let driver = ProcessDriver::open(ProcessConfig {
        run_dir: dir.join("run"),
        shim,
        cgroups,
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    // A descriptor that is open in the daemon without being closed on exec: a careless library's. Shims and
    // workloads must not have it.
    let leaked = std::fs::File::open("/etc/passwd").unwrap();
    nix::fcntl::fcntl(
        &leaked,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()),
    )
    .unwrap();
    for (index, line) in std::io::stdin().lines().enumerate() {
        let start = crate::test_host::shell_in(&dir, u32::try_from(index).unwrap(), &line.unwrap());
        let running = runtime.block_on(driver.start(&start)).unwrap();
        println!("{}", running.pid);
        std::io::stdout().flush().unwrap();
    }
    ExitCode::SUCCESS
}

/// The test's side. Killed when it is dropped.
pub struct Daemon {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Daemon {
    pub fn launch(host: &TestHost) -> Self {
        let groups = if host.groups == Groups::Use {
            "use"
        } else {
            "without"
        };
        let mut child = Command::new("/proc/self/exe")
            .args([
                "daemon".as_ref(),
                host.dir.as_os_str(),
                groups.as_ref(),
                host.parent.as_ref(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    /// Tells the daemon to start a replica, and does not wait for it.
    pub fn ask(&mut self, text: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{text}").unwrap();
    }

    /// Has the daemon start a replica; gives its pid.
    pub fn start(&mut self, text: &str) -> u32 {
        self.ask(text);
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().parse().unwrap()
    }

    /// Like kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

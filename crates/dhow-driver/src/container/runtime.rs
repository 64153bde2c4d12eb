//! The program that makes containers: `crun`, `runc` or `youki`, all with the same command line. The fastest
//! that works here is used; whether one works is tried, not guessed.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::cgroup::{CgroupHost, Layout, Limits};
use crate::driver::{Cause, error_chain};
use crate::shim::protocol::{Program, RunSpec, SetUp};
use crate::shim::{ShimClient, ShimError};

use super::oci;
use super::volatile::{Volatile, remove_tree};

/// Fastest first.
const KNOWN: [&str; 3] = ["crun", "runc", "youki"];
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What a trial container is to run. That it does not exist is said by a runtime that has done all the rest.
const TRIAL_PROGRAM: &str = "/dhow-no-such-program";
/// What of a runtime's complaint is quoted.
const OUTPUT_MAX_BYTES: u64 = 4 << 10;

/// A runtime that works here.
#[derive(Clone, Debug)]
pub(super) struct Runtime {
    pub path: PathBuf,
    root: PathBuf,
    /// What a process has to do to itself before it becomes the runtime.
    set_up: Vec<SetUp>,
}

impl Runtime {
    /// Tries the wanted one, or all that are known.
    pub async fn find(
        wanted: Option<&str>,
        shim: &ShimClient,
        cgroups: &CgroupHost,
        volatile: &Volatile,
    ) -> Result<Self, Cause> {
        let names: Vec<&str> = wanted.map_or_else(|| KNOWN.to_vec(), |name| vec![name]);
        let mut why_not = Vec::new();
        for name in names {
            let Some(path) = look_up(name) else {
                why_not.push(format!("{name} is not installed"));
                continue;
            };
            for set_up in ways(cgroups) {
                let runtime = Self {
                    path: path.clone(),
                    root: volatile.runtime_root(),
                    set_up,
                };
                match runtime.try_out(shim, cgroups, volatile).await {
                    Ok(()) => return Ok(runtime),
                    Err(why) => why_not.push(format!("{name} does not work here ({why})")),
                }
            }
        }
        why_not.dedup();
        Err(Cause::NoContainers {
            why: format!("{}; install crun or runc", why_not.join("; ")),
        })
    }

    /// Starts a container and leaves it running.
    pub fn run(&self, id: &str, bundle: &Path, pid_file: &Path, join: Vec<PathBuf>) -> Program {
        self.make(&["run", "--detach", "--bundle"], id, bundle, pid_file, join)
    }

    /// Makes a container whose process waits to be started.
    pub fn create(&self, id: &str, bundle: &Path, pid_file: &Path, join: Vec<PathBuf>) -> Program {
        self.make(&["create", "--bundle"], id, bundle, pid_file, join)
    }

    /// Lets the process of a container that was created go on.
    pub fn start(&self, id: &str, join: Vec<PathBuf>) -> Program {
        self.program(&["start", id], join)
    }

    fn make(&self, words: &[&str], id: &str, bundle: &Path, pid_file: &Path, join: Vec<PathBuf>) -> Program {
        let mut program = self.program(words, join);
        let path = |path: &Path| path.display().to_string();
        program
            .argv
            .extend([path(bundle), "--pid-file".into(), path(pid_file), id.into()]);
        program
    }

    /// Runs a process in a container.
    pub fn exec(&self, id: &str, process_file: &Path, join: Vec<PathBuf>) -> Program {
        let mut program = self.program(&["exec", "--process"], join);
        program
            .argv
            .extend([process_file.display().to_string(), id.into()]);
        program
    }

    fn program(&self, words: &[&str], join: Vec<PathBuf>) -> Program {
        let mut argv = vec![
            self.path.display().to_string(),
            "--root".into(),
            self.root.display().to_string(),
        ];
        argv.extend(words.iter().map(|word| (*word).to_owned()));
        Program {
            argv,
            env: vec![("PATH".into(), PATH.into())],
            join,
            set_up: self.set_up.clone(),
            ..Program::default()
        }
    }

    async fn try_out(
        &self,
        shim: &ShimClient,
        cgroups: &CgroupHost,
        volatile: &Volatile,
    ) -> Result<(), String> {
        let text = |cause: Cause| cause.to_string();
        let id = trial_id();
        let group = cgroups
            .create_for_runtime(&super::leaf_of(&id), &Limits::default())
            .map_err(|error| error_chain(&error))?;
        let bundle = volatile.make_bundle(&id).map_err(text)?;
        let root = bundle.join("rootfs");
        std::fs::create_dir(&root).map_err(|error| error.to_string())?;
        let config = trial_config(&root, cgroups.path_below_mounts(&group).as_deref());
        let written =
            serde_json::to_vec(&config).map(|bytes| std::fs::write(bundle.join("config.json"), bytes));
        written
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        let program = self.run(&id, &bundle, &bundle.join("pid"), group.join_unified_only());
        let output = output_of(shim, program).await;
        let cleared = group.kill_and_wait().and_then(|()| group.remove());
        remove_tree(&bundle).map_err(text)?;
        remove_tree(&self.root.join(&id)).map_err(text)?;
        cleared.map_err(|error| error_chain(&error))?;
        let output = output.map_err(|error| error_chain(&error))?;
        if output.contains(TRIAL_PROGRAM) {
            return Ok(());
        }
        let line = output.trim().lines().last().unwrap_or_default().to_owned();
        Err(if line.is_empty() {
            "it says nothing".to_owned()
        } else {
            line
        })
    }
}

/// Several drivers may try at a time.
fn trial_id() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("dhow-trial-{}-{count}", std::process::id())
}

/// As the runtime is, and where both versions of control groups are mounted, without the newer: some refuse
/// such a host.
fn ways(cgroups: &CgroupHost) -> Vec<Vec<SetUp>> {
    let mut ways = vec![Vec::new()];
    if let (Layout::Hybrid, Some(path)) = (cgroups.layout(), cgroups.unified_mount()) {
        let path = path.to_owned();
        ways.push(vec![SetUp::PrivateMounts, SetUp::Unmount { path }]);
    }
    ways
}

fn look_up(name: &str) -> Option<PathBuf> {
    let is_program =
        |path: &Path| path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok();
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    let own = std::env::var("PATH").unwrap_or_default();
    let folders = own
        .split(':')
        .chain(PATH.split(':'))
        .filter(|folder| !folder.is_empty());
    folders
        .map(|folder| Path::new(folder).join(name))
        .find(|path| is_program(path))
}

fn trial_config(root: &Path, cgroups_path: Option<&Path>) -> oci::Config {
    oci::Config {
        oci_version: super::bundle::OCI_VERSION,
        process: oci::Process {
            terminal: false,
            console_size: None,
            user: oci::User::default(),
            args: vec![TRIAL_PROGRAM.into()],
            env: vec![format!("PATH={PATH}")],
            cwd: "/".into(),
            capabilities: oci::CapabilitySets::default(),
            rlimits: Vec::new(),
            no_new_privileges: true,
        },
        root: oci::Root {
            path: root.display().to_string(),
            readonly: false,
        },
        hostname: "trial".into(),
        mounts: super::mounts::usual(false),
        linux: oci::Linux {
            namespaces: super::bundle::namespaces(None, None),
            cgroups_path: cgroups_path.map(|path| path.display().to_string()),
            resources: oci::LinuxResources {
                devices: super::devices::rules(&[], false),
            },
            sysctl: Default::default(),
            devices: Vec::new(),
            seccomp: None,
            masked_paths: &[],
            readonly_paths: &[],
            rootfs_propagation: "rprivate",
        },
        annotations: Default::default(),
    }
}

/// Runs a program to its end; gives what it wrote.
async fn output_of(shim: &ShimClient, program: Program) -> Result<String, ShimError> {
    let pipe = || std::io::pipe().map_err(ShimError::Lost);
    let (ours, theirs) = pipe()?;
    let null = std::fs::File::open("/dev/null").map_err(ShimError::Lost)?;
    let stderr = theirs.try_clone().map_err(ShimError::Lost)?;
    let stdio: [OwnedFd; 3] = [null.into(), theirs.into(), stderr.into()];
    let spec = RunSpec {
        program,
        hangs_up: false,
    };
    let mut session = shim.run(spec, stdio).await?;
    let reader = Receiver::from_owned_fd(ours.into()).map_err(ShimError::Lost)?;
    let mut output = Vec::new();
    let read = reader.take(OUTPUT_MAX_BYTES);
    tokio::pin!(read);
    read.read_to_end(&mut output).await.map_err(ShimError::Lost)?;
    session.wait().await?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

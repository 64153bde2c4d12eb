//! `dhow daemon`: the daemon in the foreground, and `--check` for its configuration.

pub mod neighbours;
mod stop;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use dhow_server::plane::runtime::cancel_on_signals;
use dhow_wire::{ConfigSources, DaemonConfig, Findings, Setting, load_config};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::client::default_data_dir;
use crate::daemon::reload::{self, Reread};
use crate::daemon::{Daemon, TcpApi, logging, systemd, worker};
use crate::exit::Exit;
use crate::{input, output};

/// How long threads that block may take at the end.
const RUNTIME_END: Duration = Duration::from_secs(2);

/// Run the daemon in the foreground
///
/// Every setting may stand in the file; a variable wins over the file, a flag over the variable. SIGTERM ends it in
/// order, and everything that it started runs on; SIGHUP reads the configuration again. `dhow daemon stop` ends one
/// that runs.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Variables: DHOW_CONFIG, DHOW_DATA_DIR, DHOW_SOCKET, DHOW_API_ADDR, DHOW_CLUSTER_KEY_FILE, \
                        DHOW_LOG_LEVEL, DHOW_LOG_FORMAT."
)]
pub struct Args {
    /// The configuration file; `-` is the standard input
    #[arg(long, value_name = "FILE", env = "DHOW_CONFIG", hide_env = true)]
    config: Option<PathBuf>,

    /// Where all state is kept; one daemon per directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<OsString>,

    /// The Unix socket of the API
    #[arg(long, value_name = "PATH")]
    socket: Option<OsString>,

    /// The address of the API, or `off`
    #[arg(long, value_name = "IP:PORT")]
    api_addr: Option<OsString>,

    /// The key that the servers of a cluster share
    #[arg(long, value_name = "FILE")]
    cluster_key_file: Option<OsString>,

    /// How much is logged: error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<OsString>,

    /// How it is logged: text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<OsString>,

    /// Only check the configuration and print the effective one as YAML; opens no other file, binds nothing
    #[arg(long)]
    check: bool,

    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    Stop(stop::Args),
}

impl Args {
    fn flags(&self) -> Vec<(Setting, OsString)> {
        let given = [
            (Setting::DataDir, &self.data_dir),
            (Setting::Socket, &self.socket),
            (Setting::ApiAddr, &self.api_addr),
            (Setting::ClusterKeyFile, &self.cluster_key_file),
            (Setting::LogLevel, &self.log_level),
            (Setting::LogFormat, &self.log_format),
        ];
        given
            .into_iter()
            .filter_map(|(setting, value)| Some((setting, value.clone()?)))
            .collect()
    }
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(Verb::Stop(args)) = &args.verb {
        return stop::run(args);
    }
    let config = match load(args) {
        Ok(config) => config,
        Err(findings) => {
            output::findings(&findings);
            return Ok(Exit::BadInput);
        }
    };
    if args.check {
        let yaml = serde_saphyr::to_string(&config).context("the configuration cannot be written as YAML")?;
        output::data(&yaml)?;
        return Ok(Exit::Done);
    }
    let is_stdin = args.config.as_deref() == Some(Path::new("-"));
    let reread = || load(args);
    run_config(&config, (!is_stdin).then_some(&reread))
}

/// Runs a daemon of any mode with this configuration, which may be read again while it runs.
pub fn run_config(config: &DaemonConfig, reread: Reread<'_>) -> anyhow::Result<Exit> {
    logging::start(config.log);
    let runtime = server_runtime()?;
    let outcome = runtime.block_on(serve(config, reread));
    // Reads of a slow disk must not hold the end up.
    runtime.shutdown_timeout(RUNTIME_END);
    match outcome {
        Ok(()) => Ok(Exit::Done),
        Err(error) if error.is::<worker::Refused>() => {
            output::error(&error);
            Ok(Exit::Refused)
        }
        Err(error) => Err(error),
    }
}

/// A daemon has little to compute: a few threads, whatever the machine.
pub fn server_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    const THREADS_MAX: usize = 4;
    dhow_driver::memory::keep_small();
    dhow_driver::files::raise();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.min(THREADS_MAX))
        .enable_all()
        .build()
        .context("the runtime cannot be started")
}

async fn serve(config: &DaemonConfig, reread: Reread<'_>) -> anyhow::Result<()> {
    let cancel = CancellationToken::new();
    cancel_on_signals(cancel.clone()).context("signals cannot be caught")?;
    systemd::keep_alive(cancel.clone());
    let hangups = signal(SignalKind::hangup()).context("signals cannot be caught")?;
    tokio::select! {
        served = run_to_end(config, cancel) => served,
        never = reload::follow(hangups, config, reread) => match never {},
    }
}

async fn run_to_end(config: &DaemonConfig, cancel: CancellationToken) -> anyhow::Result<()> {
    if config.cluster.is_worker_tier_worker() {
        return worker::run(config, cancel).await;
    }
    Daemon::start(config, TcpApi::Required, cancel)
        .await?
        .finish()
        .await
}

/// The configuration of a daemon that was given none: what the environment says, else the defaults.
pub fn config_of_data_dir() -> anyhow::Result<DaemonConfig> {
    let config = load_config(&ConfigSources {
        file: None,
        env: &|name| std::env::var_os(name),
        flags: &[],
        default_data_dir: &default_data_dir(),
    });
    config.map_err(|findings| anyhow::anyhow!("{findings}"))
}

fn load(args: &Args) -> Result<DaemonConfig, Findings> {
    config_of(args.config.as_deref(), &args.flags())
}

/// The configuration that a daemon would have with this file and these flags.
pub fn config_of(file: Option<&Path>, flags: &[(Setting, OsString)]) -> Result<DaemonConfig, Findings> {
    let file = file.map(input::read).transpose()?;
    load_config(&ConfigSources {
        file: file.as_ref().map(|file| (file.name.as_str(), file.text.as_str())),
        env: &|name| std::env::var_os(name),
        flags,
        default_data_dir: &default_data_dir(),
    })
}

//! `dhow up [FILE]`: everything in one command, from a file to running services and their logs.

mod background;
mod stop;

use std::time::Duration;

use anyhow::Context;
use dhow_cli::source_files::FileArgs;
use dhow_core::ids::DeploymentName;
use dhow_core::spec::{DeploymentSpec, TimeSpan};
use dhow_wire::api::ProgressOutcome;
use dhow_wire::{DaemonConfig, LogConfig, LogFormat, LogLevel, Setting};
use tokio_util::sync::CancellationToken;

use super::daemon::{config_of_data_dir, server_runtime};
use super::deploy::{How, deploy_and_watch};
use super::logs::{LogForm, LogQuery, print_logs};
use super::rm;
use super::wait::{Watched, conclude, conclude_before_stop, interrupt, print_endpoints};
use crate::client::{Client, ClientError, Request};
use crate::daemon::{Daemon, TcpApi, logging};
use crate::exit::Exit;
use crate::output;
use crate::progress::{ProgressView, Watch, watch};
use crate::source_files::{self, FromFile};
use stop::{second_signal, stop_on_signals};

/// How long replicas have to end after Ctrl-C, beyond which `up` does not wait for them.
const REMOVE_WITHIN: Duration = Duration::from_secs(60);

/// Deploy a file, show it coming up, and follow its logs
///
/// Where no daemon answers, one is started inside this command: it needs no root and no configuration. Should another one
/// have the API's usual address, and nobody has set one, it is reached on its Unix socket alone. Ctrl-C, SIGTERM
/// and the end of the terminal stop what the command has started.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    from: FileArgs,

    /// Leave everything running in the background and return once it is stable
    #[arg(long, short)]
    detach: bool,

    /// How long to wait for it to become stable
    #[arg(long, value_name = "DURATION", default_value = "120s")]
    timeout: TimeSpan,
}

/// The daemon that this command talks to.
enum Server {
    /// It was there before, or was left in the background.
    Other,
    Own {
        daemon: Box<Daemon>,
        cancel: CancellationToken,
    },
}

pub fn start(args: &Args, host: Option<&str>) -> anyhow::Result<Exit> {
    let client = Client::from_env(host)?;
    // It may have to be a daemon.
    let runtime = server_runtime()?;
    let outcome = runtime.block_on(run(args, client));
    runtime.shutdown_background();
    outcome
}

async fn run(args: &Args, client: Client) -> anyhow::Result<Exit> {
    let read = match source_files::read_for(&args.from, &client).await? {
        Ok(read) => read,
        Err(unread) => {
            unread.show();
            return Ok(Exit::BadInput);
        }
    };
    let stop = CancellationToken::new();
    if !args.detach {
        // Before anything runs, so that no moment is left in which a signal would end this process alone.
        stop_on_signals(&stop).context("signals cannot be caught")?;
    }
    let server = server(args, &client).await?;
    let outcome = match stop.is_cancelled() {
        true => Ok(Exit::Interrupted),
        false => deploy_there(args, &client, &read, &stop).await,
    };
    if let Server::Own { daemon, cancel } = server {
        cancel.cancel();
        daemon.finish().await?;
    }
    outcome
}

/// Deploys to the daemon that answers; what was not there before goes again at the end.
async fn deploy_there(
    args: &Args,
    client: &Client,
    read: &FromFile,
    stop: &CancellationToken,
) -> anyhow::Result<Exit> {
    read.prepare(client).await?;
    let (source, spec) = (read.name.as_str(), &read.spec);
    let is_new = is_absent(client, &spec.deployment).await?;
    let keeps = args.detach || !is_new;
    let outcome = bring_up(args, client, source, spec, (keeps, stop)).await;
    // Where nobody can say whether it was made before something went wrong, it is taken down.
    if !keeps && (outcome.is_ok() || !is_absent(client, &spec.deployment).await.unwrap_or(false)) {
        take_down(client, &spec.deployment).await;
    }
    if !args.detach && keeps && stop.is_cancelled() {
        let name = &spec.deployment;
        output::note(&format!(
            "`{name}` was there before this command and goes on running; `dhow rm {name}` ends it"
        ));
    }
    outcome
}

/// Whether the daemon says that there is no such deployment.
async fn is_absent(client: &Client, deployment: &DeploymentName) -> Result<bool, ClientError> {
    let path = ["deployments", deployment.as_str()];
    match client.fetch(Request::get(&path)).await {
        Ok(_) => Ok(false),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error),
    }
}

/// Finds a daemon, or starts one.
async fn server(args: &Args, client: &Client) -> anyhow::Result<Server> {
    match client.fetch(Request::get(&["cluster"])).await {
        Ok(_) => return Ok(Server::Other),
        Err(error) if error.is_away() && !client.is_named() => {}
        Err(error) => return Err(error.into()),
    }
    let config = config_of_data_dir()?;
    if args.detach {
        background::start(&config, client).await?;
        return Ok(Server::Other);
    }
    own_daemon(config).await
}

async fn own_daemon(config: DaemonConfig) -> anyhow::Result<Server> {
    // What it has to say would stand between the lines of the progress.
    logging::start(LogConfig {
        level: LogLevel::Error,
        format: LogFormat::Text,
    });
    let is_set = std::env::var_os(Setting::ApiAddr.variable()).is_some();
    if let Some(addr) = background::tcp_to_leave(config.api_addr, is_set) {
        output::note(&background::without_tcp(addr));
    }
    let cancel = CancellationToken::new();
    let daemon = Daemon::start(&config, TcpApi::Optional, cancel.clone())
        .await
        .context("no daemon answers, and none could be started here")?;
    output::note(&format!("started a daemon in {}", config.data_dir.display()));
    Ok(Server::Own {
        daemon: Box::new(daemon),
        cancel,
    })
}

/// Deploys, waits, shows; then follows the logs until Ctrl-C.
async fn bring_up(
    args: &Args,
    client: &Client,
    source: &str,
    spec: &DeploymentSpec,
    (keeps, stop): (bool, &CancellationToken),
) -> anyhow::Result<Exit> {
    let stopped = async {
        match args.detach {
            true => interrupt().await,
            false => stop.cancelled().await,
        }
    };
    let (_, what, watched) = deploy_and_watch(
        client,
        source,
        (spec, How::default()),
        args.timeout.to_std(),
        stopped,
    )
    .await?;
    let result = match &watched {
        Watched::Result(result) => result,
        Watched::Interrupted if args.detach => return Ok(conclude(&what, &watched, ProgressOutcome::Ready)),
        Watched::Interrupted => return Ok(Exit::Interrupted),
    };
    let exit = match keeps {
        true => conclude(&what, &watched, ProgressOutcome::Ready),
        false => conclude_before_stop(&what, &watched, ProgressOutcome::Ready),
    };
    if exit != Exit::Done {
        return Ok(exit);
    }
    print_endpoints(client, &result.services, &result.served).await?;
    if args.detach {
        return Ok(exit);
    }
    let query = LogQuery {
        follow: true,
        ..LogQuery::of(spec.deployment.clone())
    };
    let form = LogForm {
        timestamps: false,
        prefix: true,
        json: false,
        ..LogForm::default()
    };
    tokio::select! {
        followed = print_logs(client, &query, form) => followed,
        () = stop.cancelled() => Ok(Exit::Done),
    }
}

/// Removes the deployment and waits until nothing of it runs.
async fn take_down(client: &Client, deployment: &DeploymentName) {
    output::note(&format!("stopping `{deployment}`"));
    let removed = async {
        rm::remove(client, deployment).await?;
        let what = Watch {
            deployment: deployment.clone(),
            revision: None,
            timeout: REMOVE_WITHIN,
        };
        watch(client, &what, &mut ProgressView::new()).await
    };
    tokio::select! {
        removed = removed => if let Err(error) = removed && !error.is_not_found() {
            output::failure(&format!("`{deployment}` could not be stopped: {error}"));
        },
        () = second_signal() => output::note("not waiting for it to end"),
    }
}

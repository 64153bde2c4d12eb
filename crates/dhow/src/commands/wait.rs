//! What every verb does that may wait for its effect: watch with progress, stop at Ctrl-C, say how it ended.

use std::time::Duration;

use dhow_core::ids::DeploymentName;
use dhow_core::spec::TimeSpan;
use dhow_wire::api::{ProgressOutcome, ProgressResult};
use dhow_wire::{ServedEndpoint, ServiceHealthSummary};

use super::endpoints::Viewpoint;
use crate::client::{Client, ClientError};
use crate::exit::Exit;
use crate::output::{self, Table};
use crate::progress::{ProgressView, Watch, watch};

/// Waiting, where a verb returns without it.
#[derive(clap::Args)]
pub struct WaitArgs {
    /// Wait until the deployment is stable
    #[arg(long)]
    pub wait: bool,

    /// How long to wait at most
    #[arg(long, value_name = "DURATION", default_value = "120s", requires = "wait")]
    timeout: TimeSpan,
}

impl WaitArgs {
    pub fn timeout(&self) -> Duration {
        self.timeout.to_std()
    }
}

/// How watching ended.
pub enum Watched {
    Result(ProgressResult),
    /// By Ctrl-C; what was begun goes on.
    Interrupted,
}

/// Ctrl-C.
pub async fn interrupt() {
    if tokio::signal::ctrl_c().await.is_err() {
        // It ends the process then, as it does where nobody catches it.
        std::future::pending::<()>().await;
    }
}

/// Watches until the result or Ctrl-C.
pub async fn until_stable(client: &Client, what: &Watch) -> Result<Watched, ClientError> {
    until_stable_or(client, what, interrupt()).await
}

/// Watches until the result, or until it is to stop.
pub async fn until_stable_or(
    client: &Client,
    what: &Watch,
    stop: impl Future<Output = ()>,
) -> Result<Watched, ClientError> {
    let mut view = ProgressView::new();
    tokio::select! {
        result = watch(client, what, &mut view) => result.map(Watched::Result),
        () = stop => {
            view.clear_after_interrupt();
            Ok(Watched::Interrupted)
        }
    }
}

/// Says how it ended and gives the exit code. `wanted` is the outcome that counts as success.
pub fn conclude(what: &Watch, watched: &Watched, wanted: ProgressOutcome) -> Exit {
    conclude_with(what, watched, wanted, advice)
}

/// The same for something that is stopped right after: there is nothing to look at any more.
pub fn conclude_before_stop(what: &Watch, watched: &Watched, wanted: ProgressOutcome) -> Exit {
    conclude_with(what, watched, wanted, |_, _| String::new())
}

fn conclude_with(
    what: &Watch,
    watched: &Watched,
    wanted: ProgressOutcome,
    advice: impl Fn(&DeploymentName, ProgressOutcome) -> String,
) -> Exit {
    let name = &what.deployment;
    let result = match watched {
        Watched::Result(result) => result,
        Watched::Interrupted => {
            output::note(&format!(
                "no longer watching; `{name}` goes on without it: `dhow status {name}` shows how far it is"
            ));
            return Exit::Interrupted;
        }
    };
    if result.outcome == wanted {
        return Exit::Done;
    }
    let version = what
        .revision
        .map(|revision| format!(" revision {revision}"))
        .unwrap_or_default();
    let what_happened = match result.outcome {
        // Waiting for its removal, and it is stable: somebody deployed it anew.
        ProgressOutcome::Ready => format!("`{name}`{version} is there and stable"),
        ProgressOutcome::Failed => format!("`{name}`{version} failed"),
        ProgressOutcome::TimedOut => format!(
            "`{name}`{version} did not become stable within {:?}",
            what.timeout
        ),
        ProgressOutcome::Superseded => format!("`{name}`{version} was replaced by a newer one"),
        ProgressOutcome::Removed => format!("`{name}`{version} was removed meanwhile"),
    };
    let cause = result.message.trim_end();
    let next = advice(name, result.outcome);
    // Most causes say which deployment and what; nobody wants to read it twice.
    let says_all = cause.lines().next().is_some_and(|first| {
        result.outcome != ProgressOutcome::TimedOut && first.contains(&format!("`{name}`"))
    });
    output::failure(&match (cause.is_empty(), says_all) {
        (true, _) => format!("{what_happened}{next}"),
        (false, true) => format!("{cause}{next}"),
        (false, false) => format!("{what_happened}: {cause}{next}"),
    });
    Exit::Failed
}

fn advice(name: &DeploymentName, outcome: ProgressOutcome) -> String {
    match outcome {
        ProgressOutcome::TimedOut => {
            format!(
                "\n  it goes on: `dhow status {name}` shows how far it is, `dhow explain {name}/SERVICE` why"
            )
        }
        ProgressOutcome::Failed => {
            format!("\n  `dhow history {name}` shows what runs now, `dhow logs {name}` more of the log")
        }
        ProgressOutcome::Ready | ProgressOutcome::Superseded | ProgressOutcome::Removed => String::new(),
    }
}

/// The services with their endpoints, as the end of a deployment shows them.
pub async fn print_endpoints(
    client: &Client,
    services: &[ServiceHealthSummary],
    served: &[ServedEndpoint],
) -> anyhow::Result<()> {
    let viewpoint = Viewpoint::of(client, served).await;
    let mut table = Table::new(&["SERVICE", "RUNNING", "HEALTHY", "ENDPOINTS"]);
    for service in services {
        table.row([
            service.name.clone(),
            running(service),
            yes_no(service.healthy),
            viewpoint.addresses(service, served),
        ]);
    }
    output::data(&table.render())
}

/// How many run of how many, or have done their work; those of other revisions apart while one rolls.
pub fn running(service: &ServiceHealthSummary) -> String {
    let mut text = match service.done {
        Some(done @ 1..) => {
            let works = service.running.saturating_sub(done);
            match works {
                0 => format!("{done}/{} done", service.desired),
                works => format!("{done}/{} done, {works} running", service.desired),
            }
        }
        Some(0) | None => format!("{}/{}", service.running, service.desired),
    };
    if let (Some(updated), Some(outdated)) = (service.updated, service.outdated) {
        text += &format!(" ({updated} new, {outdated} to be replaced)");
    }
    text
}

pub fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.into()
}

/// The whole of `--wait`: watches, says how it ended, and shows the services where it went well.
pub async fn wait_until_stable(client: &Client, what: &Watch) -> anyhow::Result<Exit> {
    let watched = until_stable(client, what).await?;
    let exit = conclude(what, &watched, ProgressOutcome::Ready);
    if let (Exit::Done, Watched::Result(result)) = (exit, &watched) {
        print_endpoints(client, &result.services, &result.served).await?;
    }
    Ok(exit)
}

//! What every verb does that may wait for its effect: watch with progress, stop at Ctrl-C, say how it ended.

use dhow_cli::endpoints::Viewpoint;
use dhow_cli::status;
use dhow_core::ids::DeploymentName;
use dhow_wire::api::{ProgressOutcome, ProgressResult};
use dhow_wire::{ClusterStatus, ServedEndpoint, ServiceHealthSummary};

use crate::client::{Client, ClientError, DaemonAddress, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::{ProgressView, Watch, watch};

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
    let viewpoint = viewpoint(client, served).await;
    output::data(&status::services(services, served, &viewpoint))
}

/// From where the endpoints are looked at. Asks which node answers, where the addresses depend on it.
pub async fn viewpoint(client: &Client, served: &[ServedEndpoint]) -> Viewpoint {
    let host = match client.host() {
        DaemonAddress::Http(url) if !client.host().is_loopback() => url.host_str().map(str::to_owned),
        DaemonAddress::Http(_) | DaemonAddress::Unix(_) => None,
    };
    let node_id = match Viewpoint::depends_on_node(served) {
        false => None,
        true => {
            let answer = client.fetch_as::<ClusterStatus>(Request::get(&["cluster"])).await;
            answer.ok().map(|cluster| cluster.node_id)
        }
    };
    Viewpoint { host, node_id }
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

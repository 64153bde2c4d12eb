//! `dhow ps [DEPLOYMENT]`: replicas with node, revision, state, health, restarts, age.

use dhow_core::ids::DeploymentName;
use dhow_wire::{ReplicaStateName, ReplicaStatus};

use super::target;
use super::wait::yes_no;
use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table};

/// What a row shows of a message; `dhow explain` has the whole.
const MESSAGE_CHARS_MAX: usize = 60;

/// Show replicas: node, revision, state, health, restarts, age
#[derive(clap::Args)]
pub struct Args {
    /// Only of this one
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    deployment: Option<DeploymentName>,

    /// Ended ones too
    #[arg(long, short)]
    all: bool,

    /// Print the API's JSON on stdout
    #[arg(long)]
    json: bool,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let request = Request::get(&["replicas"])
        .query_if("deployment", args.deployment.as_ref())
        .query_if("all", args.all.then_some(true));
    let value = client.fetch(request).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let replicas: Vec<ReplicaStatus> = client.decode(value)?;
    if replicas.is_empty() {
        output::note("no replicas");
        return Ok(Exit::Done);
    }
    output::data(&table(&replicas).render())?;
    Ok(Exit::Done)
}

/// The listing; messages have a column where there are any.
pub fn table(replicas: &[ReplicaStatus]) -> Table {
    let now = output::now_unix_secs();
    let heading = [
        "REPLICA", "NODE", "REVISION", "STATE", "HEALTHY", "RESTARTS", "AGE", "IMAGE",
    ];
    let cells = |replica: &ReplicaStatus| {
        [
            format!("{}/{}", replica.deployment, replica.id),
            replica.node_id.map(|node| node.to_string()).unwrap_or_default(),
            replica
                .revision
                .map(|revision| revision.to_string())
                .unwrap_or_default(),
            state(replica),
            yes_no(replica.healthy),
            replica.restarts.to_string(),
            replica
                .started_unix_secs
                .map(|since| output::age(since, now))
                .unwrap_or_default(),
            replica.image.clone().unwrap_or_default(),
        ]
    };
    if replicas.iter().all(|replica| replica.message.is_none()) {
        let mut table = Table::new(&heading);
        for replica in replicas {
            table.row(cells(replica));
        }
        return table;
    }
    let [a, b, c, d, e, f, g, h] = heading;
    let mut table = Table::new(&[a, b, c, d, e, f, g, h, "MESSAGE"]);
    for replica in replicas {
        let message = output::one_line(replica.message.as_deref().unwrap_or_default());
        let [a, b, c, d, e, f, g, h] = cells(replica);
        table.row([a, b, c, d, e, f, g, h, output::cut(&message, MESSAGE_CHARS_MAX)]);
    }
    table
}

/// The state, and for what has ended how.
fn state(replica: &ReplicaStatus) -> String {
    let has_ended = match replica.state {
        ReplicaStateName::Exited | ReplicaStateName::Failed => true,
        ReplicaStateName::Pending | ReplicaStateName::Pulling | ReplicaStateName::Starting => false,
        ReplicaStateName::Running | ReplicaStateName::Stopping | ReplicaStateName::Lost => false,
    };
    match replica.exit_code {
        Some(code) if has_ended => format!("{}({code})", replica.state),
        Some(_) | None => replica.state.to_string(),
    }
}

//! `dhow ps [DEPLOYMENT]`: replicas with node, revision, state, health, restarts, age.

use dhow_core::ids::DeploymentName;
use dhow_wire::{ProblemCode, ReplicaStateName, ReplicaStatus};

use super::target;
use super::wait::yes_no;
use crate::client::{Client, ClientError, Request};
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

    /// Ask each node what it runs, and show where it says something else than the cluster believes
    #[arg(long)]
    live: bool,

    /// Show what each replica uses: CPU and memory
    #[arg(long, short)]
    usage: bool,

    /// Print the API's JSON on stdout
    #[arg(long)]
    json: bool,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let request = |consistency: Option<&str>| {
        Request::get(&["replicas"])
            .query_if("deployment", args.deployment.as_ref())
            .query_if("all", args.all.then_some(true))
            .query_if("live", args.live.then_some(true))
            .query_if("consistency", consistency)
    };
    let answer = match args.live {
        true => client.fetch_slow(request(None)).await,
        false => client.fetch(request(None)).await,
    };
    let value = match answer {
        Err(ClientError::Problem(problem)) if problem.code == ProblemCode::NoLeader.as_str() => {
            output::note(
                "the cluster has no leader: this is what the node that was asked knows, which may be old",
            );
            client.fetch(request(Some("stale"))).await?
        }
        answer => answer?,
    };
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let replicas: Vec<ReplicaStatus> = client.decode(value)?;
    if replicas.is_empty() {
        output::note("no replicas");
        return Ok(Exit::Done);
    }
    let columns = Columns {
        usage: args.usage,
        live: args.live,
    };
    output::data(&table(&replicas, columns).render())?;
    Ok(Exit::Done)
}

/// Columns beside the usual ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns {
    pub usage: bool,
    pub live: bool,
}

/// The listing; messages have a column where there are any.
pub fn table(replicas: &[ReplicaStatus], columns: Columns) -> Table {
    let now = output::now_unix_secs();
    let has_messages = replicas.iter().any(|replica| replica.message.is_some());
    let mut heading = vec![
        "REPLICA", "NODE", "REVISION", "STATE", "HEALTHY", "RESTARTS", "AGE",
    ];
    heading.extend(columns.usage.then_some(["CPU", "MEMORY"]).into_iter().flatten());
    heading.extend(columns.live.then_some("LIVE"));
    heading.push("IMAGE");
    heading.extend(has_messages.then_some("MESSAGE"));
    let mut table = Table::new(&heading);
    for replica in replicas {
        let mut cells = vec![
            format!("{}/{}", replica.deployment, replica.id),
            number(replica.node_id),
            number(replica.revision),
            state(replica),
            healthy(replica),
            replica.restarts.to_string(),
            replica
                .started_unix_secs
                .map(|since| output::age(since, now))
                .unwrap_or_default(),
        ];
        if columns.usage {
            cells.push(replica.cpu_used_milli.map(output::cores).unwrap_or_default());
            cells.push(replica.memory_used_bytes.map(output::bytes).unwrap_or_default());
        }
        if columns.live {
            cells.push(live(replica));
        }
        cells.push(replica.image.clone().unwrap_or_default());
        if has_messages {
            let message = output::one_line(replica.message.as_deref().unwrap_or_default());
            cells.push(output::cut(&message, MESSAGE_CHARS_MAX));
        }
        table.row(cells);
    }
    table
}

fn number(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// What has done its work has no health.
fn healthy(replica: &ReplicaStatus) -> String {
    match replica.state == ReplicaStateName::Exited && replica.exit_code == Some(0) {
        true => String::new(),
        false => yes_no(replica.healthy),
    }
}

/// What its node says; one that no node has says nothing.
fn live(replica: &ReplicaStatus) -> String {
    match (&replica.live, replica.node_id) {
        (Some(live), _) => output::cut(&output::one_line(live), MESSAGE_CHARS_MAX),
        (None, Some(_)) => "same".into(),
        (None, None) => String::new(),
    }
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

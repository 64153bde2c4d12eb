//! `dhow ps [DEPLOYMENT]`: replicas with node, revision, state, health, restarts, age.

use dhow_core::ids::DeploymentName;
use dhow_wire::{ReplicaStateName, ReplicaStatus};

use crate::human::{age, bytes, cores, cut, one_line};
use crate::shown::{Shown, yes_no};
use crate::table::Table;
use crate::target;

/// What a row shows of a message; `dhow explain` has the whole.
const MESSAGE_CHARS_MAX: usize = 60;

/// Show replicas: node, revision, state, health, restarts, age
#[derive(clap::Args)]
pub struct Args {
    /// Only of this one
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    pub deployment: Option<DeploymentName>,

    /// Ended ones too
    #[arg(long, short)]
    pub all: bool,

    /// Ask each node what it runs, and show where it says something else than the cluster believes
    #[arg(long)]
    pub live: bool,

    /// Show what each replica uses: CPU and memory
    #[arg(long, short)]
    pub usage: bool,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// The listing as a whole.
pub fn shown(replicas: &[ReplicaStatus], columns: Columns, now_unix_secs: i64) -> Shown {
    match replicas.is_empty() {
        true => Shown::Note("no replicas".into()),
        false => Shown::Data(table(replicas, columns, now_unix_secs).render()),
    }
}

/// Columns beside the usual ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns {
    pub usage: bool,
    pub live: bool,
    /// Messages in full, for what reads them from a pipe; a terminal's rows are cut.
    pub whole: bool,
}

/// The listing; messages have a column where there are any.
pub fn table(replicas: &[ReplicaStatus], columns: Columns, now_unix_secs: i64) -> Table {
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
                .map(|since| age(since, now_unix_secs))
                .unwrap_or_default(),
        ];
        if columns.usage {
            cells.push(replica.cpu_used_milli.map(cores).unwrap_or_default());
            cells.push(replica.memory_used_bytes.map(bytes).unwrap_or_default());
        }
        if columns.live {
            cells.push(live(replica));
        }
        cells.push(replica.image.clone().unwrap_or_default());
        if has_messages {
            let message = one_line(replica.message.as_deref().unwrap_or_default());
            cells.push(match columns.whole {
                true => message,
                false => cut(&message, MESSAGE_CHARS_MAX),
            });
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
        (Some(live), _) => cut(&one_line(live), MESSAGE_CHARS_MAX),
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

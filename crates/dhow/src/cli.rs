//! The command line as a whole. Each verb's own arguments stand beside its code.

use clap::{Parser, Subcommand};

use crate::commands::{
    cluster, completions, daemon, deploy, events, exec, explain, history, image, logs, net, node, plan, ps,
    restart, rm, rollback, scale, secret, source, status, token, up, validate, worker,
};

/// A container orchestrator in one binary.
#[derive(Parser)]
#[command(
    name = "dhow",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done; 1 it did not succeed; 2 bad input or usage; 3 no daemon, or no leader, answers; \
                  4 not found or refused by the state.\n\
                  Variables: DHOW_HOST, DHOW_TOKEN, DHOW_DATA_DIR, NO_COLOR."
)]
pub struct Cli {
    /// The daemon: unix://PATH, http://HOST:PORT or https://HOST:PORT; else DHOW_HOST, else the socket in the data
    /// directory
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub host: Option<String>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Up(up::Args),
    Deploy(deploy::Args),
    Validate(validate::Args),
    Plan(plan::Args),
    Status(status::Args),
    Ps(ps::Args),
    Logs(logs::Args),
    Exec(exec::Args),
    Scale(scale::Args),
    Restart(restart::Args),
    Rm(rm::Args),
    History(history::Args),
    Rollback(rollback::Args),
    Explain(explain::Args),
    Events(events::Args),
    Net(net::Args),
    Node(node::Args),
    Cluster(cluster::Args),
    Image(image::Args),
    Secret(secret::Args),
    Source(source::Args),
    Token(token::Args),
    Daemon(daemon::Args),
    Worker(worker::Args),
    Completions(completions::Args),
}

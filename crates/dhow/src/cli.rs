//! The command line as a whole. Each verb's own arguments stand beside its code.

mod examples;

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    cluster, completions, convert, cp, cron, daemon, dashboard, debug, deploy, diff, doctor, events, exec,
    explain, history, image, login, logs, man, net, node, notify, plan, port_forward, ps, rebalance, restart,
    rm, rollback, rollout, scale, schema, secret, source, start, status, stop, token, up, validate, volume,
    worker,
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

/// The verbs that ask no daemon.
const OFFLINE: [&[&str]; 14] = [
    &["debug", "replay"],
    &["doctor"],
    &["man"],
    &["validate"],
    &["convert"],
    &["schema"],
    &["daemon"],
    &["worker"],
    &["completions"],
    &["cluster", "keygen"],
    &["cluster", "restore"],
    &["cluster", "recover"],
    &["source", "keygen"],
    &["source", "sign"],
];

impl Cli {
    /// Reads the process's own command line; says what is wrong with it and ends the process, where anything is.
    pub fn read() -> Self {
        let matches = Self::offered().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The command line as it is shown: verbs that ask no daemon do not offer its address. Given all the same, they say that
    /// it is of no use to them.
    pub fn offered() -> clap::Command {
        let offered = OFFLINE
            .iter()
            .fold(Self::command(), |command, verb| without_host(command, verb));
        examples::add(offered)
    }
}

fn without_host(command: clap::Command, verb: &[&'static str]) -> clap::Command {
    match verb {
        [] => command.arg(Arg::new("host").long("host").value_name("ADDRESS").hide(true)),
        [first, rest @ ..] => command.mut_subcommand(first, |inner| without_host(inner, rest)),
    }
}

#[derive(Subcommand)]
pub enum Command {
    Up(up::Args),
    Deploy(deploy::Args),
    Validate(validate::Args),
    Convert(convert::Args),
    Schema(schema::Args),
    Plan(plan::Args),
    Status(status::Args),
    Ps(ps::Args),
    Logs(logs::Args),
    Exec(exec::Args),
    Cp(cp::Args),
    PortForward(port_forward::Args),
    Scale(scale::Args),
    Stop(stop::Args),
    Start(start::Args),
    Rebalance(rebalance::Args),
    Restart(restart::Args),
    Rm(rm::Args),
    History(history::Args),
    Rollback(rollback::Args),
    Rollout(rollout::Args),
    Explain(explain::Args),
    Cron(cron::Args),
    Diff(diff::Args),
    Events(events::Args),
    Dashboard(dashboard::Args),
    Net(net::Args),
    Node(node::Args),
    Cluster(cluster::Args),
    Image(image::Args),
    Login(login::Args),
    Logout(login::LogoutArgs),
    Volume(volume::Args),
    Secret(secret::Args),
    Source(source::Args),
    Notify(notify::Args),
    Token(token::Args),
    Daemon(daemon::Args),
    Worker(worker::Args),
    Doctor(doctor::Args),
    Debug(debug::Args),
    Completions(completions::Args),
    Man(man::Args),
}

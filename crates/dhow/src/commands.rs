//! The verbs of the command line, one file each.

pub mod at;
pub mod cluster;
pub mod complete;
pub mod completions;
pub mod convert;
pub mod cp;
pub mod cron;
pub mod daemon;
pub mod dashboard;
pub mod debug;
pub mod deploy;
pub mod diff;
pub mod doctor;
pub mod events;
pub mod exec;
pub mod explain;
pub mod history;
pub mod image;
pub mod listing;
pub mod login;
pub mod logs;
pub mod man;
pub mod net;
pub mod node;
pub mod notify;
pub mod plan;
pub mod port_forward;
pub mod ps;
pub mod rebalance;
pub mod restart;
pub mod rm;
pub mod rollback;
pub mod rollout;
pub mod scale;
pub mod schema;
pub mod secret;
pub mod source;
pub mod start;
pub mod status;
pub mod stop;
pub mod token;
pub mod up;
pub mod validate;
pub mod volume;
pub mod wait;
pub mod worker;

use anyhow::Context;

use crate::cli::{Cli, Command};
use crate::client::{Client, ClientError};
use crate::exit::Exit;
use crate::output;

/// Runs one command. What it could not do is said on stderr, with its causes.
pub fn run(cli: Cli) -> Exit {
    let host = cli.host.as_deref();
    let result = match &cli.command {
        Command::Up(args) => up::start(args, host),
        Command::Validate(args) => offline(host, || validate::run(args)),
        Command::Schema(schema::Args {}) => offline(host, schema::run),
        Command::Convert(args) => offline(host, || convert::run(args)),
        Command::Daemon(args) => offline(host, || daemon::run(args)),
        Command::Worker(args) => offline(host, || worker::run(args)),
        Command::Completions(args) => offline(host, || completions::run(args)),
        Command::Man(args) => offline(host, || man::run(args)),
        Command::Doctor(args) => offline(host, || doctor::run(args)),
        Command::Debug(args) => offline(host, || debug::run(args)),
        Command::Plan(args) => online(host, async |client| plan::run(args, &client).await),
        Command::Deploy(args) => online(host, async |client| deploy::run(args, &client).await),
        Command::Status(args) => online(host, async |client| status::run(args, &client).await),
        Command::Ps(args) => online(host, async |client| ps::run(args, &client).await),
        Command::Logs(args) => online(host, async |client| logs::run(args, &client).await),
        Command::Exec(args) => online(host, async |client| exec::run(args, &client).await),
        Command::Cp(args) => online(host, async |client| cp::run(args, &client).await),
        Command::PortForward(args) => online(host, async |client| port_forward::run(args, &client).await),
        Command::Scale(args) => online(host, async |client| scale::run(args, &client).await),
        Command::Stop(args) => online(host, async |client| stop::run(args, &client).await),
        Command::Start(args) => online(host, async |client| start::run(args, &client).await),
        Command::Rebalance(args) => online(host, async |client| rebalance::run(args, &client).await),
        Command::Restart(args) => online(host, async |client| restart::run(args, &client).await),
        Command::Rm(args) => online(host, async |client| rm::run(args, &client).await),
        Command::History(args) => online(host, async |client| history::run(args, &client).await),
        Command::Rollback(args) => online(host, async |client| rollback::run(args, &client).await),
        Command::Rollout(args) => online(host, async |client| rollout::run(args, &client).await),
        Command::Explain(args) => online(host, async |client| explain::run(args, &client).await),
        Command::Diff(args) => online(host, async |client| diff::run(args, &client).await),
        Command::Events(args) => online(host, async |client| events::run(args, &client).await),
        Command::Dashboard(args) => online(host, async |client| dashboard::run(args, client).await),
        Command::Cron(args) => online(host, async |client| cron::run(args, &client).await),
        Command::Net(args) => online(host, async |client| net::run(args, &client).await),
        Command::Node(args) => online(host, async |client| node::run(args, &client).await),
        Command::Cluster(args) if args.is_offline() => offline(host, || cluster::run_offline(args)),
        Command::Cluster(args) => online(host, async |client| cluster::run(args, &client).await),
        Command::Image(args) => online(host, async |client| image::run(args, &client).await),
        Command::Login(args) => online(host, async |client| login::run(args, &client).await),
        Command::Logout(args) => online(host, async |client| login::logout(args, &client).await),
        Command::Volume(args) => online(host, async |client| volume::run(args, &client).await),
        Command::Secret(args) => online(host, async |client| secret::run(args, &client).await),
        Command::Source(args) if args.is_offline() => offline(host, || source::run_offline(args)),
        Command::Source(args) => online(host, async |client| source::run(args, &client).await),
        Command::Notify(args) => online(host, async |client| notify::run(args, &client).await),
        Command::Token(args) => online(host, async |client| token::run(args, &client).await),
    };
    result.unwrap_or_else(|error| {
        output::error(&error);
        let exit = error.downcast_ref::<ClientError>().map(ClientError::exit);
        exit.unwrap_or(Exit::Failed)
    })
}

/// A verb that asks no daemon, and so has no use for its address.
fn offline(host: Option<&str>, run: impl FnOnce() -> anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    if host.is_some() {
        output::failure("this command asks no daemon: leave --host out");
        return Ok(Exit::BadInput);
    }
    run()
}

/// A verb that asks the daemon.
fn online(host: Option<&str>, run: impl AsyncFnOnce(Client) -> anyhow::Result<Exit>) -> anyhow::Result<Exit> {
    let client = Client::from_env(host)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let result = runtime.block_on(run(client));
    // A read of the terminal that nobody waits for any more must not hold the end up.
    runtime.shutdown_background();
    result
}

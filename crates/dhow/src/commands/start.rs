//! `dhow start DEPLOYMENT[/SERVICE]`: runs again what was stopped.

use dhow_cli::start;
pub use dhow_cli::start::Args;

use super::stop;
use super::wait::wait_until_stable;
use crate::client::Client;
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let done = stop::ask(client, &args.target, "start").await?;
    output::note(&start::said(&args.target, done.changed));
    if !args.wait.wait {
        return Ok(Exit::Done);
    }
    let what = Watch {
        deployment: args.target.deployment.clone(),
        revision: None,
        timeout: args.wait.timeout(),
    };
    wait_until_stable(client, &what).await
}

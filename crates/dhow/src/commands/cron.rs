//! `dhow cron ls|run|next`: schedules, their runs, and when they come next.

use std::time::{Duration, Instant};

pub use dhow_cli::cron::Args;
use dhow_cli::cron::{self, Command, LsArgs, NextArgs, RunArgs};
use dhow_cli::target::NamedTarget;
use dhow_wire::api::{CronStatus, RunBegun, RunRequest, RunStatus};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// How often a run that is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    match &args.command {
        Command::Ls(args) => ls(args, client).await,
        Command::Run(args) => start(args, client).await,
        Command::Next(args) => next(args, client).await,
    }
}

async fn ls(args: &LsArgs, client: &Client) -> anyhow::Result<Exit> {
    let (deployment, service) = cron::asked(args.target.as_ref());
    let request = Request::get(&["crons"])
        .query_if("deployment", deployment)
        .query_if("service", service);
    let value = client.fetch(request).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let crons: Vec<CronStatus> = client.decode(value)?;
    let now = output::now_unix_secs();
    let shown = match (service, crons.as_slice()) {
        (Some(_), [one]) => cron::runs(one, now),
        (Some(_) | None, all) => cron::list(all, now),
    };
    output::show(&shown)?;
    Ok(Exit::Done)
}

async fn next(args: &NextArgs, client: &Client) -> anyhow::Result<Exit> {
    let value = client.fetch(of(&args.target).query("next", args.count)).await?;
    if args.json {
        output::json(&value)?;
        return Ok(Exit::Done);
    }
    let crons: Vec<CronStatus> = client.decode(value)?;
    let Some(one) = crons.first() else {
        return Ok(no_schedule(&args.target));
    };
    output::show(&cron::next(one))?;
    Ok(Exit::Done)
}

fn of(target: &NamedTarget) -> Request<'static> {
    Request::get(&["crons"])
        .query("deployment", &target.deployment)
        .query("service", &target.name)
}

fn no_schedule(target: &NamedTarget) -> Exit {
    let NamedTarget { deployment, name } = target;
    output::failure(&format!(
        "`{deployment}/{name}` has no schedule; `dhow cron ls` lists those that have"
    ));
    Exit::Refused
}

async fn start(args: &RunArgs, client: &Client) -> anyhow::Result<Exit> {
    let NamedTarget { deployment, name } = &args.target;
    let path = ["deployments", deployment.as_str(), "runs"];
    let body = serde_json::to_value(RunRequest {
        service: name.clone(),
    })?;
    let begun: RunBegun = client.fetch_as(Request::post(&path).json(body)).await?;
    output::note(&cron::begun(&args.target, &begun));
    if !args.wait {
        return Ok(Exit::Done);
    }
    let ends = args.timeout.map(|span| Instant::now() + span.to_std());
    loop {
        let found: Vec<CronStatus> = client.fetch_as(of(&args.target)).await?;
        let runs = found.into_iter().flat_map(|cron| cron.runs);
        let run: Option<RunStatus> = runs.into_iter().find(|run| run.run == begun.run);
        let Some(run) = run else {
            output::failure(&format!(
                "run {} is not kept any more: nobody can say how it ended",
                begun.run
            ));
            return Ok(Exit::Failed);
        };
        if run.state.is_ended() {
            return Ok(match cron::ended(&args.target, &run) {
                Ok(text) => {
                    output::note(&text);
                    Exit::Done
                }
                Err(text) => {
                    output::failure(&text);
                    Exit::Failed
                }
            });
        }
        if let (Some(ends), Some(timeout)) = (ends, args.timeout)
            && Instant::now() >= ends
        {
            output::failure(&format!(
                "run {} did not end within {timeout}; it goes on",
                begun.run
            ));
            return Ok(Exit::Failed);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

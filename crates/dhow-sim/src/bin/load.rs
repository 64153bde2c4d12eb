//! The load generator's command line. `bench/ten-thousand-workers` and `bench/thirty-thousand-workers` call it; figures go
//! to stdout. It starts itself again for the processes that have the workers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use dhow_sim::load::{Bar, Options, SQUAD, run, serve_squad};
use tokio::signal::unix::{SignalKind, signal};

/// Thousands of workers against three real servers
#[derive(Parser)]
#[command(args_override_self = true)]
struct Args {
    /// The daemon's binary
    #[arg(long, default_value = "target/release/dhow")]
    dhow: PathBuf,
    #[arg(long, default_value_t = 10_000)]
    workers: usize,
    /// Processes that have the workers: each needs a file for each of its own
    #[arg(long, default_value_t = 1)]
    processes: usize,
    /// What to measure, in this order, after the joining: steady, deploy, slow-readers, churn, failover,
    /// paused-follower, slow-follower, follower-without-leader, follower-without-workers, dead-follower, deaths, reconnect,
    /// one-use; without any, all of these. Or by itself: interest
    bars: Vec<String>,
    /// Workers that join at the same moment
    #[arg(long, default_value_t = 500)]
    at_once: usize,
    /// Services of a hundred replicas; without it, one for ten workers
    #[arg(long)]
    services: Option<usize>,
    /// How long nothing happens
    #[arg(long, default_value_t = 60)]
    steady_secs: u64,
    /// How often the leader is killed
    #[arg(long, default_value_t = 1)]
    kills: usize,
    /// How long a follower is paused, slow or cut off
    #[arg(long, default_value_t = 60)]
    pause_secs: u64,
    /// Workers that die with a follower
    #[arg(long, default_value_t = 500)]
    dead: usize,
    /// All workers call from one address, as behind a router that translates addresses
    #[arg(long, conflicts_with = "firewall")]
    one_address: bool,
    /// Cut workers and servers off with iptables too, as root
    #[arg(long)]
    firewall: bool,
}

fn main() -> ExitCode {
    let ended = match std::env::args().nth(1).as_deref() {
        Some(SQUAD) => have_workers(),
        _ => begin(Args::parse()),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn have_workers() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve_squad());
    // Thousands of connections need not be closed one by one.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

fn begin(args: Args) -> anyhow::Result<ExitCode> {
    let mut bars = vec![Bar::Join];
    for word in &args.bars {
        bars.push(Bar::named(word).ok_or_else(|| anyhow::anyhow!("there is no bar {word:?}; see --help"))?);
    }
    if args.bars.is_empty() {
        bars = Bar::ALL.to_vec();
    }
    bars.dedup();
    let options = Options {
        binary: args.dhow,
        generator: std::env::current_exe()?,
        processes: args.processes,
        workers: args.workers,
        bars,
        at_once: args.at_once,
        services: args.services.unwrap_or((args.workers / 10).max(1)),
        steady: Duration::from_secs(args.steady_secs),
        kills: args.kills,
        pause: Duration::from_secs(args.pause_secs),
        dead: args.dead,
        one_address: args.one_address,
        firewall: args.firewall,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // However it ends, the servers end with it.
    let report = runtime.block_on(async {
        let mut told = signal(SignalKind::terminate())?;
        tokio::select! {
            report = run(options) => report,
            _ = told.recv() => bail!("ended by a signal"),
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })?;
    let untrue = report.untrue();
    untrue
        .iter()
        .for_each(|line| eprintln!("this must hold and does not: {line}"));
    Ok(if untrue.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

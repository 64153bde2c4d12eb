//! The load generator's command line. `bench/ten-thousand-workers` calls it; figures go to stdout.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use dhow_sim::load::{Bar, Options, run};
use tokio::signal::unix::{SignalKind, signal};

/// Thousands of workers against three real servers
#[derive(Parser)]
struct Args {
    /// The daemon's binary
    #[arg(long, default_value = "target/release/dhow")]
    dhow: PathBuf,
    #[arg(long, default_value_t = 10_000)]
    workers: usize,
    /// What to measure, in this order, after the joining: steady, deploy, slow-readers, churn, failover, deaths,
    /// reconnect, one-use; without any, everything
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
    /// Cut workers off with iptables too
    #[arg(long)]
    firewall: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match begin(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn begin(args: Args) -> anyhow::Result<ExitCode> {
    let mut bars = vec![Bar::Join];
    for word in &args.bars {
        let bar = Bar::ALL.into_iter().find(|bar| bar.word() == word);
        bars.push(bar.ok_or_else(|| anyhow::anyhow!("there is no bar {word:?}; see --help"))?);
    }
    if args.bars.is_empty() {
        bars = Bar::ALL.to_vec();
    }
    bars.dedup();
    let options = Options {
        binary: args.dhow,
        workers: args.workers,
        bars,
        at_once: args.at_once,
        services: args.services.unwrap_or((args.workers / 10).max(1)),
        steady: Duration::from_secs(args.steady_secs),
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

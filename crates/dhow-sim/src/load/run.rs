//! A run: the servers, the workers, and the bars one after the other.

use std::path::PathBuf;
use std::time::Duration;

use super::bars::Bar;
use super::fleet::Fleet;
use super::report::Report;
use super::servers::Servers;
use super::talk::{Interests, Setup};

/// What a run is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The daemon.
    pub binary: PathBuf,
    /// The load generator itself, which has the workers in processes of their own.
    pub generator: PathBuf,
    pub processes: usize,
    pub workers: usize,
    pub bars: Vec<Bar>,
    /// Workers that join at the same moment.
    pub at_once: usize,
    /// Services of a hundred replicas each.
    pub services: usize,
    pub steady: Duration,
    /// How often the leader is killed.
    pub kills: usize,
    /// How long a follower is ill.
    pub pause: Duration,
    /// Workers that die with a follower.
    pub dead: usize,
    /// All workers call from one address, as behind a router that translates addresses.
    pub one_address: bool,
    /// Cuts workers and servers off with the firewall too: needs root.
    pub firewall: bool,
}

impl Options {
    pub(super) fn is_about_interest(&self) -> bool {
        self.bars.contains(&Bar::Interest)
    }

    pub(super) fn interests(&self) -> Interests {
        Interests::of(self.workers)
    }
}

/// Everything that a bar needs.
pub struct Stage {
    pub options: Options,
    pub servers: Servers,
    pub fleet: Fleet,
    pub report: Report,
    /// Resident memory of each server before the first worker came.
    pub resident_empty_bytes: Vec<u64>,
    /// Replicas that are deployed.
    pub replicas: u64,
}

impl Stage {
    /// Workers that want to join with a token of so many uses, in processes of their own.
    pub async fn crowd(
        servers: &Servers,
        options: &Options,
        count: usize,
        uses: usize,
    ) -> anyhow::Result<Fleet> {
        let setup = Setup {
            servers: servers.worker_addrs(),
            token: servers.worker_token(uses, options.is_about_interest())?,
            places: 0..count,
            at_once: options.at_once,
            one_address: options.one_address,
            interests: options.is_about_interest().then(|| options.interests()),
        };
        Fleet::start(&options.generator, setup, options.processes).await
    }
}

/// Runs all bars. What is measured is printed as it comes.
pub async fn run(options: Options) -> anyhow::Result<Report> {
    let mut servers = Servers::start(&options.binary, options.firewall).await?;
    servers.until_leader().await?;
    let empty = servers
        .places()
        .map(|place| Ok(servers.usage(place)?.resident_bytes));
    let resident_empty_bytes = empty.collect::<anyhow::Result<_>>()?;
    let fleet = Stage::crowd(&servers, &options, options.workers, options.workers).await?;
    let mut stage = Stage {
        options,
        servers,
        fleet,
        report: Report::default(),
        resident_empty_bytes,
        replicas: 0,
    };
    for bar in stage.options.bars.clone() {
        if let Err(error) = bar.measure(&mut stage).await {
            eprintln!("{}", stage.servers.said());
            return Err(error.context(format!("while measuring {bar:?}")));
        }
    }
    Ok(stage.report)
}

//! A run: the servers, the workers, and the bars one after the other.

use std::path::PathBuf;
use std::time::Duration;

use super::bars::Bar;
use super::fleet::Fleet;
use super::report::Report;
use super::servers::Servers;
use super::worker::Invitation;

/// What a run is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The daemon.
    pub binary: PathBuf,
    pub workers: usize,
    pub bars: Vec<Bar>,
    /// Workers that join at the same moment.
    pub at_once: usize,
    /// Services of a hundred replicas each.
    pub services: usize,
    pub steady: Duration,
    /// Cuts workers off with the firewall too: needs root.
    pub firewall: bool,
}

/// Everything that a bar needs.
pub struct Stage {
    pub options: Options,
    pub servers: Servers,
    pub fleet: Fleet,
    pub report: Report,
    /// Resident memory of the leader before the first worker came.
    pub resident_empty_bytes: u64,
    /// Replicas that are deployed.
    pub replicas: u64,
}

/// Runs all bars. What is measured is printed as it comes.
pub async fn run(options: Options) -> anyhow::Result<Report> {
    let mut servers = Servers::start(&options.binary).await?;
    let leader = servers.until_leader().await?;
    let resident_empty_bytes = servers.usage(leader)?.resident_bytes;
    let token = servers.worker_token(options.workers)?;
    let invitation = Invitation::new(&token)?;
    let fleet = Fleet::start(
        servers.worker_addrs(),
        invitation,
        options.workers,
        options.at_once,
    );
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

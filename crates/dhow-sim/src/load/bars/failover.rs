//! The leader is killed, again and again: the sessions of the other servers go on, nobody is given up, nothing restarts,
//! and a deployment goes through.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{Instant, sleep};

use super::{PATIENCE, Stage, secs};
use crate::load::latencies::Quantiles;
use crate::load::talk::{Look, Timing};

const REPLICAS: u32 = 100;
const DEPLOY_AGAIN: Duration = Duration::from_millis(20);
const COUNT_EVERY: Duration = Duration::from_millis(250);
const DEPLOY_P50: Duration = Duration::from_secs(1);
const DEPLOY_MAX: Duration = Duration::from_secs(3);
const REOPEN_P95: Duration = Duration::from_secs(5);
const REOPEN_MAX: Duration = Duration::from_secs(8);

/// What one kill has shown.
struct Kill {
    deploy_taken: Duration,
    /// From the end of a session of the dead leader to the next one of its node.
    reopening: Quantiles,
    /// Sessions of the servers that live.
    broken_elsewhere: u64,
    lost: u64,
}

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let before = stage.fleet.look().await?;
    let mut kills = Vec::new();
    for round in 0..stage.options.kills.max(1) {
        let kill = kill_leader(stage, round).await?;
        let told = format!(
            "deploy taken after {}, its sessions again: {}, {} given up",
            secs(kill.deploy_taken),
            kill.reopening,
            kill.lost
        );
        stage.report.tell(&format!("kill {}", round + 1), told);
        kills.push(kill);
    }
    let taken: Vec<Duration> = kills.iter().map(|kill| kill.deploy_taken).collect();
    let slowest = |of: fn(&Quantiles) -> Duration| kills.iter().map(|kill| of(&kill.reopening)).max();
    let (p95, all) = (slowest(|times| times.p95), slowest(|times| times.max));
    let broken: u64 = kills.iter().map(|kill| kill.broken_elsewhere).sum();
    let lost = kills.iter().map(|kill| kill.lost).max().unwrap_or_default();
    let report = &mut stage.report;
    let taken = Quantiles::of_times(&taken);
    report.bar(
        "a deploy is taken after the kill",
        taken.to_string(),
        "p50 1 s, max 3 s",
        taken.p50 <= DEPLOY_P50 && taken.max <= DEPLOY_MAX,
    );
    let (p95, all) = (p95.unwrap_or_default(), all.unwrap_or_default());
    report.bar(
        "the dead leader's sessions open again",
        format!("p95 {}, all {}", secs(p95), secs(all)),
        "p95 5 s, all 8 s",
        p95 <= REOPEN_P95 && all <= REOPEN_MAX,
    );
    report.truth(
        "sessions of other servers that broke",
        broken.to_string(),
        "0",
        broken == 0,
    );
    // The server that was killed is a node too, and is one of them.
    report.truth(
        "workers given up",
        lost.to_string(),
        "0, or 1 with the server",
        lost <= 1,
    );
    let deployed = u64::from(REPLICAS) * kills.len() as u64;
    stage.nothing_moved(&before, deployed).await
}

async fn kill_leader(stage: &mut Stage, round: usize) -> anyhow::Result<Kill> {
    let leader = stage.servers.until_leader().await?;
    stage.fleet.take(Timing::Reopening).await?;
    let before = stage.fleet.look().await?;
    let began = Instant::now();
    stage.servers.kill(leader)?;
    deploy_anywhere(stage, &format!("after-kill-{round}")).await?;
    let deploy_taken = began.elapsed();
    stage.replicas += u64::from(REPLICAS);
    stage
        .until_running("a deployment after a kill", stage.replicas)
        .await?;
    let lost = until_all_back(stage).await?;
    let after = stage.fleet.look().await?;
    let kill = Kill {
        deploy_taken,
        reopening: stage.fleet.take(Timing::Reopening).await?,
        broken_elsewhere: broken_elsewhere(&before, &after, leader),
        lost,
    };
    stage.servers.start_one(leader)?;
    stage.until_caught_up(leader).await?;
    Ok(kill)
}

/// Waits until all have a session again; the most nodes that were unreachable at any time until then.
async fn until_all_back(stage: &mut Stage) -> anyhow::Result<u64> {
    let (began, mut most) = (Instant::now(), 0);
    loop {
        let look = stage.fleet.look().await?;
        most = most.max(stage.nodes().await?.unreachable);
        if look.open() == stage.options.workers {
            return Ok(most);
        }
        let goes_on = look.is_whole() && began.elapsed() < PATIENCE;
        ensure!(goes_on, "after a kill {} sessions are open\n{look}", look.open());
        sleep(COUNT_EVERY).await;
    }
}

/// As a person does who knows all servers: one after the other, until one takes it.
async fn deploy_anywhere(stage: &Stage, name: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut last = None;
    while began.elapsed() < PATIENCE {
        for place in stage.servers.running() {
            let file = super::deploy::file(name, 1, REPLICAS);
            match stage.servers.api(place).deploy(file).await {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        sleep(DEPLOY_AGAIN).await;
    }
    Err(last
        .unwrap_or_else(|| anyhow::anyhow!("no server runs"))
        .context("no server takes a deployment"))
}

/// Sessions that ended at servers other than this one.
pub(super) fn broken_elsewhere(before: &Look, after: &Look, server: usize) -> u64 {
    let ended = before.ended_at.iter().zip(&after.ended_at).enumerate();
    let others = ended.filter(|(place, _)| *place != server);
    others.map(|(_, (before, after))| after - before).sum()
}

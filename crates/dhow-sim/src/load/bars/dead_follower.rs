//! A server that does not lead is killed together with some of its workers: the dead are replaced, and nobody else is.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::failover::broken_elsewhere;
use super::{PATIENCE, Stage, secs};
use crate::load::order::Order;
use crate::load::talk::Timing;

const BAR: Duration = Duration::from_secs(60);
const COUNT_EVERY: Duration = Duration::from_millis(250);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let follower = stage.busiest_follower().await?;
    stage.until_quiet().await?;
    stage.fleet.take(Timing::Reopening).await?;
    let before = stage.fleet.look().await?;
    let held = before.open_at.get(follower).copied().unwrap_or_default();
    let dead = stage.options.dead.min(held / 2);
    let began = Instant::now();
    // It tells nobody of the workers that die with it.
    stage.servers.pause(follower)?;
    stage.fleet.give_at(follower, dead, Order::Reset).await?;
    stage.servers.kill(follower)?;
    let lost = stage.replicas.saturating_sub(stage.fleet.look().await?.running);
    let (took, unreachable) = until_replaced(stage, dead, began).await?;
    let living = stage.options.workers - dead;
    stage.until_open("after a follower has died", living).await?;
    stage.until_quiet().await?;
    let after = stage.fleet.look().await?;
    let twice = stage.fleet.twice().await?;
    let reopening = stage.fleet.take(Timing::Reopening).await?;
    let broken = broken_elsewhere(&before, &after, follower);
    let report = &mut stage.report;
    let measured = format!(
        "{lost} replicas of {dead} workers of server {} after {}",
        follower + 1,
        secs(took)
    );
    report.bar("replaced", measured, "60 s", took < BAR);
    report.tell("the living have a session again", reopening.to_string());
    // The server is a node too.
    let given_up = unreachable.saturating_sub(dead as u64);
    report.truth(
        "given up beside the dead",
        given_up.to_string(),
        "0, or 1 with the server",
        given_up <= 1,
    );
    let starts = after.started - before.started;
    report.truth(
        "replicas started",
        starts.to_string(),
        &lost.to_string(),
        starts == lost,
    );
    let stops = after.stopped - before.stopped;
    report.truth("replicas stopped", stops.to_string(), "0", stops == 0);
    report.truth("replicas that run twice", twice.to_string(), "0", twice == 0);
    report.truth(
        "sessions of other servers that broke",
        broken.to_string(),
        "0",
        broken == 0,
    );
    stage.servers.start_one(follower)?;
    stage.until_caught_up(follower).await?;
    super::deaths::come_back(stage).await?;
    let twice = stage.fleet.twice().await?;
    stage.report.truth(
        "replicas that run twice in the end",
        twice.to_string(),
        "0",
        twice == 0,
    );
    Ok(())
}

/// Waits until all replicas run and all dead are known to be; tells how long the first took since then, and the most
/// nodes that were unreachable at any time.
async fn until_replaced(stage: &mut Stage, dead: usize, since: Instant) -> anyhow::Result<(Duration, u64)> {
    let (mut replaced, mut most) = (None, 0);
    while since.elapsed() < PATIENCE {
        let running = stage.fleet.look().await?.running;
        let unreachable = stage.nodes().await?.unreachable;
        most = most.max(unreachable);
        if running == stage.replicas {
            replaced.get_or_insert(since.elapsed());
        }
        if let Some(took) = replaced.filter(|_| unreachable >= dead as u64) {
            return Ok((took, most));
        }
        sleep(COUNT_EVERY).await;
    }
    let look = stage.fleet.look().await?;
    anyhow::bail!("{dead} dead workers are not replaced, {most} nodes are unreachable\n{look}");
}

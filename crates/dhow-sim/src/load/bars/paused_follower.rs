//! A server that does not lead stands still and goes on: its workers find others, nobody is given up, nothing restarts.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::failover::broken_elsewhere;
use super::{PATIENCE, Stage, secs};
use crate::load::talk::Timing;

const COUNT_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let follower = stage.busiest_follower().await?;
    stage.fleet.take(Timing::Reopening).await?;
    let before = stage.fleet.look().await?;
    let held = before.open_at.get(follower).copied().unwrap_or_default();
    let began = Instant::now();
    stage.servers.pause(follower)?;
    let mut lost = 0;
    while began.elapsed() < stage.options.pause {
        sleep(COUNT_EVERY).await;
        lost = lost.max(stage.nodes().await?.unreachable);
    }
    stage.servers.go_on(follower)?;
    let resumed = Instant::now();
    stage.until_all_open("after a pause").await?;
    stage.until_caught_up(follower).await?;
    while stage.nodes().await?.unreachable > 0 && resumed.elapsed() < PATIENCE {
        lost = lost.max(stage.nodes().await?.unreachable);
        sleep(COUNT_EVERY).await;
    }
    let opened = resumed.elapsed();
    let after = stage.fleet.look().await?;
    let left = stage.nodes().await?.unreachable;
    let reopening = stage.fleet.take(Timing::Reopening).await?;
    let broken = broken_elsewhere(&before, &after, follower);
    let report = &mut stage.report;
    let told = format!(
        "server {} for {}, {held} sessions",
        follower + 1,
        secs(stage.options.pause)
    );
    report.tell("paused", told);
    report.tell("without a session", reopening.to_string());
    report.tell("all is as before, after it goes on", secs(opened));
    report.truth(
        "sessions of other servers that broke",
        broken.to_string(),
        "0",
        broken == 0,
    );
    report.truth(
        "workers given up",
        lost.to_string(),
        "0, or 1 with the server",
        lost <= 1,
    );
    stage.none_is_lost("nodes that are unreachable", left);
    stage.nothing_moved(&before, 0).await
}

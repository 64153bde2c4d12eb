//! One worker in twenty has a session and does not read: nobody else is to notice.

use std::time::Duration;

use super::{Stage, secs};
use crate::load::order::Order;

/// Long enough for what they are told to pile up, short enough for their lease.
const SLOW_FOR: Duration = Duration::from_secs(5);
const REPLICAS: u32 = 200;

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let slow = 0..stage.some();
    stage.fleet.give(slow.clone(), Order::ReadNothing).await?;
    let leader = stage.servers.until_leader().await?;
    let file = super::deploy::file("slow", 1, REPLICAS);
    stage.servers.api(leader).deploy(file).await?;
    tokio::time::sleep(SLOW_FOR).await;
    let before = stage.fleet.look().await?.running.saturating_sub(stage.replicas);
    stage.fleet.give(slow, Order::Live).await?;
    stage.replicas += u64::from(REPLICAS);
    let took = stage.until_running("after reading again", stage.replicas).await?;
    let report = &mut stage.report;
    report.tell(
        "ran while one in twenty did not read",
        format!("{before} of {REPLICAS}"),
    );
    report.tell("all, after they read again", secs(took));
    let lost = stage.nodes().await?.unreachable;
    stage.none_is_lost("nodes that are unreachable", lost);
    Ok(())
}

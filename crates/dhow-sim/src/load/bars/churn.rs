//! Workers lose their connection and come back within the grace, again and again: nothing moves.

use std::time::Duration;

use super::{Stage, secs};
use crate::load::order::Order;

const ROUNDS: usize = 3;
const AWAY: Duration = Duration::from_secs(2);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let some = stage.some();
    let revision = stage.until_quiet().await?;
    let before = stage.fleet.look().await?;
    let mut longest = Duration::ZERO;
    for round in 0..ROUNDS {
        let places = round * some..(round + 1) * some;
        stage.fleet.give(places.clone(), Order::Reset).await?;
        tokio::time::sleep(AWAY).await;
        stage.fleet.give(places, Order::Live).await?;
        longest = longest.max(stage.until_all_open("after churn").await?);
    }
    let entries = stage.until_quiet().await? - revision;
    let lost = stage.nodes().await?.unreachable;
    stage.report.tell("all back after", secs(longest));
    stage.report.tell("log entries", entries.to_string());
    stage.none_is_lost("nodes that are unreachable", lost);
    stage.nothing_moved(&before, 0).await
}

//! Workers lose their connection and come back within the grace, again and again: nothing moves.

use std::time::Duration;

use super::{Stage, secs};
use crate::load::order::Order;

const ROUNDS: usize = 3;
const AWAY: Duration = Duration::from_secs(2);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let (some, moves) = (stage.some(), stage.fleet.moves());
    let revision = stage.until_quiet().await?;
    let mut longest = Duration::ZERO;
    for round in 0..ROUNDS {
        let places = round * some..(round + 1) * some;
        stage.fleet.give(places.clone(), Order::Reset);
        tokio::time::sleep(AWAY).await;
        stage.fleet.give(places, Order::Live);
        longest = longest.max(stage.until_all_open("after churn").await?);
    }
    let entries = stage.until_quiet().await? - revision;
    let lost = stage.nodes("unreachable").await?;
    let moved = stage.fleet.moves();
    let report = &mut stage.report;
    report.tell("all back after", secs(longest));
    report.tell("log entries", entries.to_string());
    report.truth("nodes that are unreachable", lost.to_string(), "0", lost == 0);
    let starts = moved.0 - moves.0;
    report.truth("replicas started again", starts.to_string(), "0", starts == 0);
    Ok(())
}

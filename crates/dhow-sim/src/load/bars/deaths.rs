//! Workers die: one in twenty with a reset connection, as many whose process hangs, and as many that a firewall cuts
//! off. Their replicas run elsewhere soon after.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use super::{Stage, secs};
use crate::load::firewall::Firewall;
use crate::load::order::Order;
use crate::load::worker::{SUBNET_WORKERS, address_of};

const RESET_BAR: Duration = Duration::from_secs(20);
const SILENT_BAR: Duration = Duration::from_secs(40);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let some = stage.some();
    die(stage, "reset", 0..some, Order::Reset, RESET_BAR).await?;
    die(stage, "hanging", some..2 * some, Order::Hang, SILENT_BAR).await?;
    if stage.options.firewall {
        // Whole subnets, above those that are dead already.
        let first = (2 * some).next_multiple_of(SUBNET_WORKERS);
        let cut = first..first + some.next_multiple_of(SUBNET_WORKERS);
        let subnets = cut.clone().step_by(SUBNET_WORKERS).map(address_of);
        let _firewall = Firewall::around_subnets(subnets)?;
        die(stage, "cut off", cut, Order::CutOff, SILENT_BAR).await?;
    }
    come_back(stage).await
}

async fn die(
    stage: &mut Stage,
    how: &str,
    places: Range<usize>,
    order: Order,
    bar: Duration,
) -> anyhow::Result<()> {
    let count = places.len();
    let began = Instant::now();
    stage.fleet.give(places, order).await?;
    let lost = stage.replicas.saturating_sub(stage.fleet.look().await?.running);
    stage.until_running(how, stage.replicas).await?;
    let took = began.elapsed();
    let measured = format!("{lost} replicas of {count} workers after {}", secs(took));
    let report = &mut stage.report;
    report.bar(
        &format!("replaced, {how}"),
        measured,
        &format!("{} s", bar.as_secs()),
        took < bar,
    );
    Ok(())
}

/// The dead return, are told what is theirs now, and stop the rest.
pub(super) async fn come_back(stage: &mut Stage) -> anyhow::Result<()> {
    let began = Instant::now();
    stage.fleet.give(0..stage.options.workers, Order::Live).await?;
    stage.until_all_open("after the dead came back").await?;
    stage.report.tell("all back after", secs(began.elapsed()));
    stage
        .until_running("after the dead came back", stage.replicas)
        .await?;
    stage.until_quiet().await?;
    let running = stage.fleet.look().await?.running;
    let lost = stage.nodes().await?.unreachable;
    let report = &mut stage.report;
    let wanted = stage.replicas.to_string();
    report.truth(
        "replicas that run in the end",
        running.to_string(),
        &wanted,
        running == stage.replicas,
    );
    stage.none_is_lost("nodes that are unreachable", lost);
    Ok(())
}

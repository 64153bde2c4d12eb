//! All workers join at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{PATIENCE, Stage, secs};

const BAR: Duration = Duration::from_secs(120);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let count = stage.options.workers;
    let joined = stage
        .fleet
        .until(PATIENCE, |fleet| fleet.joined() == count || !fleet.is_whole())
        .await;
    let Some(took) = joined else {
        anyhow::bail!(
            "{} of {count} have joined\n{}",
            stage.fleet.joined(),
            stage.told()
        );
    };
    stage.check_whole()?;
    let opened = took + stage.until_all_open("after joining").await?;
    let rate = count as f64 / took.as_secs_f64();
    let measured = format!("{count} in {} ({rate:.0}/s)", secs(took));
    let (report, tally) = (&mut stage.report, stage.fleet.tally());
    report.bar(
        "joined with a certificate",
        measured,
        "10,000 in 120 s",
        took < BAR,
    );
    let refused = tally.joins_refused.load(Ordering::Relaxed);
    report.bar("refused for load", refused.to_string(), "0", refused == 0);
    report.tell("all sessions open after", secs(opened));
    report.tell("to join", tally.joining.take().to_string());
    report.tell("to open a session", tally.opening.take().to_string());
    let unreached = tally.unreached.load(Ordering::Relaxed);
    report.tell("attempts that reached nobody in time", unreached.to_string());
    let revision = stage.until_quiet().await?;
    stage.report.tell("log entries", revision.to_string());
    let leader = stage.servers.until_leader().await?;
    for place in 0..3 {
        let usage = stage.servers.usage(place)?;
        let role = if place == leader { "leader" } else { "follower" };
        let measured = format!("{} of CPU, {} MiB", secs(usage.cpu), usage.resident_bytes >> 20);
        stage
            .report
            .tell(&format!("server {} ({role})", place + 1), measured);
    }
    let known = stage.nodes("ready").await?;
    let wanted = count as u64;
    // The servers themselves are nodes too.
    let holds = (wanted..=wanted + 3).contains(&known);
    let report = &mut stage.report;
    report.truth(
        "nodes that are ready",
        known.to_string(),
        &wanted.to_string(),
        holds,
    );
    Ok(())
}

//! All workers join at once.

use std::time::Duration;

use super::{PATIENCE, Stage, secs};
use crate::load::talk::Timing;

const BAR: Duration = Duration::from_secs(120);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let count = stage.options.workers;
    stage.fleet.go().await?;
    let joined = stage
        .fleet
        .until(PATIENCE, |look| look.joined == count || !look.is_whole())
        .await?;
    let Some(took) = joined else {
        let look = stage.fleet.look().await?;
        anyhow::bail!("{} of {count} have joined\n{look}", look.joined);
    };
    stage.check_whole().await?;
    let opened = took + stage.until_all_open("after joining").await?;
    let rate = count as f64 / took.as_secs_f64();
    let measured = format!("{count} in {} ({rate:.0}/s)", secs(took));
    let joining = stage.fleet.take(Timing::Joining).await?;
    let opening = stage.fleet.take(Timing::Opening).await?;
    let look = stage.fleet.look().await?;
    let report = &mut stage.report;
    report.bar("joined with a certificate", measured, "120 s", took < BAR);
    let refused = look.joins_refused;
    report.bar("refused for load", refused.to_string(), "0", refused == 0);
    report.tell("all sessions open after", secs(opened));
    report.tell("to join", joining.to_string());
    report.tell("to open a session", opening.to_string());
    report.tell("attempts that reached nobody in time", look.unreached.to_string());
    let least = look.open_at.iter().min().copied().unwrap_or_default();
    let measured = format!("{:?}", look.open_at);
    let fair = count / look.open_at.len().max(1) / 2;
    report.bar(
        "sessions by server",
        measured,
        &format!("at least {fair}"),
        least >= fair,
    );
    let revision = stage.until_quiet().await?;
    stage.report.tell("log entries", revision.to_string());
    let leader = stage.servers.until_leader().await?;
    for place in stage.servers.places() {
        let usage = stage.servers.usage(place)?;
        let role = if place == leader { "leader" } else { "follower" };
        let measured = format!("{} of CPU, {} KiB", secs(usage.cpu), usage.resident_bytes >> 10);
        stage
            .report
            .tell(&format!("server {} ({role})", place + 1), measured);
    }
    let known = stage.nodes().await?.ready;
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

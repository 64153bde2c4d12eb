//! All servers are killed and start together: everybody comes back, and the log hardly notices.

use std::time::Duration;

use tokio::time::Instant;

use super::{Stage, secs};
use crate::load::talk::Timing;

const BAR: Duration = Duration::from_secs(90);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let revision = stage.until_quiet().await?;
    let before = stage.fleet.look().await?;
    stage.fleet.take(Timing::Opening).await?;
    stage.servers.kill_all()?;
    stage
        .fleet
        .until(super::PATIENCE, |look| look.open() == 0)
        .await?;
    let began = Instant::now();
    stage.servers.start_all()?;
    stage.servers.until_leader().await?;
    let led = began.elapsed();
    stage.until_all_open("after a restart of all servers").await?;
    let took = began.elapsed();
    let entries = stage.until_quiet().await? - revision;
    let lost = stage.nodes().await?.unreachable;
    let opening = stage.fleet.take(Timing::Opening).await?;
    let workers = stage.options.workers;
    let report = &mut stage.report;
    report.tell("a server led after", secs(led));
    report.bar(
        "all sessions open again",
        format!("{workers} after {}", secs(took)),
        "90 s",
        took < BAR,
    );
    report.tell("to open a session", opening.to_string());
    let bar = format!("far below {workers}");
    let holds = entries < (workers as u64 / 10).max(20);
    report.bar("log entries", entries.to_string(), &bar, holds);
    stage.none_is_lost("nodes that are unreachable", lost);
    stage.nothing_moved(&before, 0).await
}

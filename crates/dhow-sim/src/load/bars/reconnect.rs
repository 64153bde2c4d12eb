//! All servers are killed and start together: everybody comes back, and the log hardly notices.

use std::time::Duration;

use tokio::time::Instant;

use super::{Stage, secs};

const BAR: Duration = Duration::from_secs(90);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let before = stage.until_quiet().await?;
    let moves = stage.fleet.moves();
    stage.fleet.tally().opening.take();
    stage.servers.kill_all()?;
    stage
        .fleet
        .until(super::PATIENCE, |fleet| fleet.open() == 0)
        .await;
    let began = Instant::now();
    stage.servers.start_all()?;
    stage.servers.until_leader().await?;
    let led = began.elapsed();
    stage.until_all_open("after a restart of all servers").await?;
    let took = began.elapsed();
    let entries = stage.until_quiet().await? - before;
    let lost = stage.nodes("unreachable").await?;
    let moved = stage.fleet.moves();
    let workers = stage.options.workers;
    let report = &mut stage.report;
    report.tell("a server led after", secs(led));
    report.bar(
        "all sessions open again",
        format!("{workers} after {}", secs(took)),
        "90 s",
        took < BAR,
    );
    report.tell(
        "to open a session",
        stage.fleet.tally().opening.take().to_string(),
    );
    let bar = format!("far below {workers}");
    let holds = entries < (workers as u64 / 10).max(20);
    report.bar("log entries", entries.to_string(), &bar, holds);
    report.truth("nodes that are unreachable", lost.to_string(), "0", lost == 0);
    let starts = moved.0 - moves.0;
    report.truth("replicas started again", starts.to_string(), "0", starts == 0);
    Ok(())
}

//! The leader is killed: nobody is given up, nothing restarts, and a deployment goes through.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Stage, secs};

const DEPLOY_AFTER: Duration = Duration::from_secs(5);
const REPLICAS: u32 = 100;

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let moves = stage.fleet.moves();
    let leader = stage.servers.until_leader().await?;
    let began = Instant::now();
    stage.servers.kill(leader)?;
    let next = stage.servers.until_leader().await?;
    let led = began.elapsed();
    sleep_until(began + DEPLOY_AFTER).await;
    let deployed = stage.deploy_small("after-failover", REPLICAS).await;
    let opened = stage.until_all_open("after a failover").await;
    let opened = opened.map(|_| began.elapsed())?;
    let lost = stage.nodes("unreachable").await?;
    let moved = stage.fleet.moves();
    let report = &mut stage.report;
    report.tell("another server led after", secs(led));
    let measured = match &deployed {
        Ok(took) => format!("running after {}", secs(*took)),
        Err(error) => format!("{error:#}"),
    };
    report.truth(
        "a deploy 5 s after the kill",
        measured,
        "succeeds",
        deployed.is_ok(),
    );
    report.tell("all sessions open after", secs(opened));
    report.tell(
        "to open a session",
        stage.fleet.tally().opening.take().to_string(),
    );
    // The server that was killed is a node too, and is one of them.
    report.truth(
        "workers given up",
        lost.to_string(),
        "0, or 1 with the server",
        lost <= 1,
    );
    let starts = moved.0 - moves.0 - u64::from(REPLICAS);
    report.truth("replicas started again", starts.to_string(), "0", starts == 0);
    let usage = stage.servers.usage(next)?;
    let measured = format!("{} of CPU, {} MiB", secs(usage.cpu), usage.resident_bytes >> 20);
    stage.report.tell("the new leader", measured);
    stage.servers.start_one(leader)?;
    Ok(())
}

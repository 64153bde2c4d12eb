//! A hundred want to join with a token for one: while all is well, and while the leader is killed.

use std::time::Duration;

use tokio::time::sleep;

use super::{PATIENCE, Stage};

const COUNT: usize = 100;

/// How long after the crowd has set out the leader is killed: before, while and after the one is let in.
const KILLS_AFTER: [Duration; 3] = [
    Duration::from_millis(5),
    Duration::from_millis(30),
    Duration::from_millis(100),
];

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    one_joins(stage, "joined of a hundred", None).await?;
    for kill_after in KILLS_AFTER {
        let what = format!("the leader killed after {} ms", kill_after.as_millis());
        one_joins(stage, &what, Some(kill_after)).await?;
    }
    Ok(())
}

async fn one_joins(stage: &mut Stage, what: &str, kill_after: Option<Duration>) -> anyhow::Result<()> {
    let before = stage.nodes().await?.all();
    let leader = stage.servers.until_leader().await?;
    let mut crowd = Stage::crowd(&stage.servers, &stage.options, COUNT, 1).await?;
    crowd.go().await?;
    if let Some(after) = kill_after {
        sleep(after).await;
        stage.servers.kill(leader)?;
    }
    crowd
        .until(PATIENCE, |look| {
            look.turned_away as usize + look.joined >= COUNT && look.open() >= 1
        })
        .await?;
    let look = crowd.look().await?;
    let (joined, refused) = (look.joined, look.turned_away);
    stage.servers.start_one(leader)?;
    stage.servers.until_leader().await?;
    let more = stage.nodes().await?.all().saturating_sub(before);
    let report = &mut stage.report;
    let measured = format!("{joined}, {refused} refused, {more} more in the state");
    let is_one = joined == 1 && refused == 99 && more == 1;
    report.truth(what, measured, "1", is_one);
    if kill_after.is_none() {
        report.tell("a refusal says", look.last_refusal.unwrap_or_default());
    }
    Ok(())
}

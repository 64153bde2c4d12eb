//! A hundred want to join with a token for one: while all is well, and while the leader is killed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::{PATIENCE, Stage};
use crate::load::fleet::Fleet;
use crate::load::worker::Invitation;

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
    let before = registered(stage).await?;
    let leader = stage.servers.until_leader().await?;
    let invitation = Invitation::new(&stage.servers.worker_token(1)?)?;
    let crowd = Fleet::start(stage.servers.worker_addrs(), invitation, COUNT, COUNT);
    if let Some(after) = kill_after {
        sleep(after).await;
        stage.servers.kill(leader)?;
    }
    let away = |fleet: &Fleet| fleet.tally().turned_away.load(Ordering::Relaxed);
    crowd
        .until(PATIENCE, |fleet| {
            away(fleet) as usize + fleet.joined() >= COUNT && fleet.open() >= 1
        })
        .await;
    let (joined, refused) = (crowd.joined(), away(&crowd));
    stage.servers.start_one(leader)?;
    stage.servers.until_leader().await?;
    let more = registered(stage).await?.saturating_sub(before);
    let last = crowd.tally().last_refusal.lock().map(|last| last.clone());
    let report = &mut stage.report;
    let measured = format!("{joined}, {refused} refused, {more} more in the state");
    let is_one = joined == 1 && refused == 99 && more == 1;
    report.truth(what, measured, "1", is_one);
    if kill_after.is_none() {
        report.tell("a refusal says", last.ok().flatten().unwrap_or_default());
    }
    Ok(())
}

/// Nodes that the cluster knows, whatever has become of them.
async fn registered(stage: &mut Stage) -> anyhow::Result<u64> {
    Ok(stage.nodes("ready").await? + stage.nodes("unreachable").await?)
}

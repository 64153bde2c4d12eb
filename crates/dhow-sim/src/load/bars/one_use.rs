//! A hundred want to join with a token for one.

use std::sync::atomic::Ordering;

use super::{PATIENCE, Stage};
use crate::load::fleet::Fleet;
use crate::load::worker::Invitation;

const COUNT: usize = 100;

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let ready = stage.nodes("ready").await?;
    let invitation = Invitation::new(&stage.servers.worker_token(1)?)?;
    let crowd = Fleet::start(stage.servers.worker_addrs(), invitation, COUNT, COUNT);
    let away = |fleet: &Fleet| fleet.tally().turned_away.load(Ordering::Relaxed);
    crowd
        .until(PATIENCE, |fleet| {
            away(fleet) as usize + fleet.joined() >= COUNT && fleet.open() >= 1
        })
        .await;
    let (joined, refused) = (crowd.joined(), away(&crowd));
    let more = stage.nodes("ready").await?.saturating_sub(ready);
    let last = crowd.tally().last_refusal.lock().map(|last| last.clone());
    let report = &mut stage.report;
    let measured = format!("{joined}, {refused} refused");
    report.truth("joined of a hundred", measured, "1", joined == 1 && refused == 99);
    report.truth("new nodes in the state", more.to_string(), "1", more == 1);
    report.tell("a refusal says", last.ok().flatten().unwrap_or_default());
    Ok(())
}

//! A server that does not lead is ill for a while: it stands still, is slow, or is cut off from the leader or from its
//! workers. Its workers find others, nobody is given up, nothing restarts, nothing runs twice.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::failover::broken_elsewhere;
use super::{PATIENCE, Stage, secs};
use crate::load::firewall::Firewall;
use crate::load::servers::Slowness;
use crate::load::talk::Timing;

const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What a follower suffers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Illness {
    /// It stands still.
    Paused,
    /// It runs for a tenth of the time.
    Slow,
    WithoutLeader,
    WithoutWorkers,
}

/// What makes it ill; it ends with this.
enum Cause {
    Paused,
    Slow { _slowness: Slowness },
    Cut { _firewall: Firewall },
}

impl Illness {
    fn word(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Slow => "slowed tenfold",
            Self::WithoutLeader => "cut off from the leader",
            Self::WithoutWorkers => "cut off from its workers",
        }
    }

    fn needs_firewall(self) -> bool {
        match self {
            Self::Paused | Self::Slow => false,
            Self::WithoutLeader | Self::WithoutWorkers => true,
        }
    }

    async fn begin(self, stage: &mut Stage, follower: usize) -> anyhow::Result<Cause> {
        Ok(match self {
            Self::Paused => {
                stage.servers.pause(follower)?;
                Cause::Paused
            }
            Self::Slow => Cause::Slow {
                _slowness: stage.servers.slow_down(follower)?,
            },
            Self::WithoutLeader => {
                let leader = stage.servers.until_leader().await?;
                let [own, other] = [follower, leader].map(|place| stage.servers.channel_of(place));
                Cause::Cut {
                    _firewall: Firewall::between([(own.0, &other.1), (other.0, &own.1)])?,
                }
            }
            Self::WithoutWorkers => Cause::Cut {
                _firewall: Firewall::around_port(stage.servers.worker_addrs()[follower].port())?,
            },
        })
    }
}

pub(super) async fn measure(stage: &mut Stage, illness: Illness) -> anyhow::Result<()> {
    if illness.needs_firewall() && !stage.options.firewall {
        stage.report.tell("not tried", "it needs --firewall".to_owned());
        return Ok(());
    }
    let follower = stage.busiest_follower().await?;
    stage.until_quiet().await?;
    stage.fleet.take(Timing::Reopening).await?;
    let before = stage.fleet.look().await?;
    let held = before.open_at.get(follower).copied().unwrap_or_default();
    let began = Instant::now();
    let cause = illness.begin(stage, follower).await?;
    let mut lost = 0;
    while began.elapsed() < stage.options.pause {
        sleep(COUNT_EVERY).await;
        lost = lost.max(stage.nodes().await?.unreachable);
    }
    let twice = stage.fleet.twice().await?;
    let left = stage.fleet.look().await?.open_at.get(follower).copied();
    drop(cause);
    stage.servers.go_on(follower)?;
    let well = Instant::now();
    stage.until_all_open("after an illness").await?;
    stage.until_caught_up(follower).await?;
    let mut unreachable = stage.nodes().await?.unreachable;
    while unreachable > 0 && well.elapsed() < PATIENCE {
        lost = lost.max(unreachable);
        sleep(COUNT_EVERY).await;
        unreachable = stage.nodes().await?.unreachable;
    }
    let as_before = well.elapsed();
    let after = stage.fleet.look().await?;
    let reopening = stage.fleet.take(Timing::Reopening).await?;
    let twice = twice.max(stage.fleet.twice().await?);
    let broken = broken_elsewhere(&before, &after, follower);
    let report = &mut stage.report;
    let told = format!(
        "server {} for {}, {held} sessions, {} in the end",
        follower + 1,
        secs(stage.options.pause),
        left.unwrap_or_default()
    );
    report.tell(illness.word(), told);
    report.tell("without a session", reopening.to_string());
    report.tell("all is as before, after it is well", secs(as_before));
    report.truth(
        "sessions of other servers that broke",
        broken.to_string(),
        "0",
        broken == 0,
    );
    report.truth(
        "workers given up",
        lost.to_string(),
        "0, or 1 with the server",
        lost <= 1,
    );
    report.truth("replicas that run twice", twice.to_string(), "0", twice == 0);
    stage.none_is_lost("nodes that are unreachable", unreachable);
    stage.nothing_moved(&before, 0).await
}

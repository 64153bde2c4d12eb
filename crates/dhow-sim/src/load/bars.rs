//! What is measured, one file each. They build on each other: each expects what the ones before it left.

mod churn;
mod dead_follower;
mod deaths;
mod deploy;
mod failover;
mod ill_follower;
mod interest;
mod join;
mod one_use;
mod reconnect;
mod slow_readers;
mod steady;

use std::time::Duration;

use anyhow::ensure;

use super::run::Stage;
use super::servers::NodeCounts;
use ill_follower::Illness;

/// Nothing takes this long but what never comes.
const PATIENCE: Duration = Duration::from_secs(300);

/// One thing that is measured, by what happens in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// All workers join at once. Every run begins with it.
    Join,
    /// Nothing happens.
    Steady,
    /// A hundred thousand replicas.
    Deploy,
    /// Some workers do not read what they are told.
    SlowReaders,
    /// Workers come and go within the grace.
    Churn,
    /// The leader is killed.
    Failover,
    /// A server that does not lead stands still for a minute.
    PausedFollower,
    /// A server that does not lead runs for a tenth of the time.
    SlowFollower,
    /// A server that does not lead is cut off from the one that does.
    FollowerWithoutLeader,
    /// A server that does not lead is cut off from its workers.
    FollowerWithoutWorkers,
    /// A server that does not lead dies together with some of its workers.
    DeadFollower,
    /// Workers die, loudly and silently.
    Deaths,
    /// All servers restart together.
    Reconnect,
    /// A hundred want to join with a token for one.
    OneUse,
    /// One replica in a hundred changes every second, and those who use its service hear of it. By itself: its workers follow
    /// their directories.
    Interest,
}

impl Bar {
    /// Those that are measured one after the other where nothing is named.
    pub const ALL: [Self; 14] = [
        Self::Join,
        Self::Steady,
        Self::Deploy,
        Self::SlowReaders,
        Self::Churn,
        Self::Failover,
        Self::PausedFollower,
        Self::SlowFollower,
        Self::FollowerWithoutLeader,
        Self::FollowerWithoutWorkers,
        Self::DeadFollower,
        Self::Deaths,
        Self::Reconnect,
        Self::OneUse,
    ];

    /// The one of this name.
    pub fn named(word: &str) -> Option<Self> {
        let all = Self::ALL.into_iter().chain([Self::Interest]);
        all.into_iter().find(|bar| bar.word() == word)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Steady => "steady",
            Self::Deploy => "deploy",
            Self::SlowReaders => "slow-readers",
            Self::Churn => "churn",
            Self::Failover => "failover",
            Self::PausedFollower => "paused-follower",
            Self::SlowFollower => "slow-follower",
            Self::FollowerWithoutLeader => "follower-without-leader",
            Self::FollowerWithoutWorkers => "follower-without-workers",
            Self::DeadFollower => "dead-follower",
            Self::Deaths => "deaths",
            Self::Reconnect => "reconnect",
            Self::OneUse => "one-use",
            Self::Interest => "interest",
        }
    }

    pub(super) async fn measure(self, stage: &mut Stage) -> anyhow::Result<()> {
        println!("{}", self.word());
        let (terms, before) = (stage.term().await?, stage.fleet.look().await?);
        self.begin(stage).await?;
        let (terms, after) = (stage.term().await? - terms, stage.fleet.look().await?);
        let told = format!(
            "{terms} elections, {} sessions ended, {} of them in silence, {} calls without an answer, {} moved, {} attempts reached nobody",
            after.ended() - before.ended(),
            after.unheard - before.unheard,
            after.unanswered - before.unanswered,
            after.moved - before.moved,
            after.unreached - before.unreached
        );
        stage.report.tell("trouble", told);
        stage
            .report
            .tell("sessions by server", format!("{:?}", after.open_at));
        let behind = after.behind;
        stage.report.truth(
            "assignments below one that was seen",
            behind.to_string(),
            "0",
            behind == 0,
        );
        Ok(())
    }

    async fn begin(self, stage: &mut Stage) -> anyhow::Result<()> {
        match self {
            Self::Join => join::measure(stage).await,
            Self::Steady => steady::measure(stage).await,
            Self::Deploy => deploy::measure(stage).await,
            Self::SlowReaders => slow_readers::measure(stage).await,
            Self::Churn => churn::measure(stage).await,
            Self::Failover => failover::measure(stage).await,
            Self::PausedFollower => ill_follower::measure(stage, Illness::Paused).await,
            Self::SlowFollower => ill_follower::measure(stage, Illness::Slow).await,
            Self::FollowerWithoutLeader => ill_follower::measure(stage, Illness::WithoutLeader).await,
            Self::FollowerWithoutWorkers => ill_follower::measure(stage, Illness::WithoutWorkers).await,
            Self::DeadFollower => dead_follower::measure(stage).await,
            Self::Deaths => deaths::measure(stage).await,
            Self::Reconnect => reconnect::measure(stage).await,
            Self::OneUse => one_use::measure(stage).await,
            Self::Interest => interest::measure(stage).await,
        }
    }
}

impl Stage {
    async fn term(&mut self) -> anyhow::Result<u64> {
        let leader = self.servers.until_leader().await?;
        let status = self.servers.api(leader).get("/api/v1/cluster").await?;
        Ok(status["term"].as_u64().unwrap_or_default())
    }

    /// How many workers a disturbance takes: one in twenty.
    fn some(&self) -> usize {
        (self.options.workers / 20).max(1)
    }

    async fn until_all_open(&mut self, what: &str) -> anyhow::Result<Duration> {
        let all = self.options.workers;
        self.until_open(what, all).await
    }

    async fn until_open(&mut self, what: &str, all: usize) -> anyhow::Result<Duration> {
        let until = self
            .fleet
            .until(PATIENCE, |look| look.open() == all || !look.is_whole());
        let took = until.await?;
        let look = self.fleet.look().await?;
        let Some(took) = took.filter(|_| look.is_whole()) else {
            anyhow::bail!("{what}: {} of {all} sessions are open\n{look}", look.open());
        };
        Ok(took)
    }

    async fn until_running(&mut self, what: &str, replicas: u64) -> anyhow::Result<Duration> {
        let until = self.fleet.until(PATIENCE, |look| look.running == replicas);
        let Some(took) = until.await? else {
            let look = self.fleet.look().await?;
            anyhow::bail!("{what}: {} of {replicas} replicas run\n{look}", look.running);
        };
        Ok(took)
    }

    /// The last applied entry of the leader's log.
    async fn revision(&mut self) -> anyhow::Result<u64> {
        let leader = self.servers.until_leader().await?;
        let status = self.servers.api(leader).get("/api/v1/cluster").await?;
        let revision = status["revision"].as_u64();
        revision.ok_or_else(|| anyhow::anyhow!("the status has no revision: {status}"))
    }

    /// Nodes by status, as the leader counts them.
    async fn nodes(&mut self) -> anyhow::Result<NodeCounts> {
        let leader = self.servers.until_leader().await?;
        let metrics = self.servers.api(leader).metrics().await?;
        Ok(NodeCounts::of(&metrics))
    }

    /// Until nothing is written any more.
    async fn until_quiet(&mut self) -> anyhow::Result<u64> {
        let mut last = self.revision().await?;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = self.revision().await?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
        anyhow::bail!("the log does not come to rest");
    }

    /// The place of the server that has the most sessions of those that do not lead.
    async fn busiest_follower(&mut self) -> anyhow::Result<usize> {
        let leader = self.servers.until_leader().await?;
        let open_at = self.fleet.look().await?.open_at;
        let followers = self
            .servers
            .running()
            .into_iter()
            .filter(|place| *place != leader);
        let busiest = followers.max_by_key(|place| open_at.get(*place).copied());
        busiest.ok_or_else(|| anyhow::anyhow!("no server runs beside the leader"))
    }

    /// A server that was started again has all that the leader has, and takes sessions.
    async fn until_caught_up(&mut self, place: usize) -> anyhow::Result<()> {
        let wanted = self.revision().await?;
        let began = tokio::time::Instant::now();
        while began.elapsed() < PATIENCE {
            let status = self.servers.api(place).get("/api/v1/cluster").await;
            if status.is_ok_and(|status| status["revision"].as_u64() >= Some(wanted)) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("server {} does not catch up with {wanted}", place + 1);
    }

    async fn check_whole(&mut self) -> anyhow::Result<()> {
        let look = self.fleet.look().await?;
        ensure!(look.is_whole(), "a worker was turned away\n{look}");
        Ok(())
    }

    /// Workers that are unreachable, which nobody may be; the servers are nodes too.
    fn none_is_lost(&mut self, what: &str, lost: u64) {
        self.report.truth(what, lost.to_string(), "0", lost == 0);
    }

    /// That nothing was started or stopped but what was deployed meanwhile.
    async fn nothing_moved(&mut self, before: &super::talk::Look, deployed: u64) -> anyhow::Result<()> {
        let after = self.fleet.look().await?;
        let starts = after.started - before.started - deployed;
        let stops = after.stopped - before.stopped;
        let report = &mut self.report;
        report.truth("replicas started again", starts.to_string(), "0", starts == 0);
        report.truth("replicas stopped", stops.to_string(), "0", stops == 0);
        Ok(())
    }
}

/// Seconds with a tenth.
fn secs(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

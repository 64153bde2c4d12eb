//! What is measured, one file each. They build on each other: each expects what the ones before it left.

mod churn;
mod deaths;
mod deploy;
mod failover;
mod join;
mod one_use;
mod reconnect;
mod slow_readers;
mod steady;

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::ensure;

use super::run::Stage;

/// Nothing takes this long but what never comes.
const PATIENCE: Duration = Duration::from_secs(300);

/// One thing that the load generator measures. A person names them on the command line, and the run takes them in this
/// order.
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
    /// Workers die, loudly and silently.
    Deaths,
    /// All servers restart together.
    Reconnect,
    /// A hundred want to join with a token for one.
    OneUse,
}

impl Bar {
    pub const ALL: [Self; 9] = [
        Self::Join,
        Self::Steady,
        Self::Deploy,
        Self::SlowReaders,
        Self::Churn,
        Self::Failover,
        Self::Deaths,
        Self::Reconnect,
        Self::OneUse,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Steady => "steady",
            Self::Deploy => "deploy",
            Self::SlowReaders => "slow-readers",
            Self::Churn => "churn",
            Self::Failover => "failover",
            Self::Deaths => "deaths",
            Self::Reconnect => "reconnect",
            Self::OneUse => "one-use",
        }
    }

    pub(super) async fn measure(self, stage: &mut Stage) -> anyhow::Result<()> {
        println!("{}", self.word());
        let before = stage.trouble().await?;
        self.begin(stage).await?;
        let after = stage.trouble().await?;
        let told = format!(
            "{} elections, {} sessions ended, {} attempts reached nobody",
            after.terms - before.terms,
            after.sessions_ended - before.sessions_ended,
            after.unreached - before.unreached
        );
        stage.report.tell("trouble", told);
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
            Self::Deaths => deaths::measure(stage).await,
            Self::Reconnect => reconnect::measure(stage).await,
            Self::OneUse => one_use::measure(stage).await,
        }
    }
}

/// What goes wrong, counted since the beginning.
struct Trouble {
    terms: u64,
    sessions_ended: u64,
    unreached: u64,
}

impl Stage {
    async fn trouble(&mut self) -> anyhow::Result<Trouble> {
        let leader = self.servers.until_leader().await?;
        let status = self.servers.api(leader).get("/api/v1/cluster").await?;
        let tally = self.fleet.tally();
        Ok(Trouble {
            terms: status["term"].as_u64().unwrap_or_default(),
            sessions_ended: tally.sessions_ended.load(Ordering::Relaxed),
            unreached: tally.unreached.load(Ordering::Relaxed),
        })
    }

    /// How many workers a disturbance takes: one in twenty.
    fn some(&self) -> usize {
        (self.options.workers / 20).max(1)
    }

    async fn until_all_open(&self, what: &str) -> anyhow::Result<Duration> {
        let all = self.options.workers;
        let took = self
            .fleet
            .until(PATIENCE, |fleet| fleet.open() == all || !fleet.is_whole())
            .await;
        let Some(took) = took.filter(|_| self.fleet.is_whole()) else {
            anyhow::bail!(
                "{what}: {} of {all} sessions are open\n{}",
                self.fleet.open(),
                self.told()
            );
        };
        Ok(took)
    }

    async fn until_running(&self, what: &str, replicas: u64) -> anyhow::Result<Duration> {
        let took = self
            .fleet
            .until(PATIENCE, |fleet| fleet.running() == replicas)
            .await;
        let Some(took) = took else {
            let running = self.fleet.running();
            anyhow::bail!("{what}: {running} of {replicas} replicas run\n{}", self.told());
        };
        Ok(took)
    }

    /// What the workers have met, for a run that goes wrong.
    fn told(&self) -> String {
        let tally = self.fleet.tally();
        let told = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "{} unreached, {} sent on, {} joins and {} reports refused as busy, {} turned away, {} sessions ended; {:?}",
            told(&tally.unreached),
            told(&tally.sent_on),
            told(&tally.joins_refused),
            told(&tally.reports_refused),
            told(&tally.turned_away),
            told(&tally.sessions_ended),
            tally.last_refusal.lock().map(|last| last.clone()),
        )
    }

    /// The last applied entry of the leader's log.
    async fn revision(&mut self) -> anyhow::Result<u64> {
        let leader = self.servers.until_leader().await?;
        let status = self.servers.api(leader).get("/api/v1/cluster").await?;
        let revision = status["revision"].as_u64();
        revision.ok_or_else(|| anyhow::anyhow!("the status has no revision: {status}"))
    }

    /// Nodes of a status, as the leader counts them.
    async fn nodes(&mut self, status: &str) -> anyhow::Result<u64> {
        let leader = self.servers.until_leader().await?;
        let metrics = self.servers.api(leader).metrics().await?;
        Ok(metrics.figure(&format!("dhow_nodes{{status=\"{status}\"}}")))
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

    /// Deploys a service of its own beside what there is, and waits until it runs.
    async fn deploy_small(&mut self, name: &str, replicas: u32) -> anyhow::Result<Duration> {
        let leader = self.servers.until_leader().await?;
        let began = tokio::time::Instant::now();
        let file = deploy::file(name, 1, replicas);
        self.servers.api(leader).deploy(file).await?;
        self.replicas += u64::from(replicas);
        self.until_running("a small deployment", self.replicas).await?;
        Ok(began.elapsed())
    }

    fn check_whole(&self) -> anyhow::Result<()> {
        ensure!(self.fleet.is_whole(), "a worker was turned away\n{}", self.told());
        Ok(())
    }
}

/// Seconds with a tenth.
fn secs(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

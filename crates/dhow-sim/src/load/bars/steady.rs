//! Nothing happens but heartbeats.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Stage, secs};
use crate::load::talk::Timing;

/// Of one core, with up to ten thousand workers and with more.
const CPU_PERCENT_MAX: f64 = 3.0;
const CPU_PERCENT_MAX_OF_MANY: f64 = 10.0;
const MANY: usize = 10_000;
/// What the leader may take for each part that a follower takes.
const LEADER_SHARE_MAX: f64 = 2.0;
const SESSION_BYTES_MAX: u64 = 45 * 1024;
const NODE_BYTES_MAX: u64 = 3 * 1024;
const REPLICA_BYTES_MAX: u64 = 2 * 1024;
const BEATS_PER_SECOND_MAX: f64 = 50.0;

/// Those who joined first were told a short time to live and keep to it once: a whole one later all have the same.
const SETTLE_MAX: Duration = Duration::from_secs(220);
const SETTLE_STEP: Duration = Duration::from_secs(5);

/// How often nodes are counted meanwhile. That is work of the leader's too.
const COUNT_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let took = settle(stage).await?;
    stage.report.tell("heartbeats settled after", secs(took));
    let began_revision = stage.until_quiet().await?;
    let cpu_before = cpu(stage)?;
    let before = stage.fleet.look().await?;
    stage.fleet.take(Timing::Beating).await?;
    let began = Instant::now();
    let mut lost = 0;
    while let left = stage.options.steady.saturating_sub(began.elapsed())
        && !left.is_zero()
    {
        sleep(left.min(COUNT_EVERY)).await;
        lost = lost.max(stage.nodes().await?.unreachable);
    }
    let span = began.elapsed();
    tell_servers(stage, &cpu_before, span).await?;
    let after = stage.fleet.look().await?;
    let beating = stage.fleet.take(Timing::Beating).await?;
    let entries = stage.revision().await? - began_revision;
    let rate = (after.heartbeats - before.heartbeats) as f64 / span.as_secs_f64();
    let broken = after.ended() - before.ended();
    let report = &mut stage.report;
    let measured = format!("{rate:.1}/s");
    report.bar("heartbeats", measured, "50/s", rate <= BEATS_PER_SECOND_MAX);
    report.tell("a heartbeat", beating.to_string());
    report.truth(
        "log entries of heartbeats",
        entries.to_string(),
        "0",
        entries == 0,
    );
    report.truth("sessions that ended", broken.to_string(), "0", broken == 0);
    stage.none_is_lost("nodes that were unreachable at any time", lost);
    stage.nothing_moved(&before, 0).await
}

fn cpu(stage: &Stage) -> anyhow::Result<Vec<Duration>> {
    let places = stage.servers.places();
    places.map(|place| Ok(stage.servers.usage(place)?.cpu)).collect()
}

/// Each server at rest, and how much more the leader has to do than the others.
async fn tell_servers(stage: &mut Stage, before: &[Duration], span: Duration) -> anyhow::Result<()> {
    let leader = stage.servers.until_leader().await?;
    let open_at = stage.fleet.look().await?.open_at;
    let workers = stage.options.workers;
    let cpu_max = match workers > MANY {
        true => CPU_PERCENT_MAX_OF_MANY,
        false => CPU_PERCENT_MAX,
    };
    let (mut leaders, mut followers) = (0.0_f64, Vec::new());
    for place in stage.servers.places() {
        let usage = stage.servers.usage(place)?;
        let spent = usage
            .cpu
            .saturating_sub(before.get(place).copied().unwrap_or_default());
        let percent = spent.as_secs_f64() / span.as_secs_f64() * 100.0;
        let sessions = open_at.get(place).copied().unwrap_or_default();
        let empty = stage.resident_empty_bytes.get(place).copied();
        let used = usage.resident_bytes.saturating_sub(empty.unwrap_or_default());
        let allowed = sessions as u64 * SESSION_BYTES_MAX
            + workers as u64 * NODE_BYTES_MAX
            + stage.replicas * REPLICA_BYTES_MAX;
        match place == leader {
            true => leaders = percent,
            false => followers.push(percent),
        }
        let role = if place == leader { "leader" } else { "follower" };
        let who = format!("server {} ({role})", place + 1);
        let measured = format!(
            "{percent:.2} % of one core over {}, {sessions} sessions",
            secs(span)
        );
        let report = &mut stage.report;
        report.bar(
            &format!("{who}: CPU at rest"),
            measured,
            &format!("{cpu_max} %"),
            percent < cpu_max,
        );
        let each = used as f64 / 1_024.0 / (sessions.max(1) as f64);
        let measured = format!(
            "{} KiB resident, {} KiB above empty, {each:.1} KiB for each session, {} replicas",
            usage.resident_bytes >> 10,
            used >> 10,
            stage.replicas
        );
        let bar = format!(
            "{} KiB: 45 KiB per session, 3 KiB per node, 2 KiB per replica",
            allowed >> 10
        );
        report.bar(&format!("{who}: memory"), measured, &bar, used <= allowed);
    }
    let share = leaders / followers.iter().copied().fold(f64::INFINITY, f64::min);
    stage.report.bar(
        "the leader's CPU by the least of a follower's",
        format!("{share:.2}"),
        &format!("{LEADER_SHARE_MAX}"),
        share <= LEADER_SHARE_MAX,
    );
    Ok(())
}

/// Waits until heartbeats come as seldom as they are asked for.
async fn settle(stage: &mut Stage) -> anyhow::Result<Duration> {
    let began = Instant::now();
    loop {
        let before = stage.fleet.look().await?.heartbeats;
        sleep(SETTLE_STEP).await;
        let beats = stage.fleet.look().await?.heartbeats - before;
        let rate = beats as f64 / SETTLE_STEP.as_secs_f64();
        if rate <= BEATS_PER_SECOND_MAX || began.elapsed() > SETTLE_MAX {
            return Ok(began.elapsed());
        }
    }
}

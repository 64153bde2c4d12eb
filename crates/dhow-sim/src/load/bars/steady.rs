//! Nothing happens but heartbeats.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Stage, secs};

const CPU_PERCENT_MAX: f64 = 5.0;
const WORKER_BYTES_MAX: u64 = 60 * 1024;
const REPLICA_BYTES_MAX: u64 = 2 * 1024;
const BEATS_PER_SECOND_MAX: f64 = 50.0;

/// Those who joined first were told a short time to live and keep to it once: a whole one later all have the same.
const SETTLE_MAX: Duration = Duration::from_secs(220);
const SETTLE_STEP: Duration = Duration::from_secs(5);

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let took = settle(stage).await;
    stage.report.tell("heartbeats settled after", secs(took));
    let began_revision = stage.until_quiet().await?;
    let leader = stage.servers.until_leader().await?;
    let began = stage.servers.usage(leader)?;
    let ended_before = stage.fleet.tally().sessions_ended.load(Ordering::Relaxed);
    let began_beats = beats(stage);
    stage.fleet.tally().beating.take();
    sleep(stage.options.steady).await;
    let ended = stage.servers.usage(leader)?;
    let span_secs = stage.options.steady.as_secs_f64();
    let percent = (ended.cpu - began.cpu).as_secs_f64() / span_secs * 100.0;
    let rate = (beats(stage) - began_beats) as f64 / span_secs;
    let used = ended.resident_bytes.saturating_sub(stage.resident_empty_bytes);
    let allowed = stage.options.workers as u64 * WORKER_BYTES_MAX + stage.replicas * REPLICA_BYTES_MAX;
    let each_kib = used as f64 / 1_024.0 / stage.options.workers as f64;
    let entries = stage.revision().await? - began_revision;
    let lost = stage.nodes("unreachable").await?;
    let broken = stage.fleet.tally().sessions_ended.load(Ordering::Relaxed) - ended_before;
    let span = secs(stage.options.steady);
    let report = &mut stage.report;
    let measured = format!("{percent:.1} % of one core over {span}");
    report.bar("leader's CPU", measured, "5 %", percent < CPU_PERCENT_MAX);
    let measured = format!(
        "{} MiB above empty, {each_kib:.1} KiB per worker with {} replicas",
        used >> 20,
        stage.replicas
    );
    let bar = format!("{} MiB: 60 KiB per worker, 2 KiB per replica", allowed >> 20);
    report.bar("leader's memory", measured, &bar, used <= allowed);
    let measured = format!("{rate:.1}/s");
    report.bar("heartbeats", measured, "50/s", rate <= BEATS_PER_SECOND_MAX);
    report.tell("a heartbeat", stage.fleet.tally().beating.take().to_string());
    report.truth(
        "log entries of heartbeats",
        entries.to_string(),
        "0",
        entries == 0,
    );
    report.truth("nodes that are unreachable", lost.to_string(), "0", lost == 0);
    report.truth("sessions that ended", broken.to_string(), "0", broken == 0);
    Ok(())
}

fn beats(stage: &Stage) -> u64 {
    stage.fleet.tally().heartbeats.load(Ordering::Relaxed)
}

/// Waits until heartbeats come as seldom as they are asked for.
async fn settle(stage: &Stage) -> Duration {
    let began = Instant::now();
    loop {
        let before = beats(stage);
        sleep(SETTLE_STEP).await;
        let rate = (beats(stage) - before) as f64 / SETTLE_STEP.as_secs_f64();
        if rate <= BEATS_PER_SECOND_MAX || began.elapsed() > SETTLE_MAX {
            return began.elapsed();
        }
    }
}

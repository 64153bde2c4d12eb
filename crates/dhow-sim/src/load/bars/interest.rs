//! Services that nodes use, while one replica in a hundred changes every second: who is told, how late, and what it costs.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Stage, secs};
use crate::load::talk::{GROUP_SERVICES, GROUP_WORKERS, Interests, ToldCounts};

/// Replicas of each service: ten on every worker.
const REPLICAS: u32 = 100;
/// Each worker has ten replicas, so that one in a hundred changes a second.
const CHANGE_EVERY: Duration = Duration::from_secs(10);
/// Until everybody has heard of the last change.
const REST: Duration = Duration::from_secs(4);
const CORES_MAX: f64 = 1.0;
const P99_MAX: Duration = Duration::from_secs(2);

fn file(interests: &Interests, group: usize) -> String {
    let mut text = format!(
        "version: v1\ndeployment: {}\nservices:\n",
        Interests::deployment(group)
    );
    for service in 0..interests.services {
        // Writing to a text does not fail.
        let _ = writeln!(text, "  {}:", Interests::service(service));
        let _ = writeln!(text, "    image: load:1");
        let _ = writeln!(text, "    resources: {{ cpu: 0.1, memory: 64Mi }}");
        let _ = writeln!(text, "    node_selector: {{ labels: {{ group: \"{group}\" }} }}");
        let _ = writeln!(text, "    scale: {{ mode: fixed, replicas: {REPLICAS} }}");
        let _ = writeln!(
            text,
            "    endpoints: [{{ name: x, protocol: tcp, port: 8080, expose: cluster }}]"
        );
    }
    text
}

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let interests = stage.options.interests();
    let services = interests.groups * interests.services;
    let replicas = services as u64 * u64::from(REPLICAS);
    let leader = stage.servers.until_leader().await?;
    for group in 0..interests.groups {
        stage.servers.api(leader).deploy(file(&interests, group)).await?;
    }
    stage.replicas += replicas;
    let took = stage.until_running("deploying", stage.replicas).await?;
    let what = format!("{services} services, {replicas} replicas");
    stage.report.tell(&what, format!("run after {}", secs(took)));
    stage.until_quiet().await?;
    stage.fleet.change_every(Some(CHANGE_EVERY)).await?;
    // The first changes of all workers are spread over the whole period.
    sleep(CHANGE_EVERY).await;
    let before = Figures::of(stage).await?;
    stage.fleet.take(crate::load::talk::Timing::Telling).await?;
    sleep(stage.options.steady).await;
    let after = Figures::of(stage).await?;
    let latency = stage.fleet.take(crate::load::talk::Timing::Telling).await?;
    tell_figures(stage, &before, &after);
    let report = &mut stage.report;
    let is_met = latency.p99 < P99_MAX;
    report.bar(
        "a change until a node that uses it knows",
        latency.to_string(),
        "p99 2 s",
        is_met,
    );
    stage.fleet.change_every(None).await?;
    sleep(REST).await;
    stage.until_quiet().await?;
    sleep(REST).await;
    check_views(stage, &interests, services).await
}

/// What was counted so far, and what every process has used.
struct Figures {
    at: Instant,
    told: ToldCounts,
    servers: Vec<Duration>,
    generator: Duration,
}

impl Figures {
    async fn of(stage: &mut Stage) -> anyhow::Result<Self> {
        let places = stage.servers.places();
        let servers = places.map(|place| Ok(stage.servers.usage(place)?.cpu));
        let servers = servers.collect::<anyhow::Result<_>>()?;
        Ok(Self {
            at: Instant::now(),
            servers,
            generator: stage.fleet.cpu()?,
            told: stage.fleet.told().await?,
        })
    }
}

fn tell_figures(stage: &mut Stage, before: &Figures, after: &Figures) {
    let span = (after.at - before.at).as_secs_f64();
    let cores = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / span;
    let each: Vec<f64> = after
        .servers
        .iter()
        .zip(&before.servers)
        .map(|(now, then)| cores(*now, *then))
        .collect();
    let all: f64 = each.iter().sum();
    let shown: Vec<String> = each.iter().map(|cores| format!("{cores:.2}")).collect();
    let rate = |now: u64, then: u64| format!("{:.0}/s", (now - then) as f64 / span);
    let report = &mut stage.report;
    let measured = format!("{all:.2} of a core ({})", shown.join(" + "));
    report.bar("the servers together", measured, "1 core", all < CORES_MAX);
    let generator = cores(after.generator, before.generator);
    report.tell(
        "the generated workers beside them",
        format!("{generator:.2} of a core"),
    );
    report.tell(
        "replicas that changed",
        rate(after.told.changes, before.told.changes),
    );
    report.tell(
        "messages to nodes",
        rate(after.told.messages, before.told.messages),
    );
    report.tell("changes in them", rate(after.told.heard, before.told.heard));
    let idle = after.told.to_idle - before.told.to_idle;
    report.truth(
        "messages to nodes without interest",
        idle.to_string(),
        "0",
        idle == 0,
    );
    let uninvited = after.told.uninvited;
    report.truth(
        "services told to nodes that do not use them",
        uninvited.to_string(),
        "0",
        uninvited == 0,
    );
}

/// All workers know the same of a service, and no more services than they use.
async fn check_views(stage: &mut Stage, interests: &Interests, services: usize) -> anyhow::Result<()> {
    let views = stage.fleet.views().await?;
    let is_whole = |seen: &std::collections::BTreeSet<(u64, u64)>| {
        seen.len() == 1 && seen.iter().all(|(count, _)| *count == u64::from(REPLICAS))
    };
    let whole = views.services.values().filter(|seen| is_whole(seen)).count();
    let report = &mut stage.report;
    report.truth(
        "services of which all nodes know the same",
        whole.to_string(),
        &services.to_string(),
        whole == services && views.services.len() == services,
    );
    let used = (interests.groups * GROUP_WORKERS * (GROUP_SERVICES + 1)) as u64;
    report.truth(
        "services known, over all nodes",
        views.known.to_string(),
        &used.to_string(),
        views.known == used,
    );
    Ok(())
}

//! A thousand services of a hundred replicas each.

use std::fmt::Write as _;
use std::time::Duration;

use tokio::time::Instant;

use super::{Stage, secs};
use crate::load::talk::Timing;

const REPLICAS: u32 = 100;
const BAR: Duration = Duration::from_secs(60);

/// A deployment file.
pub(super) fn file(name: &str, services: usize, replicas: u32) -> String {
    let mut text = format!("version: v1\ndeployment: {name}\nservices:\n");
    for service in 0..services {
        // Writing to a text does not fail.
        let _ = writeln!(text, "  service-{service}:");
        let _ = writeln!(text, "    runtime: process\n    command: [/bin/sleep, infinity]");
        let _ = writeln!(text, "    resources: {{ cpu: 0.1, memory: 64Mi }}");
        let _ = writeln!(text, "    scale: {{ mode: fixed, replicas: {replicas} }}");
    }
    text
}

pub(super) async fn measure(stage: &mut Stage) -> anyhow::Result<()> {
    let services = stage.options.services;
    let replicas = services as u64 * u64::from(REPLICAS);
    let began_revision = stage.until_quiet().await?;
    let leader = stage.servers.until_leader().await?;
    let began_cpu = stage.servers.usage(leader)?.cpu;
    stage.fleet.take(Timing::Reporting).await?;
    stage.fleet.take(Timing::Delivering).await?;
    let began = Instant::now();
    stage
        .servers
        .api(leader)
        .deploy(file("load", services, REPLICAS))
        .await?;
    let durable = began.elapsed();
    stage.replicas += replicas;
    stage.until_running("deploying", stage.replicas).await?;
    let took = began.elapsed();
    let cpu = stage.servers.usage(leader)?.cpu - began_cpu;
    let rate = replicas as f64 / took.as_secs_f64();
    let measured = format!("{replicas} in {} ({rate:.0}/s)", secs(took));
    let reporting = stage.fleet.take(Timing::Reporting).await?;
    let delivering = stage.fleet.take(Timing::Delivering).await?;
    let refused = stage.fleet.look().await?.reports_refused;
    let report = &mut stage.report;
    let bar = "100,000 in 60 s; Nomad has published 3,750/s on 5 servers";
    report.bar("delivered and reported running", measured, bar, took < BAR);
    report.tell("the file was durable after", secs(durable));
    report.tell("leader's CPU meanwhile", secs(cpu));
    report.tell("a report until durable", reporting.to_string());
    report.tell("assignment until running", delivering.to_string());
    report.tell("reports refused as busy", refused.to_string());
    let entries = stage.until_quiet().await? - began_revision;
    stage.report.tell("log entries", entries.to_string());
    let status = stage.servers.api(leader).get("/api/v1/deployments/load").await?;
    let counted = status["services"].as_array().into_iter().flatten();
    let running: u64 = counted.filter_map(|service| service["running"].as_u64()).sum();
    let report = &mut stage.report;
    report.truth(
        "running, as the status has it",
        running.to_string(),
        &replicas.to_string(),
        running == replicas,
    );
    let started = stage.fleet.look().await?.started;
    let report = &mut stage.report;
    report.truth(
        "starts",
        started.to_string(),
        &stage.replicas.to_string(),
        started == stage.replicas,
    );
    Ok(())
}

//! `dhow status [DEPLOYMENT]`: services with running and desired, health, endpoints.

use dhow_core::ids::DeploymentName;
use dhow_wire::{DeploymentSource, DeploymentStatus, ServedEndpoint, ServiceHealthSummary};

use crate::endpoints::Viewpoint;
use crate::human::{minute_utc, one_line, second_utc};
use crate::shown::{Shown, word, yes_no};
use crate::table::Table;
use crate::target;

/// Show deployments: services with running and wanted replicas, health, endpoints
#[derive(clap::Args)]
pub struct Args {
    /// Only this one
    #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
    pub deployment: Option<DeploymentName>,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// One deployment, with its services and their endpoints.
pub fn one(status: &DeploymentStatus, viewpoint: &Viewpoint) -> String {
    let mut text = format!(
        "{}: {}, revision {}\n",
        status.deployment,
        word(&status.state),
        status.revision
    );
    if let Some(message) = &status.message {
        text += &format!("  {}\n", one_line(message));
    }
    if let Some(source) = &status.source {
        text += &format!("  {}\n", one_line(&of_source(source)));
    }
    for note in &status.notes {
        text += &format!("  {}\n", one_line(note));
    }
    for service in &status.services {
        text += &stopped_line(&status.deployment, service).unwrap_or_default();
    }
    text + &services(&status.services, &status.served, viewpoint)
}

/// Where it comes from, and since when that is what the cluster knows.
fn of_source(source: &DeploymentSource) -> String {
    let mut text = format!("source {}", source.name);
    if let Some(version) = source.version {
        text += &format!(", version {version}");
    }
    if let Some(commit) = &source.commit {
        text += &format!(" at {commit}");
    }
    if let Some(looked) = source.looked_unix_secs {
        text += &format!(", looked at {}", second_utc(looked));
    }
    text
}

/// What a row says of the state: also that the source's word does not count at the moment.
fn state(status: &DeploymentStatus) -> String {
    let suspended = status
        .source
        .as_ref()
        .and_then(|source| source.suspended_until_unix_secs);
    match suspended {
        Some(_) => format!("{} (source suspended)", word(&status.state)),
        None => word(&status.state),
    }
}

/// Who has stopped a service and when, and how it is started again.
fn stopped_line(deployment: &str, service: &ServiceHealthSummary) -> Option<String> {
    let stopped = service.stopped.as_ref()?;
    let (name, by, at) = (&service.name, &stopped.by, minute_utc(stopped.at_unix_secs));
    Some(format!(
        "  {name} was stopped by {by} at {at}: `dhow start {deployment}/{name}`\n"
    ))
}

/// The services with their endpoints, as the end of a deployment shows them.
pub fn services(
    services: &[ServiceHealthSummary],
    served: &[ServedEndpoint],
    viewpoint: &Viewpoint,
) -> String {
    let mut table = Table::new(&["SERVICE", "RUNNING", "HEALTHY", "ENDPOINTS"]);
    for service in services {
        table.row([
            service.name.clone(),
            running(service),
            healthy(service),
            viewpoint.addresses(service, served),
        ]);
    }
    table.render()
}

/// Every deployment, a row for each service.
pub fn all(list: &[DeploymentStatus], viewpoint: &Viewpoint) -> Shown {
    let mut table = Table::new(&[
        "DEPLOYMENT",
        "REVISION",
        "STATE",
        "SERVICE",
        "RUNNING",
        "HEALTHY",
        "ENDPOINTS",
    ]);
    for status in list {
        for service in &status.services {
            table.row([
                status.deployment.clone(),
                status.revision.to_string(),
                state(status),
                service.name.clone(),
                running(service),
                healthy(service),
                viewpoint.addresses(service, &status.served),
            ]);
        }
        if status.services.is_empty() {
            let empty = String::new;
            let state = state(status);
            table.row([
                status.deployment.clone(),
                status.revision.to_string(),
                state,
                empty(),
                empty(),
                empty(),
                empty(),
            ]);
        }
    }
    match table.is_empty() {
        true => Shown::Note("nothing is deployed; `dhow deploy FILE` does it".into()),
        false => Shown::Data(table.render()),
    }
}

/// Of what is stopped nobody can say how healthy it is.
fn healthy(service: &ServiceHealthSummary) -> String {
    match service.stopped {
        Some(_) => "-".into(),
        None => yes_no(service.healthy),
    }
}

/// How many run of how many, or have done their work; those of other revisions apart while one rolls. Of a schedule
/// also when it is due next.
fn running(service: &ServiceHealthSummary) -> String {
    if let Some(stopped) = &service.stopped {
        return match (
            service.running.saturating_sub(service.done.unwrap_or(0)),
            stopped.replicas,
        ) {
            (0, Some(replicas)) => format!("stopped, {replicas} when started"),
            (0, None) => "stopped".into(),
            (running, _) => format!("stopped, {running} to end"),
        };
    }
    let mut text = match service.done {
        Some(0) if service.desired == 0 && service.next_run_unix_secs.is_some() => "no run yet".into(),
        Some(done @ 1..) => {
            let works = service.running.saturating_sub(done);
            match works {
                0 => format!("{done}/{} done", service.desired),
                works => format!("{done}/{} done, {works} running", service.desired),
            }
        }
        Some(0) | None => format!("{}/{}", service.running, service.desired),
    };
    if let (Some(updated), Some(outdated)) = (service.updated, service.outdated) {
        text += &format!(" ({updated} new, {outdated} to be replaced)");
    }
    if let Some(next) = service.next_run_unix_secs {
        text += &format!(", next {}", minute_utc(next));
    }
    text
}

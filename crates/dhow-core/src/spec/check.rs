//! The rules that a spec must keep beyond its types: what contradicts itself, what could never run, and what
//! this version does not carry out. Called with a parsed deployment by the reader of files and by the API,
//! which map each path back to a place in the text.
//!
//! Pure, and complete: it reports everything it finds, never only the first, and it never changes the spec.

mod callers;
mod command;
mod cron;
mod depends;
mod devices;
mod endpoint_options;
mod endpoints;
mod files;
mod finding;
mod health;
mod host;
mod image;
mod jobs;
pub mod limits;
mod names;
mod placement;
mod places;
mod resources;
mod rollout;
mod runtime;
mod scale;
mod storage;
mod suggest;
mod texts;
mod vocabulary;
mod words;
mod worker;

#[cfg(test)]
mod tests;

pub use cron::{CronProblem, CronSchedule, TimeOfDay};
pub use finding::{FieldPath, PathPart, Related, SpecFinding};
pub use names::secret_name_problem;
pub use placement::{arch_hint, os_hint};
pub use scale::beside_groups;
pub use suggest::{did_you_mean, nearest};
pub use words::{label_finding, quoted};
pub use worker::{check_worker, check_worker_label};

use super::{DeploymentSpec, ServiceSpec};

/// Everything that is wrong with a deployment, in the order of its services.
pub fn check_deployment(deployment: &DeploymentSpec) -> Vec<SpecFinding> {
    let mut findings = Vec::new();
    if deployment.services.is_empty() {
        findings.push(
            SpecFinding::at(
                FieldPath::of("services"),
                "a deployment needs at least one service",
            )
            .hint("add one, such as `web: { image: nginx:1.27 }`"),
        );
    }
    for (name, spec) in &deployment.services {
        let at = FieldPath::of("services").key(name.to_string());
        check_service(&at, spec, &mut findings);
    }
    names::check(deployment, &mut findings);
    files::check_deployment(deployment, &mut findings);
    depends::check(deployment, &mut findings);
    places::check_deployment(deployment, &mut findings);
    endpoints::check_ports(deployment, &mut findings);
    storage::check_deployment(deployment, &mut findings);
    callers::check(deployment, &mut findings);
    findings
}

/// The rules that need no other service.
fn check_service(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    runtime::check(at, spec, findings);
    image::check(at, spec, findings);
    command::check(at, spec, findings);
    texts::check(at, spec, findings);
    resources::check(at, spec, findings);
    endpoints::check(at, spec, findings);
    scale::check(at, spec, findings);
    jobs::check(at, spec, findings);
    health::check(at, spec, findings);
    rollout::check(at, spec, findings);
    storage::check(at, spec, findings);
    files::check(at, spec, findings);
    placement::check(at, spec, findings);
    places::check(at, spec, findings);
    host::check(at, spec, findings);
    devices::check(at, spec, findings);
}

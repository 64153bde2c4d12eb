//! `dhow scale DEPLOYMENT/SERVICE=N…`: how many replicas services are to have.

use std::collections::BTreeMap;

use dhow_core::ids::DeploymentName;

use crate::suspend::SuspendArgs;
use crate::target::{self, ScaleTarget};
use crate::wait::WaitArgs;

/// Set how many replicas services have
///
/// Returns once it is durable. Where one deployment is named several times, all of its changes happen or none.
#[derive(clap::Args)]
pub struct Args {
    /// `shop/web=3`; `shop/db/reader=2` for one role of a service
    #[arg(required = true, value_name = "DEPLOYMENT/SERVICE=N", value_parser = target::scale_target)]
    targets: Vec<ScaleTarget>,

    #[command(flatten)]
    pub suspend: SuspendArgs,

    #[command(flatten)]
    pub wait: WaitArgs,
}

impl Args {
    /// What happens together: the changes of each deployment.
    pub fn by_deployment(&self) -> BTreeMap<&DeploymentName, Vec<&ScaleTarget>> {
        let mut by_deployment: BTreeMap<&DeploymentName, Vec<&ScaleTarget>> = BTreeMap::new();
        for target in &self.targets {
            by_deployment.entry(&target.deployment).or_default().push(target);
        }
        by_deployment
    }
}

/// What was taken.
pub fn said(target: &ScaleTarget) -> String {
    let role = target.role.as_ref().map(|role| format!("/{role}"));
    format!(
        "{}/{}{} is to have {}",
        target.deployment,
        target.service,
        role.unwrap_or_default(),
        target.replicas
    )
}

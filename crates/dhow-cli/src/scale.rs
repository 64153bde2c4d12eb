//! `dhow scale DEPLOYMENT/SERVICE=N…`: how many replicas services are to have; of adaptive ones, for how long.

use std::collections::BTreeMap;

use dhow_core::ids::DeploymentName;
use dhow_core::spec::TimeSpan;

use crate::suspend::SuspendArgs;
use crate::target::{self, NamedTarget, ScaleTarget};
use crate::wait::WaitArgs;

/// Set how many replicas services have
///
/// Returns once it is durable. Where one deployment is named several times, all of its changes happen or none. The count of
/// an adaptive service is set for a while, by `--hold`.
#[derive(clap::Args)]
pub struct Args {
    /// `shop/web=3`; `shop/db/reader=2` for one role of a service
    #[arg(required_unless_present = "release", value_name = "DEPLOYMENT/SERVICE=N", value_parser = target::scale_target)]
    targets: Vec<ScaleTarget>,

    /// Set the counts of adaptive services, and have their scaler leave them for so long: `1h`
    #[arg(long, value_name = "TIME", value_parser = held_for)]
    pub hold: Option<TimeSpan>,

    /// End a hold: the scaler of this service decides again
    #[arg(long, value_name = "DEPLOYMENT/SERVICE", value_parser = target::named_target, conflicts_with_all = ["targets", "hold"])]
    release: Vec<NamedTarget>,

    #[command(flatten)]
    pub suspend: SuspendArgs,

    #[command(flatten)]
    pub wait: WaitArgs,
}

impl Args {
    /// The services whose hold is to end.
    pub fn releases(&self) -> &[NamedTarget] {
        &self.release
    }

    /// What happens together: the changes of each deployment.
    pub fn by_deployment(&self) -> BTreeMap<&DeploymentName, Vec<&ScaleTarget>> {
        let mut by_deployment: BTreeMap<&DeploymentName, Vec<&ScaleTarget>> = BTreeMap::new();
        for target in &self.targets {
            by_deployment.entry(&target.deployment).or_default().push(target);
        }
        by_deployment
    }
}

/// No hold is no hold.
fn held_for(text: &str) -> Result<TimeSpan, String> {
    let span: TimeSpan = text
        .parse()
        .map_err(|error: dhow_core::spec::UnitError| error.to_string())?;
    match span.as_millis() {
        0 => Err("a hold lasts longer than that; `--release DEPLOYMENT/SERVICE` ends one".into()),
        _ => Ok(span),
    }
}

/// What was taken.
pub fn said(target: &ScaleTarget, hold: Option<TimeSpan>) -> String {
    let role = target.role.as_ref().map(|role| format!("/{role}"));
    let hold = hold.map(|span| format!(" for {span}"));
    format!(
        "{}/{}{} is to have {}{}",
        target.deployment,
        target.service,
        role.unwrap_or_default(),
        target.replicas,
        hold.unwrap_or_default()
    )
}

/// What was released.
pub fn said_released(target: &NamedTarget) -> String {
    format!("{}/{} is scaled by its load", target.deployment, target.name)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_hold_has_a_length_and_a_release_has_no_count() {
        let read = |words: &[&str]| Line::try_parse_from([&["scale"][..], words].concat());
        let held = read(&["shop/web=4", "--hold", "1h"]).unwrap().args;
        assert_eq!(held.hold, Some(TimeSpan::from_secs(3_600)));
        assert_eq!(said(&held.targets[0], held.hold), "shop/web is to have 4 for 1h");
        let released = read(&["--release", "shop/web"]).unwrap().args;
        assert_eq!(released.releases()[0].name, "web");
        for wrong in [
            &["shop/web=4", "--hold", "0s"][..],
            &["shop/web=4", "--hold", "long"],
            &["shop/web=4", "--release", "shop/web"],
            &["--hold", "1h"],
            &[],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}

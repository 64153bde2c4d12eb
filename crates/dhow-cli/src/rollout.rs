//! `dhow rollout`: what is being rolled out, and what people do about it.

use dhow_wire::api::{Deployed, RolloutStatus, RolloutVerb};

use crate::human::one_line;
use crate::shown::Shown;
use crate::table::Table;
use crate::target::{self, Target};
use crate::wait::WaitArgs;

/// Show rollouts that are under way, promote a canary, pause, resume or abort one
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs of a rollout.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List what is being rolled out: how far it is, and the gate at which it waits
    Ls {
        /// Print the API's JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// The canary is good: the other replicas follow
    Promote(AwaitedWhich),
    /// Replace nothing more, and judge nothing, until it is resumed
    Pause(Which),
    /// Go on with what was paused, or try again what has failed with `on_failure: pause`
    Resume(AwaitedWhich),
    /// Go back to the last good revision
    Abort {
        #[arg(value_name = "DEPLOYMENT", value_parser = target::deployment)]
        deployment: dhow_core::ids::DeploymentName,

        #[command(flatten)]
        wait: WaitArgs,
    },
}

/// Whose rollout it is.
#[derive(clap::Args)]
pub struct Which {
    #[arg(value_name = "DEPLOYMENT[/SERVICE]", value_parser = target::target)]
    pub target: Target,
}

/// Whose rollout it is, where one may wait for its end.
#[derive(clap::Args)]
pub struct AwaitedWhich {
    #[command(flatten)]
    pub which: Which,

    #[command(flatten)]
    pub wait: WaitArgs,
}

impl Command {
    /// How its end is waited for; none for what has none.
    pub fn wait(&self) -> Option<&WaitArgs> {
        match self {
            Self::Ls { .. } | Self::Pause(_) => None,
            Self::Promote(AwaitedWhich { wait, .. })
            | Self::Resume(AwaitedWhich { wait, .. })
            | Self::Abort { wait, .. } => Some(wait),
        }
    }

    /// What is asked of the API, and of whom; none for a listing.
    pub fn asked(&self) -> Option<(RolloutVerb, Target)> {
        match self {
            Self::Ls { .. } => None,
            Self::Promote(asked) => Some((RolloutVerb::Promote, asked.which.target.clone())),
            Self::Pause(which) => Some((RolloutVerb::Pause, which.target.clone())),
            Self::Resume(asked) => Some((RolloutVerb::Resume, asked.which.target.clone())),
            Self::Abort { deployment, .. } => {
                let (deployment, name) = (deployment.clone(), None);
                Some((RolloutVerb::Abort, Target { deployment, name }))
            }
        }
    }
}

/// What was done.
pub fn said(verb: RolloutVerb, target: &Target, deployed: &Deployed) -> String {
    let Target { deployment, name } = target;
    let what = match name {
        Some(service) => format!("{deployment}/{service}"),
        None => deployment.to_string(),
    };
    match verb {
        RolloutVerb::Promote => format!("{what} is promoted: the other replicas follow"),
        RolloutVerb::Pause => format!("{what} is paused; `dhow rollout resume {what}` lets it go on"),
        RolloutVerb::Resume => format!("{what} goes on"),
        RolloutVerb::Abort => {
            let revision = deployed.revision;
            format!("{what} goes back to its last good revision, as revision {revision}")
        }
    }
}

/// Every rollout, a row for each service, and what it waits for.
pub fn list(rollouts: &[RolloutStatus]) -> Shown {
    let mut table = Table::new(&[
        "SERVICE", "REVISION", "STAGE", "NEW", "OLD", "SHARE", "GATE", "REASON",
    ]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    for rollout in rollouts {
        table.row([
            format!("{}/{}", rollout.deployment, rollout.service),
            rollout.revision.to_string(),
            rollout.stage.word().to_owned(),
            format!("{}/{}", rollout.updated, rollout.replicas),
            rollout.outdated.to_string(),
            or_dash(&rollout.share),
            or_dash(&rollout.gate),
            one_line(
                rollout
                    .reason
                    .as_ref()
                    .or(rollout.judgement.as_ref())
                    .map_or("-", |text| text),
            ),
        ]);
    }
    match table.is_empty() {
        true => Shown::Note("nothing is being rolled out".into()),
        false => Shown::Data(table.render()),
    }
}

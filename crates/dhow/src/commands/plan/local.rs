//! A plan without a daemon: for this machine alone, as a fresh single node would make it.

use std::sync::Arc;

use dhow_core::command::{Command, Entry, NodeCommand, Refused};
use dhow_core::dry_run::dry_run;
use dhow_core::ids::{NodeId, Term};
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_core::step::step;
use dhow_core::time::ClusterTime;
use dhow_wire::api::DeploymentPlan;

use crate::host;

pub fn plan(spec: &DeploymentSpec) -> Result<DeploymentPlan, Refused> {
    let run = dry_run(&this_machine(), &Arc::new(spec.clone()))?;
    Ok(DeploymentPlan::of(&spec.deployment, &run))
}

/// The state of a fresh single node.
fn this_machine() -> State {
    let info = NodeInfo {
        role: NodeRole::Peer,
        api_addr: None,
        os: host::OS.into(),
        arch: host::ARCH.into(),
        labels: Arc::default(),
        capacity: host::capacity(),
        runs_replicas: true,
        tries_settings: true,
        mounts_files: true,
        runs_steps: true,
        volumes: dhow_core::spec::VolumeSupport::Sized,
        mesh_addr: None,
    };
    let command = Command::Node(NodeCommand::Register {
        node: NodeId(1),
        info: Arc::new(info),
    });
    let mut state = State {
        feature_level: State::FEATURE_LEVEL,
        ..State::default()
    };
    // Registering the first node of an empty state is never refused.
    let _ = step(
        &mut state,
        &Entry {
            time: ClusterTime(0),
            term: Term(0),
            request: None,
            command,
        },
        &mut (),
    );
    state
}

//! What is being rolled out, and where it waits.

use dhow_core::plan::{PlanReport, Why};
use dhow_core::rollout::{AtGate, paused};
use dhow_core::state::{Deployment, Phase, Service, State, Wanted};
use dhow_wire::api::{RolloutStage, RolloutStatus};

use super::deployment::services;

/// Every service with a rollout, by deployment and name.
pub(super) fn list(state: &State, report: &PlanReport) -> Vec<RolloutStatus> {
    let mut all = Vec::new();
    for deployment in state.deployments.values() {
        for (_, service) in services(state, deployment) {
            all.extend(status(state, report, deployment, service));
        }
    }
    all
}

/// What a deployment's status says of gates: one line for each service that waits at one.
pub(super) fn notes(state: &State, report: &PlanReport, deployment: &Deployment) -> Vec<String> {
    let waiting = services(state, deployment).filter_map(|(name, service)| {
        let at = gate(report, service)?;
        Some(format!("{name}: {at}"))
    });
    waiting.collect()
}

/// A person's word is told also where no replica waits for it, because old ones do.
fn gate(report: &PlanReport, service: &Service) -> Option<AtGate> {
    if let Some(at) = paused(service.rollout.as_ref()) {
        return Some(at);
    }
    let mut waiting = report.services.get(&service.id)?.waiting.iter();
    waiting.find_map(|waiting| match &waiting.why {
        Why::AtGate { at } => Some(at.clone()),
        Why::Unplaced { .. }
        | Why::RoomToCome { .. }
        | Why::WaitsFor { .. }
        | Why::WaitsForStopped { .. }
        | Why::OldStopping { .. }
        | Why::NodeMayReturn { .. }
        | Why::NotRescheduled { .. }
        | Why::VolumeLost { .. }
        | Why::NoNodeForAll { .. }
        | Why::TurnToCome
        | Why::LeavesLater { .. }
        | Why::Paused
        | Why::ReplacementUnproven { .. }
        | Why::WorkToCome { .. }
        | Why::TriesSettings { .. } => None,
    })
}

fn status(
    state: &State,
    report: &PlanReport,
    deployment: &Deployment,
    service: &Service,
) -> Option<RolloutStatus> {
    if service.removing || !(service.rolling || service.rollout.is_some()) {
        return None;
    }
    let stage = match deployment.phase {
        Phase::Failed => RolloutStage::Failed,
        Phase::Reverting => RolloutStage::Reverting,
        Phase::RevertFailed => RolloutStage::RevertFailed,
        Phase::Deploying | Phase::Stable | Phase::Reverted | Phase::Removing => match service.canary_base() {
            Some(_) => RolloutStage::Canary,
            None => RolloutStage::Spread,
        },
    };
    let running = state.replicas_of(service.id);
    let running = running.filter(|(_, replica)| replica.wanted == Wanted::Run && replica.is_running());
    let (mut updated, mut outdated) = (0_u32, 0_u32);
    for (key, replica) in running {
        match service.is_current(key.generation) {
            true => updated += u32::from(replica.is_healthy()),
            false => outdated += 1,
        }
    }
    let (replicas, canary) = (service.count_total(), service.canary_count());
    let share = service
        .canary_base()
        .map(|_| format!("{canary}/{}", replicas.saturating_add(canary)));
    let at = gate(report, service);
    let judgement = service.rollout.as_ref().and_then(|rollout| rollout.judgement);
    Some(RolloutStatus {
        deployment: deployment.name.to_string(),
        service: service.key.service.to_string(),
        revision: deployment.revision.0,
        stage,
        replicas: state.desired(service),
        updated,
        outdated,
        share,
        gate: at.as_ref().map(|at| at.gate.name().to_owned()),
        reason: at.map(|at| at.reason.to_string()),
        judgement: judgement.map(|judgement| judgement.to_string()),
    })
}

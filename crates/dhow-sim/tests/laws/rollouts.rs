//! Random rollouts of one service with random failures: it never has fewer healthy replicas than it promises, and every
//! rollout ends.

use std::sync::Arc;

use dhow_core::command::{Command, DeploymentCommand, RolloutAction, ScaleChange};
use dhow_core::ids::{DeploymentName, NodeId, ServiceName};
use dhow_core::invariants;
use dhow_core::rebalance::{Scope, propose};
use dhow_core::rollout::{Counted, Figures};
use dhow_core::spec::{
    Endpoint, ImageSpec, Promote, Protocol, ScaleSpec, ServiceSpec, SpecVersion, TimeSpan,
};
use dhow_core::state::{NodeInfo, NodeRole, Phase, State};
use dhow_sim::lab::{Behaviour, Lab};
use proptest::collection::vec;
use proptest::prelude::*;

/// What happens to a rollout while it goes on.
#[derive(Clone, Debug)]
enum Happens {
    Deploy(Version),
    Steer(u8),
    /// So many of 300 requests to the canary fail.
    Calls(u64),
    ScaleUp,
    ChangeLeader,
    /// The node is gone, with all that it ran; it is back later.
    LoseNode(u64),
    BackAgain(u64),
    /// Replicas go elsewhere, so that they are spread better.
    Rebalance,
    Run(u64),
}

#[derive(Clone, Debug)]
struct Version {
    image: u8,
    canary: u32,
    is_manual: bool,
    spared: u8,
}

const REPLICAS: u32 = 6;
/// Shorter than anything that is wrong would last.
const LOOK_EVERY_MS: u64 = 1_000;
/// Longer than all deadlines of a rollout one after the other.
const END_MS: u64 = 1_500_000;
/// None of them fails once it has been healthy: what does is no account of the rollout's.
const IMAGES: [&str; 5] = ["good:1", "good:2", "crash:1", "sick:1", "gone:1"];

fn version() -> impl Strategy<Value = Version> {
    (0..5u8, 0..3u32, any::<bool>(), 0..3u8).prop_map(|(image, canary, is_manual, spared)| Version {
        image,
        canary,
        is_manual: is_manual && canary > 0,
        spared,
    })
}

fn happens() -> impl Strategy<Value = Vec<Happens>> {
    let one = prop_oneof![
        3 => version().prop_map(Happens::Deploy),
        2 => (0..4u8).prop_map(Happens::Steer),
        2 => (0..300u64).prop_map(Happens::Calls),
        1 => Just(Happens::ScaleUp),
        1 => Just(Happens::ChangeLeader),
        1 => (1..5u64).prop_map(Happens::LoseNode),
        1 => (1..5u64).prop_map(Happens::BackAgain),
        1 => Just(Happens::Rebalance),
        5 => (1..90_000u64).prop_map(Happens::Run),
    ];
    vec(one, 1..14)
}

fn lab() -> Lab {
    let mut lab = Lab::new();
    let crash = Behaviour {
        exit_after: Some(TimeSpan::from_millis(300)),
        exit_code: 1,
        ..Behaviour::default()
    };
    let sick = Behaviour {
        healthy_after: None,
        ..Behaviour::default()
    };
    let gone = Behaviour {
        cannot_pull: true,
        ..Behaviour::default()
    };
    lab.behaviours.insert("crash:1".into(), crash);
    lab.behaviours.insert("sick:1".into(), sick);
    lab.behaviours.insert("gone:1".into(), gone);
    for node in 1..=4 {
        let info = NodeInfo {
            role: NodeRole::Peer,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::default(),
            capacity: dhow_core::amount::Amount {
                cpu_milli: 64_000,
                memory_bytes: 64 << 30,
            },
            runs_replicas: true,
            tries_settings: true,
            mounts_files: true,
            runs_steps: true,
            volumes: dhow_core::spec::VolumeSupport::Sized,
            mesh_addr: None,
        };
        lab.add_node(NodeId(node), info).expect("a new node");
    }
    lab
}

fn shop() -> DeploymentName {
    DeploymentName::new("shop").expect("a valid name")
}

fn web() -> ServiceName {
    ServiceName::new("web").expect("a valid name")
}

fn deploy(lab: &mut Lab, version: &Version, replicas: u32, limits: (u32, u32)) {
    let mut spec = ServiceSpec {
        image: Some(ImageSpec::named(IMAGES[usize::from(version.image)])),
        scale: ScaleSpec::Fixed { replicas },
        endpoints: vec![Endpoint::new("http", Protocol::Http, 80)],
        ..ServiceSpec::default()
    };
    spec.rollout.max_surge = Some(limits.0);
    spec.rollout.max_unavailable = Some(limits.1);
    spec.rollout.min_healthy = TimeSpan::from_secs(3);
    spec.rollout.canary = version.canary;
    spec.rollout.promote = match version.is_manual {
        true => Promote::Manual,
        false => Promote::Auto,
    };
    spec.rollout.failure_ratio = ["0%", "20%", "50%"][usize::from(version.spared)]
        .parse()
        .expect("a share");
    let spec = dhow_core::spec::DeploymentSpec {
        version: SpecVersion::V1,
        deployment: shop(),
        services: [(web(), Arc::new(spec))].into(),
        scaled: Default::default(),
        configs: Default::default(),
    };
    drop(lab.deploy(spec));
}

fn steer(lab: &mut Lab, action: RolloutAction) {
    let command = DeploymentCommand::Steer {
        deployment: shop(),
        service: None,
        action,
        author: "lab".into(),
    };
    drop(lab.apply(Command::Deployment(command)));
}

fn healthy(state: &State) -> usize {
    let service = state.service_named(&shop(), &web()).expect("it was deployed");
    let mut slots: Vec<_> = state
        .replicas_of(service.id)
        .filter(|(_, replica)| replica.is_healthy())
        .map(|(key, _)| key.slot)
        .collect();
    slots.dedup();
    slots.len()
}

/// How many healthy replicas a node has.
fn healthy_on(state: &State, node: NodeId) -> usize {
    let here = state.replicas.values().filter(|replica| replica.node == node);
    here.filter(|replica| replica.is_healthy()).count()
}

fn rebalance(lab: &mut Lab) {
    let scope = Scope {
        deployment: None,
        moves_max: 3,
    };
    let moves = propose(&lab.state, &scope).moves;
    let author = "lab".into();
    drop(lab.apply(Command::Deployment(DeploymentCommand::Rebalance {
        moves,
        author,
    })));
}

fn calls(lab: &mut Lab, errors: u64) {
    let service = lab.state.service_named(&shop(), &web()).expect("it was deployed");
    let Some(base) = service.canary_base() else {
        return;
    };
    let figures = Figures {
        canary: Counted {
            requests: 300,
            errors,
        },
        base: Counted {
            requests: 3_000,
            errors: 30,
        },
    };
    lab.figures.insert((service.id, base), figures);
}

/// Lets time pass in small steps and looks after each.
fn run(lab: &mut Lab, span_ms: u64, least: usize) -> Result<(), TestCaseError> {
    let end = lab.now.after(TimeSpan::from_millis(span_ms));
    while lab.now < end {
        let step_ms = (end.0 - lab.now.0).min(LOOK_EVERY_MS);
        lab.run(TimeSpan::from_millis(step_ms));
        let found = healthy(&lab.state);
        prop_assert!(
            found >= least,
            "{found} of at least {least} are healthy at {}",
            lab.now
        );
        let violations = invariants::check(&lab.state);
        prop_assert!(violations.is_empty(), "{violations:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::cases(25))]

    #[test]
    fn a_rollout_keeps_its_promise_and_ends(
        limits in (1..3u32, 0..3u32),
        happens in happens(),
    ) {
        let mut lab = lab();
        let first = Version { image: 0, canary: 0, is_manual: false, spared: 0 };
        deploy(&mut lab, &first, REPLICAS, limits);
        lab.run(TimeSpan::from_secs(30));
        prop_assert_eq!(healthy(&lab.state), REPLICAS as usize);
        let mut replicas = REPLICAS;
        // What a scale adds was not there, so that it is not taken away either.
        let mut least = REPLICAS.saturating_sub(limits.1) as usize;
        for what in &happens {
            match what {
                Happens::Deploy(version) => deploy(&mut lab, version, replicas, limits),
                Happens::Steer(action) => steer(&mut lab, [
                    RolloutAction::Promote,
                    RolloutAction::Pause,
                    RolloutAction::Resume,
                    RolloutAction::Abort,
                ][usize::from(*action)]),
                Happens::Calls(errors) => calls(&mut lab, *errors),
                Happens::ScaleUp => {
                    replicas += 1;
                    let changes = vec![ScaleChange { service: web(), role: None, replicas }];
                    let scale = DeploymentCommand::Scale { deployment: shop(), changes };
                    drop(lab.apply(Command::Deployment(scale)));
                }
                Happens::ChangeLeader => lab.change_leader(NodeId(1)),
                Happens::LoseNode(node) => {
                    // What is lost with a node is no account of the rollout's.
                    least = least.saturating_sub(healthy_on(&lab.state, NodeId(*node)));
                    drop(lab.power_off(NodeId(*node)));
                }
                Happens::BackAgain(node) => drop(lab.back(NodeId(*node))),
                Happens::Rebalance => rebalance(&mut lab),
                Happens::Run(ms) => run(&mut lab, *ms, least)?,
            }
        }
        // Nobody holds it any more: it ends.
        for node in 1..=4 {
            drop(lab.back(NodeId(node)));
        }
        steer(&mut lab, RolloutAction::Resume);
        run(&mut lab, 20_000, least)?;
        steer(&mut lab, RolloutAction::Promote);
        run(&mut lab, END_MS, least)?;
        steer(&mut lab, RolloutAction::Promote);
        run(&mut lab, END_MS, least)?;
        let deployment = lab.state.deployment(&shop()).expect("it was deployed");
        let is_over = matches!(deployment.phase, Phase::Stable | Phase::Reverted | Phase::Failed);
        prop_assert!(is_over, "{:?} at {}", deployment.phase, lab.now);
        prop_assert_eq!(lab.replay().hash(), lab.state.hash());
    }
}

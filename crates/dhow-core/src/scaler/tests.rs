//! What the scaler decides, and the laws over random loads.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::command::{
    ClusterCommand, Command, DeploymentCommand, Entry, PlanCommand, Refused, ScaleChange, Stale,
};
use crate::ids::{DeploymentName, ServiceId, ServiceName, Term};
use crate::spec::{ByteSize, Cpu, DeploymentSpec, ScaleTargets, SpecVersion};
use crate::step::step;

const COOLDOWN_MS: u64 = 30_000;

fn spec_of(min: u32, max: u32, targets: ScaleTargets, image: &str) -> Arc<DeploymentSpec> {
    let mut spec = ServiceSpec {
        image: Some(crate::spec::ImageSpec::named(image)),
        scale: ScaleSpec::Adaptive {
            min,
            max,
            cooldown: TimeSpan::from_millis(COOLDOWN_MS),
            targets,
            cold_start: None,
        },
        ..ServiceSpec::default()
    };
    spec.resources.cpu = Some(Cpu(500));
    spec.resources.memory = Some(ByteSize(100));
    Arc::new(DeploymentSpec {
        version: SpecVersion::V1,
        deployment: DeploymentName::new("shop").unwrap(),
        services: [(ServiceName::new("web").unwrap(), Arc::new(spec))]
            .into_iter()
            .collect(),
        scaled: Default::default(),
        configs: Default::default(),
    })
}

/// A cluster with one adaptive service, whose deployment is stable.
struct World {
    state: State,
    log: Vec<Entry>,
    now_ms: u64,
    watch: ScalerWatch,
}

impl World {
    fn new(min: u32, max: u32, targets: ScaleTargets) -> Self {
        let mut world = Self {
            state: State::default(),
            log: Vec::new(),
            now_ms: 1_000,
            watch: ScalerWatch::default(),
        };
        world.apply(Command::Cluster(ClusterCommand::Bootstrap {
            cluster_id: "c".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: None,
        }));
        world.deploy(spec_of(min, max, targets, "a"));
        world.settle();
        world
    }

    fn try_apply(&mut self, command: Command) -> Result<(), Refused> {
        let entry = Entry {
            time: ClusterTime(self.now_ms),
            term: Term(0),
            request: None,
            command,
        };
        let result = step(&mut self.state, &entry, &mut ());
        self.log.push(entry);
        result.map(|_| ())
    }

    fn apply(&mut self, command: Command) {
        self.try_apply(command).unwrap();
    }

    fn deploy(&mut self, spec: Arc<DeploymentSpec>) {
        self.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec,
            author: "user".into(),
            wall_unix_secs: 0,
            force: false,
        }));
    }

    /// The deployment is stable.
    fn settle(&mut self) {
        let name = DeploymentName::new("shop").unwrap();
        let revision = self.state.deployment(&name).unwrap().revision;
        self.apply(Command::Plan(PlanCommand::MarkStable {
            deployment: name,
            revision,
        }));
    }

    fn id(&self) -> ServiceId {
        *self.state.services.keys().next().unwrap()
    }

    fn count(&self) -> u32 {
        self.state.service(self.id()).unwrap().count_total()
    }

    /// A look of the scaler, applied at once.
    fn look(&mut self, load: Load) {
        let loads = LoadBook::from([(self.id(), load)]);
        for command in self.watch.look(&self.state, &loads, ClusterTime(self.now_ms)) {
            self.try_apply(Command::Plan(command))
                .expect("what is decided on the newest state is taken");
        }
    }

    /// Looks once a second for so long. Gives the counts that it came to, one after the other.
    fn run(&mut self, secs: u64, load: Load) -> Vec<u32> {
        let mut counts = vec![self.count()];
        for _ in 0..secs {
            self.now_ms += 1_000;
            self.look(load);
            if counts.last() != Some(&self.count()) {
                counts.push(self.count());
            }
        }
        counts
    }
}

fn in_flight(target: f64) -> ScaleTargets {
    ScaleTargets {
        in_flight: Some(target),
        ..ScaleTargets::default()
    }
}

fn flying(in_flight: u64) -> Load {
    Load {
        in_flight,
        is_whole: true,
        ..Load::default()
    }
}

#[test]
fn each_target_calls_for_what_it_says_and_the_largest_counts() {
    let called = |targets: ScaleTargets, load: Load| {
        let world = World::new(1, 50, targets);
        let called = called_for(world.state.service(world.id()).unwrap(), &load).unwrap();
        (called.replicas, called.by)
    };
    let all = ScaleTargets {
        cpu: Some(70.0),
        memory: Some(80.0),
        rps: Some(100.0),
        in_flight: Some(10.0),
    };
    let load = |cpu_milli, memory_bytes, requests_milli, in_flight| Load {
        cpu_milli,
        memory_bytes,
        requests_milli,
        in_flight,
        ..Load::default()
    };
    // 70 % of half a core are 350 thousandths.
    assert_eq!(called(all.clone(), load(1_750, 0, 0, 0)), (5, Measure::Cpu));
    assert_eq!(called(all.clone(), load(1_751, 0, 0, 0)), (6, Measure::Cpu));
    assert_eq!(called(all.clone(), load(1_750, 560, 0, 0)), (7, Measure::Memory));
    assert_eq!(
        called(all.clone(), load(1_750, 560, 801_000, 0)),
        (9, Measure::Rps)
    );
    assert_eq!(
        called(all.clone(), load(1_750, 560, 801_000, 111)),
        (12, Measure::InFlight)
    );
    assert_eq!(
        called(all.clone(), load(1_750, 560, 801_000, 5_000)),
        (50, Measure::InFlight)
    );
    assert_eq!(
        called(in_flight(10.0), load(9_999, 9_999, 9_999, 0)),
        (1, Measure::InFlight)
    );
}

#[test]
fn up_is_fast_and_down_is_slow() {
    let mut world = World::new(1, 20, in_flight(10.0));
    // At once, then after each pause, to twice as many or four more.
    assert_eq!(world.run(10, flying(175)), [1, 5, 10, 18]);
    assert_eq!(world.run(600, flying(175)), [18], "what is enough stays");
    assert_eq!(world.run(29, flying(20)), [18]);
    assert_eq!(
        world.run(1, flying(175)),
        [18],
        "one look with much to do begins the time anew"
    );
    assert_eq!(world.run(30, flying(20)), [18]);
    assert_eq!(world.run(1, flying(20)), [18, 9]);
    assert_eq!(world.run(31, flying(20)), [9, 4]);
    assert_eq!(world.run(600, flying(20)), [4, 2]);
}

#[test]
fn what_is_about_right_changes_nothing() {
    let mut world = World::new(1, 20, in_flight(10.0));
    assert_eq!(world.run(5, flying(50)), [1, 5]);
    for around in [45, 46, 50, 54, 55] {
        assert_eq!(world.run(120, flying(around)), [5], "{around}");
    }
    assert_eq!(world.run(5, flying(56)), [5, 6]);
}

#[test]
fn missing_figures_never_lower() {
    let mut world = World::new(1, 20, in_flight(10.0));
    world.run(5, flying(50));
    let partly = Load {
        is_whole: false,
        ..flying(0)
    };
    assert_eq!(world.run(600, partly), [5]);
    assert_eq!(
        world.run(20, flying(0)),
        [5],
        "the cooldown begins with whole figures"
    );
    assert_eq!(world.run(1, partly), [5]);
    assert_eq!(world.run(30, flying(0)), [5]);
    assert_eq!(world.run(1, flying(0)), [5, 2]);
    // What is told may be too little, never too much.
    let partly = Load {
        is_whole: false,
        ..flying(90)
    };
    assert_eq!(world.run(7, partly), [2, 6, 9]);
}

#[test]
fn another_leader_waits_for_a_cooldown_of_its_own() {
    let mut world = World::new(1, 20, in_flight(10.0));
    world.run(5, flying(50));
    world.run(29, flying(0));
    world.watch = ScalerWatch::default();
    assert_eq!(world.run(30, flying(0)), [5]);
    assert_eq!(world.run(1, flying(0)), [5, 2]);
    world.watch = ScalerWatch::default();
    assert_eq!(
        world.run(1, flying(90)),
        [2],
        "the pause after a change is known to all"
    );
    assert_eq!(world.run(4, flying(90)), [2, 6]);
}

#[test]
fn a_rollout_gets_more_and_loses_none() {
    let mut world = World::new(1, 20, in_flight(10.0));
    world.run(10, flying(50));
    world.deploy(spec_of(1, 20, in_flight(10.0), "b"));
    assert_eq!(world.run(600, flying(0)), [5], "while it rolls");
    assert_eq!(world.run(1, flying(80)), [5, 8]);
    world.settle();
    assert_eq!(world.run(31, flying(0)), [8, 4]);
}

#[test]
fn a_hold_is_left_alone_until_it_ends() {
    let mut world = World::new(2, 20, in_flight(10.0));
    let name = DeploymentName::new("shop").unwrap();
    let web = ServiceName::new("web").unwrap();
    let change = |replicas| ScaleChange {
        service: web.clone(),
        role: None,
        replicas,
    };
    let refused = world.try_apply(Command::Deployment(DeploymentCommand::Scale {
        deployment: name.clone(),
        changes: vec![change(3)],
    }));
    assert!(matches!(refused, Err(Refused::NotScalable { why, .. }) if why.contains("--hold 1h")));
    let hold = |replicas| {
        Command::Deployment(DeploymentCommand::Hold {
            deployment: name.clone(),
            changes: vec![change(replicas)],
            span: TimeSpan::from_secs(3_600),
            author: "user".into(),
        })
    };
    world.apply(hold(7));
    world.settle();
    assert_eq!(world.run(3_599, flying(0)), [7]);
    assert_eq!(world.run(33, flying(0)), [7, 3, 2], "its time is over");
    world.apply(hold(1));
    world.settle();
    assert_eq!(
        world.run(100, flying(500)),
        [1],
        "below the limits, because a person says so"
    );
    world.apply(Command::Deployment(DeploymentCommand::EndHold {
        deployment: name.clone(),
        services: vec![web.clone()],
        author: "user".into(),
    }));
    assert_eq!(world.run(1, flying(0)), [1, 2], "the limits count again");
}

#[test]
fn one_that_may_have_none_sleeps_and_wakes() {
    let mut world = World::new(0, 20, in_flight(10.0));
    assert_eq!(world.count(), 0);
    let waiting = |waiting| Load {
        in_flight: waiting,
        waiting,
        ..Load::default()
    };
    world.look(waiting(1));
    assert_eq!(world.count(), 1, "at once, whoever has not told anything");
    let busy = Load {
        cpu_milli: 400,
        ..flying(0)
    };
    assert_eq!(world.run(29, busy), [1]);
    assert_eq!(world.run(1, flying(1)), [1], "one open connection keeps it");
    assert_eq!(world.run(31, busy), [1, 0], "what it uses by itself does not");
    world.deploy(spec_of(0, 20, in_flight(10.0), "b"));
    assert_eq!(world.count(), 1, "a rollout has one to be judged by");
    assert_eq!(world.run(600, flying(0)), [1]);
    world.settle();
    assert_eq!(world.run(31, flying(0)), [1, 0]);
}

#[test]
fn what_is_stale_or_not_called_for_is_refused() {
    let mut world = World::new(1, 20, in_flight(10.0));
    world.run(40, flying(50));
    let service = world.state.service(world.id()).unwrap().clone();
    let resize = |from, to, most, load| {
        Command::Plan(PlanCommand::Resize {
            service: service.id,
            generation: service.target,
            resize: Resize { from, to, load, most },
        })
    };
    let partly = Load {
        is_whole: false,
        ..flying(20)
    };
    let cases = [
        ("another count by now", resize(4, 8, 8, flying(80))),
        ("more than is called for", resize(5, 9, 9, flying(80))),
        ("less than is called for", resize(5, 7, 7, flying(80))),
        ("further than at once", resize(5, 20, 20, flying(500))),
        ("fewer than the most", resize(5, 2, 3, flying(20))),
        ("more is called for than was", resize(5, 2, 1, flying(20))),
        ("figures are missing", resize(5, 2, 2, partly)),
        ("nothing changes", resize(5, 5, 5, flying(50))),
    ];
    for (what, command) in cases {
        let before = world.state.services.clone();
        assert_eq!(world.try_apply(command), Err(Stale::Count.into()), "{what}");
        assert_eq!(world.state.services, before, "{what}");
    }
    assert_eq!(world.try_apply(resize(5, 2, 2, flying(20))), Ok(()));
    assert_eq!(
        world.try_apply(resize(2, 1, 1, flying(0))),
        Err(Stale::Count.into()),
        "the cooldown is not over"
    );
}

fn loads() -> impl Strategy<Value = Vec<(u64, Load)>> {
    let load = (0..3_000u64, 0..900_000u64, 0..300u64, prop::bool::weighted(0.9)).prop_map(
        |(cpu_milli, requests_milli, in_flight, is_whole)| Load {
            cpu_milli,
            requests_milli,
            in_flight,
            is_whole,
            ..Load::default()
        },
    );
    prop::collection::vec((1..90u64, prop_oneof![3 => load, 1 => Just(flying(0))]), 1..25)
}

fn targets() -> impl Strategy<Value = ScaleTargets> {
    (
        prop::option::of(10.0..200.0),
        prop::option::of(1.0..200.0),
        0.5..40.0,
    )
        .prop_map(|(cpu, rps, in_flight)| ScaleTargets {
            cpu,
            rps,
            in_flight: Some(in_flight),
            ..ScaleTargets::default()
        })
}

proptest! {
    /// Over any loads: the count stays within its limits, nothing is taken away within a cooldown of any other change, and
    /// never below what was called for meanwhile; under a load that stays it comes to rest; the log replays to the same.
    #[test]
    fn the_scaler_never_flaps_and_never_leaves_its_limits(
        (min, more) in (0..4u32, 0..30u32),
        targets in targets(),
        loads in loads(),
    ) {
        let max = (min + more).max(1);
        let mut world = World::new(min, max, targets);
        // Each look: when, the count after it, and how many were called for.
        let mut looks: Vec<(u64, u32, u32)> = Vec::new();
        let mut changes: Vec<(u64, u32, u32)> = Vec::new();
        for (secs, load) in loads {
            for _ in 0..secs {
                world.now_ms += 1_000;
                let before = world.count();
                let called = called_for(world.state.service(world.id()).unwrap(), &load).unwrap().replicas;
                world.look(load);
                let after = world.count();
                prop_assert!((min..=max).contains(&after));
                looks.push((world.now_ms, after, called));
                if after > before {
                    prop_assert!(called >= after, "nothing calls for more");
                }
                if after < before {
                    prop_assert!(load.is_whole);
                    let begin = world.now_ms - COOLDOWN_MS;
                    prop_assert!(changes.iter().all(|(at, ..)| *at <= begin), "{changes:?}");
                    let during = looks.iter().filter(|(at, ..)| *at >= begin);
                    let most = during.map(|(.., called)| *called).max().unwrap_or(0);
                    prop_assert!(after >= most && after >= before / 2);
                }
                if after != before {
                    changes.push((world.now_ms, before, after));
                }
            }
        }
        // One load for good: the count goes one way, and rests.
        let steady = flying(37);
        let counts = world.run(1_200, steady);
        let rises = counts.windows(2).all(|pair| pair[0] < pair[1]);
        let falls = counts.windows(2).all(|pair| pair[0] > pair[1]);
        prop_assert!(rises || falls, "{counts:?}");
        prop_assert_eq!(world.run(600, steady).len(), 1);
        let mut again = State::default();
        for entry in &world.log {
            let _ = step(&mut again, entry, &mut ());
        }
        prop_assert_eq!(again.hash(), world.state.hash());
    }
}

//! A worker that does not tell generations apart never has two of one replica.

use super::*;
use crate::command::{AgentCommand, DeploymentCommand, InventoryItem};
use crate::ids::{Generation, ReplicaKey};
use crate::plan::{PlanCache, plan_next};
use crate::replica::{Machine, ReplicaState};
use crate::state::Wanted;

impl World {
    fn deploy(&mut self, image: &str, replicas: u32) {
        self.deploy_as("shop", image, replicas);
    }

    fn deploy_as(&mut self, deployment: &str, image: &str, replicas: u32) {
        let spec = format!(
            r#"{{"version":"v1","deployment":"{deployment}","services":{{"web":{{"image":"{image}",
                "scale":{{"mode":"fixed","replicas":{replicas}}},"rollout":{{"min_healthy":"0s"}}}}}}}}"#
        );
        let deploy = DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_str(&spec).unwrap()),
            author: "test".into(),
            wall_unix_secs: 0,
            force: false,
        };
        self.apply(Command::Deployment(deploy)).unwrap();
    }

    /// Plans until there is nothing more to do for now; looks at what is where after each command.
    fn plan(&mut self, mut look: impl FnMut(&State)) -> bool {
        let mut did = false;
        for _ in 0..20 {
            self.now_ms += 1_000;
            let plan = plan_next(&self.state, &mut PlanCache::default(), ClusterTime(self.now_ms));
            if plan.commands.is_empty() {
                break;
            }
            did = true;
            for command in plan.commands {
                let _ = self.apply(Command::Plan(command));
                look(&self.state);
            }
        }
        did
    }

    /// The worker does what it is told: it runs what is assigned, and nothing else.
    fn obey(&mut self, node: NodeId) {
        self.now_ms += 1_000;
        let keys: Vec<ReplicaKey> = self.state.node(node).unwrap().replica_keys().collect();
        let run = |key: &ReplicaKey| self.state.replicas[key].wanted == Wanted::Run;
        let replicas = keys.into_iter().filter(run).map(|replica| InventoryItem {
            replica,
            machine: Machine {
                state: ReplicaState::Running,
                healthy: true,
                ..Machine::default()
            },
        });
        let told = AgentCommand::Inventory {
            node,
            incarnation: 0,
            seq: 0,
            replicas: replicas.collect(),
        };
        self.apply(Command::Agent(told)).unwrap();
    }

    /// From one version to the next: the most replicas of one slot that were there at a time, the fewest that ran, and
    /// the generations at the end.
    fn roll(&mut self, node: NodeId, replicas: usize) -> (usize, usize, Vec<Generation>) {
        let (mut most, mut fewest) = (0, replicas);
        self.deploy("web:2", u32::try_from(replicas).unwrap());
        for _ in 0..50 {
            let mut look = |state: &State| {
                let keys: Vec<ReplicaKey> = state.node(node).unwrap().replica_keys().collect();
                let same = |slot| keys.iter().filter(|key| key.slot == slot).count();
                most = keys.iter().map(|key| same(key.slot)).max().unwrap_or(0).max(most);
                let runs = |key: &&ReplicaKey| {
                    let replica = &state.replicas[*key];
                    replica.is_running() && replica.wanted == Wanted::Run
                };
                fewest = fewest.min(keys.iter().filter(runs).count());
            };
            if !self.plan(&mut look) {
                break;
            }
            self.obey(node);
        }
        let keys = self.state.replicas.keys();
        (most, fewest, keys.map(|key| key.generation).collect())
    }
}

fn rolled(is_plain: bool, tells: bool) -> (usize, usize, Vec<Generation>) {
    let mut world = World::new(2, 1);
    let node = NodeId(world.join_as("a", None, is_plain).unwrap());
    if tells {
        let told = Command::Node(NodeCommand::TellsGenerations { node });
        world.apply(told).unwrap();
    }
    world.deploy("web:1", 3);
    world.plan(|_| {});
    world.obey(node);
    world.plan(|_| {});
    world.roll(node, 3)
}

#[test]
fn the_old_one_goes_before_the_new_one_comes() {
    let (most, fewest, generations) = rolled(true, false);
    assert_eq!(most, 1, "never two of one replica");
    assert_eq!(fewest, 2, "one at a time");
    assert_eq!(generations, [Generation(2); 3]);
}

#[test]
fn a_worker_that_tells_generations_apart_gets_the_new_one_first() {
    for (is_plain, tells) in [(false, false), (true, true)] {
        let (most, fewest, generations) = rolled(is_plain, tells);
        assert_eq!((most, fewest), (2, 3));
        assert_eq!(generations, [Generation(2); 3]);
    }
}

/// Whose services of one name are on a node, and why the others have no place.
fn named_alike(tells: bool) -> (Vec<String>, Vec<String>) {
    let mut world = World::new(2, 1);
    let node = NodeId(world.join_as("a", None, true).unwrap());
    if tells {
        let told = Command::Node(NodeCommand::TellsGenerations { node });
        world.apply(told).unwrap();
    }
    // Both in one plan, and a third one when they are there.
    world.deploy_as("shop", "web:1", 1);
    world.deploy_as("other", "web:1", 1);
    world.plan(|_| {});
    world.obey(node);
    world.deploy_as("third", "web:1", 1);
    world.plan(|_| {});
    let now = ClusterTime(world.now_ms);
    let report = plan_next(&world.state, &mut PlanCache::default(), now).report;
    let waiting = report.services.values().flat_map(|service| &service.waiting);
    let why = waiting.map(|waiting| waiting.why.to_string()).collect();
    let there = world.state.node(node).unwrap().replica_keys();
    let there = there.map(|key| world.state.replica_name(&key).unwrap().to_string());
    (there.collect(), why)
}

#[test]
fn a_worker_that_knows_services_by_name_alone_gets_one_of_each_name() {
    let (there, why) = named_alike(false);
    assert_eq!(there, ["shop/web-default-0"]);
    assert_eq!(why.len(), 2, "{why:?}");
    let words = "would not tell it from another deployment's service of that name";
    assert!(why.iter().all(|why| why.contains(words)), "{why:?}");
    let (there, why) = named_alike(true);
    assert_eq!((there.len(), why.len()), (3, 0));
}

//! Who is told of which service, and how much of a large one.

use super::*;
use crate::amount::Amount;
use crate::command::{
    AgentCommand, AgentEvent, ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand,
};
use crate::ids::{DeploymentName, ReplicaKey, ServiceName, Term};
use crate::plan::{PlanCache, plan_next};
use crate::replica::ReplicaEvent;
use crate::state::{NodeInfo, NodeRole, State};
use crate::step::step;
use crate::time::ClusterTime;

/// A cluster whose index follows what happens.
#[derive(Default)]
struct World {
    state: State,
    index: DirectoryIndex,
    concerned: Concerned,
}

impl World {
    fn new(nodes: u64) -> Self {
        let state = State {
            feature_level: State::FEATURE_LEVEL,
            ..State::default()
        };
        let mut world = Self {
            state,
            ..Self::default()
        };
        for node in 1..=nodes {
            world.register(node, &[]);
        }
        world
    }

    fn register(&mut self, node: u64, labels: &[(&str, &str)]) {
        self.register_as(node, labels, NodeRole::Peer, &format!("10.0.0.{node}:3672"));
    }

    fn register_as(&mut self, node: u64, labels: &[(&str, &str)], role: NodeRole, mesh: &str) {
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let info = NodeInfo {
            role,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::new(labels.collect()),
            capacity: Amount {
                cpu_milli: 64_000,
                memory_bytes: 1 << 40,
            },
            runs_replicas: true,
            tries_settings: false,
            mounts_files: false,
            runs_steps: false,
            volumes: crate::spec::VolumeSupport::Named,
            mesh_addr: Some(mesh.into()),
        };
        let info = Arc::new(info);
        let node = NodeId(node);
        self.apply(Command::Node(NodeCommand::Register { node, info }));
    }

    fn apply(&mut self, command: Command) {
        let entry = Entry {
            time: ClusterTime(self.state.time.0 + 100),
            term: Term(0),
            request: None,
            command,
        };
        let mut touched = Touched::default();
        step(&mut self.state, &entry, &mut touched).unwrap();
        self.concerned = self.index.refresh(&self.state, &touched);
        assert_eq!(self.index, DirectoryIndex::of(&self.state));
    }

    /// Deploys services, places them, and lets all of their replicas become healthy.
    fn deploy(&mut self, deployment: &str, services: &str) {
        let text = format!(r#"{{"version":"v1","deployment":"{deployment}","services":{services}}}"#);
        self.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_str(&text).unwrap()),
            author: "ann".into(),
            wall_unix_secs: 0,
            force: false,
        }));
        let plan = plan_next(&self.state, &mut PlanCache::default(), self.state.time);
        for command in plan.commands {
            self.apply(Command::Plan(command));
        }
        let new: Vec<ReplicaKey> = self.state.replicas.keys().copied().collect();
        for replica in new {
            if !self.state.replicas[&replica].is_running() {
                for event in [
                    ReplicaEvent::StartBegan,
                    ReplicaEvent::Started { pid: 7 },
                    ReplicaEvent::BecameHealthy,
                ] {
                    self.report(replica, event);
                }
            }
        }
    }

    fn report(&mut self, replica: ReplicaKey, event: ReplicaEvent) {
        let node = self.state.replicas[&replica].node;
        self.apply(Command::Agent(AgentCommand::Report {
            node,
            incarnation: 0,
            first_seq: self.state.node(node).unwrap().session.seq + 1,
            events: vec![AgentEvent { replica, event }],
        }));
    }

    /// The services that a node is told of, with the nodes of their ready replicas.
    fn seen(&self, node: u64) -> Vec<(String, Vec<u64>)> {
        let directory = self.index.directory(&self.state, NodeId(node), &Interest::All);
        let services = directory.services.iter();
        services
            .map(|(key, listing)| {
                let nodes = listing.ready.iter().map(|ready| ready.node.0);
                (key.to_string(), nodes.collect())
            })
            .collect()
    }

    fn node_of(&self, deployment: &str, service: &str) -> u64 {
        let service = self
            .state
            .service_named(
                &DeploymentName::new(deployment).unwrap(),
                &ServiceName::new(service).unwrap(),
            )
            .unwrap();
        self.state.replicas_of(service.id).next().unwrap().1.node.0
    }
}

/// A service on one node, with an endpoint.
fn on(node: &str, endpoint: &str) -> String {
    format!(
        r#"{{"image":"i:1","node_selector":{{"labels":{{"n":"{node}"}}}},
            "endpoints":[{{"name":"e","protocol":"tcp","port":5432{endpoint}}}]}}"#
    )
}

fn labelled(nodes: u64) -> World {
    let mut world = World::new(0);
    for node in 1..=nodes {
        world.register(node, &[("n", &node.to_string())]);
    }
    world
}

#[test]
fn a_node_is_told_of_its_deployments_and_of_what_is_open_to_it() {
    let mut world = labelled(4);
    let services = format!(r#"{{"web":{},"db":{}}}"#, on("1", ""), on("2", ""));
    world.deploy("shop", &services);
    let own = |node| {
        vec![
            ("shop/db".to_owned(), vec![2]),
            ("shop/web".to_owned(), vec![node]),
        ]
    };
    assert_eq!(world.seen(1), own(1));
    assert_eq!(world.seen(2), own(1));
    assert_eq!(world.seen(3), []);
    world.deploy("blog", &format!(r#"{{"web":{}}}"#, on("3", "")));
    assert_eq!(world.seen(3), [("blog/web".to_owned(), vec![3])]);
    let narrow = on("2", r#","allow":["web","blog/web"]"#);
    world.deploy("shop", &format!(r#"{{"web":{},"db":{narrow}}}"#, on("1", "")));
    assert!(
        world.concerned.nodes.contains(&NodeId(3)),
        "{:?}",
        world.concerned
    );
    assert_eq!(world.seen(3).len(), 2, "it may call the database");
    world.deploy(
        "open",
        &format!(r#"{{"dns":{}}}"#, on("4", r#","expose":"cluster""#)),
    );
    assert_eq!(world.seen(3).len(), 3);
    let directory = world.index.directory(&world.state, NodeId(3), &Interest::All);
    let nodes: Vec<_> = directory
        .nodes
        .iter()
        .map(|(node, addr)| (node.0, &**addr))
        .collect();
    assert_eq!(nodes, [(2, "10.0.0.2:3672"), (4, "10.0.0.4:3672")]);
}

#[test]
fn what_is_not_ready_is_not_named() {
    let mut world = labelled(3);
    let services = format!(r#"{{"web":{},"db":{}}}"#, on("1", ""), on("2", ""));
    world.deploy("shop", &services);
    assert_eq!(world.node_of("shop", "db"), 2);
    let lost = Command::Node(NodeCommand::Lost { node: NodeId(2) });
    world.apply(lost);
    assert!(world.concerned.nodes.contains(&NodeId(1)));
    assert!(!world.concerned.nodes.contains(&NodeId(3)) && !world.concerned.all);
    assert_eq!(
        world.seen(1)[0],
        ("shop/db".to_owned(), vec![]),
        "its node is lost"
    );
    let remove = DeploymentCommand::Remove {
        deployment: DeploymentName::new("shop").unwrap(),
    };
    world.apply(Command::Deployment(remove));
    let plan = plan_next(&world.state, &mut PlanCache::default(), world.state.time);
    for command in plan.commands {
        world.apply(Command::Plan(command));
    }
    assert!(
        world.seen(1).iter().all(|(_, ready)| ready.is_empty()),
        "it is asked to end: {:?}",
        world.seen(1)
    );
}

#[test]
fn public_endpoints_are_told_to_all_nodes_of_a_small_cluster_and_to_labelled_ones_of_a_large() {
    let mut world = labelled(3);
    world.deploy(
        "shop",
        &format!(r#"{{"web":{}}}"#, on("1", r#","expose":"public""#)),
    );
    assert_eq!(world.seen(3), [("shop/web".to_owned(), vec![1])]);
    for node in 4..=101 {
        let labels: &[(&str, &str)] = match node {
            50 => &[(INGRESS_LABEL, "true")],
            _ => &[],
        };
        world.register(node, labels);
    }
    assert!(world.concerned.all, "the cluster has become a large one");
    assert_eq!(world.seen(3), []);
    assert_eq!(world.seen(50), [("shop/web".to_owned(), vec![1])]);
    assert_eq!(world.seen(1).len(), 1, "its own");
}

#[test]
fn removed_nodes_and_other_cas_are_told_to_everybody() {
    let mut world = labelled(3);
    world.deploy("shop", &format!(r#"{{"web":{}}}"#, on("1", "")));
    let removed = |world: &World, node| {
        let directory = world.index.directory(&world.state, NodeId(node), &Interest::All);
        directory.removed.iter().map(|id| id.0).collect::<Vec<_>>()
    };
    let before = world.index.directory(&world.state, NodeId(1), &Interest::All);
    world.apply(Command::Node(NodeCommand::Remove { node: NodeId(3) }));
    assert!(world.concerned.all);
    assert_eq!((removed(&world, 1), removed(&world, 2)), (vec![3], vec![3]));
    let now = world.index.directory(&world.state, NodeId(1), &Interest::All);
    let change = now.since(Some(&before));
    assert_eq!(
        (&change.removed[..], change.is_empty()),
        (&[NodeId(3)][..], false)
    );
    let mut followed = before.clone();
    followed.apply(change);
    assert_eq!(followed, now);
    // A peer whose id is configured comes back under it.
    world.register(3, &[("n", "3")]);
    assert!(world.concerned.all);
    assert_eq!(removed(&world, 1), [0; 0]);
    let back = world.index.directory(&world.state, NodeId(1), &Interest::All);
    followed.apply(back.since(Some(&now)));
    assert_eq!(followed, back);
    world.apply(Command::Cluster(ClusterCommand::RotateWorkerCa {
        now_unix_secs: 0,
        believed_until_unix_secs: 100,
    }));
    assert!(world.concerned.all);
}

#[test]
fn of_a_large_service_each_node_is_told_its_own_choice() {
    let ready = |node: u64, index: u32| ReadyReplica {
        node: NodeId(node),
        role: RoleName::fallback(),
        index,
        generation: Generation(1),
    };
    let listing = Listing {
        endpoints: Arc::from([]),
        ready: (0..1_000).map(|n| ready(u64::from(n % 250), n)).collect(),
        canary: None,
        cold_start: None,
    };
    let mut zones = imbl::OrdMap::new();
    let chosen = |node: u64| chosen::chosen(&listing, NodeId(node), &zones).ready;
    for node in [3, 4] {
        assert_eq!(chosen(node).len(), READY_MAX);
        let own = chosen(node).iter().filter(|ready| ready.node.0 == node).count();
        assert_eq!(own, 4, "those that it has itself");
    }
    assert!(chosen(3).intersection(&chosen(4)).count() < READY_MAX / 2);
    // One that goes changes the choice of a node by one at most.
    let gone = chosen(3).iter().next().unwrap().clone();
    let mut less = listing.clone();
    less.ready.remove(&gone);
    let left = chosen::chosen(&less, NodeId(3), &zones).ready;
    assert_eq!(chosen(3).difference(&left).count(), 1);
    // A zone of 20 nodes has 80 replicas: they come before all others.
    for node in 0..20 {
        zones.insert(NodeId(node), Arc::from("a"));
    }
    let near = chosen::chosen(&listing, NodeId(3), &zones).ready;
    assert_eq!(near.iter().filter(|ready| ready.node.0 < 20).count(), 80);
    let far = chosen::chosen(&listing, NodeId(200), &zones).ready;
    assert!(far.iter().filter(|ready| ready.node.0 < 20).count() < 40);
}

#[test]
fn what_is_open_is_told_to_those_who_ask() {
    let mut world = labelled(101);
    world.deploy(
        "open",
        &format!(r#"{{"dns":{}}}"#, on("4", r#","expose":"cluster""#)),
    );
    world.deploy(
        "shop",
        &format!(r#"{{"web":{},"db":{}}}"#, on("1", ""), on("2", "")),
    );
    let key = |deployment: &str, service: &str| ServiceKey {
        deployment: DeploymentName::new(deployment).unwrap(),
        service: ServiceName::new(service).unwrap(),
    };
    let seen = |world: &World, node, interest: &Interest| {
        let directory = world.index.directory(&world.state, NodeId(node), interest);
        let services: Vec<_> = directory.services.keys().map(ToString::to_string).collect();
        (services, directory.absent)
    };
    let nothing = Interest::default();
    let own = ["shop/db".to_owned(), "shop/web".to_owned()];
    assert_eq!(seen(&world, 1, &nothing), (own.to_vec(), Absent::default()));
    let asked = Interest::In([key("open", "dns"), key("open", "x"), key("com", "example")].into());
    let (services, absent) = seen(&world, 1, &asked);
    assert_eq!(services[0], "open/dns");
    assert_eq!(absent.services, [key("open", "x")].into());
    assert_eq!(absent.deployments, [key("com", "example").deployment].into());
    assert!(absent.has(&key("com", "other")) && !absent.has(&key("open", "dns")));
    // Neither what is not open nor anything at all for a node that runs nothing.
    let asked = Interest::In([key("shop", "db")].into());
    assert_eq!(seen(&world, 4, &asked).1.services, [key("shop", "db")].into());
    let asked = Interest::In([key("open", "dns")].into());
    assert_eq!(seen(&world, 9, &asked).0, [""; 0]);
    // A change concerns those who asked, by name, and nobody else.
    let replica = *world.state.replicas.keys().next().unwrap();
    world.report(replica, ReplicaEvent::BecameUnhealthy { message: "no".into() });
    let Concerned {
        all,
        nodes,
        services,
        is_open,
        ..
    } = world.concerned.clone();
    assert!(!all && is_open);
    assert_eq!(nodes, [NodeId(4)].into(), "it runs it");
    assert_eq!(services, [key("open", "dns")].into());
}

/// Three servers that run nothing, a worker that can be dialled (10) and one that cannot (11).
fn behind_nat() -> World {
    let mut world = World::default();
    world.state.feature_level = State::FEATURE_LEVEL;
    for server in 1..=3 {
        let mesh = format!("10.0.0.{server}:3672");
        world.register_as(server, &[("n", "none")], NodeRole::Server, &mesh);
    }
    world.register_as(10, &[("n", "10")], NodeRole::Worker, "10.0.0.10:3672");
    world.register_as(11, &[("n", "11")], NodeRole::Worker, REVERSE);
    world
}

fn ways(world: &World, node: u64) -> Vec<(u64, Option<MeshWay>)> {
    let directory = world.index.directory(&world.state, NodeId(node), &Interest::All);
    let nodes = directory.nodes.iter();
    nodes.map(|(node, text)| (node.0, MeshWay::read(text))).collect()
}

#[test]
fn a_node_that_nobody_can_dial_is_called_through_two_servers() {
    let mut world = behind_nat();
    let relays = relays_through(&world.state, NodeId(11));
    assert_eq!(relays.len(), RELAYS_MAX);
    assert!(relays_through(&world.state, NodeId(10)).is_empty());
    // It is told through whom, before anything runs there, and where they are.
    let mut told = vec![(11, Some(MeshWay::Through(relays.clone())))];
    told.extend(relays.iter().map(|relay| {
        let addr = format!("10.0.0.{relay}:3672");
        (relay.0, Some(MeshWay::At(addr.parse().unwrap())))
    }));
    told.sort_by_key(|(node, _)| *node);
    assert_eq!(ways(&world, 11), told);
    assert_eq!(
        ways(&world, 1),
        [(1, Some(MeshWay::Relay))],
        "all servers may be asked to"
    );
    assert_eq!(ways(&world, 10), [], "nobody there calls it");
    // Who calls it knows the same.
    let services = format!(r#"{{"db":{},"web":{}}}"#, on("11", ""), on("10", ""));
    world.deploy("shop", &services);
    assert_eq!(ways(&world, 10), told);
    // A server that is lost passes nothing on: everybody is told another one.
    let lost = relays[0];
    world.apply(Command::Node(NodeCommand::Lost { node: lost }));
    assert!(world.concerned.all);
    let others = relays_through(&world.state, NodeId(11));
    assert_eq!(others.first(), relays.get(1));
    assert!(!others.contains(&lost));
    // It can be dialled after all: nobody passes on any more.
    world.register_as(11, &[("n", "11")], NodeRole::Worker, "10.0.0.11:3672");
    assert!(world.concerned.nodes.contains(&others[0]));
    assert_eq!(ways(&world, others[0].0), []);
    let web = MeshWay::At(([10, 0, 0, 10], 3672).into());
    assert_eq!(ways(&world, 11), [(10, Some(web))], "what it calls itself");
}

/// A node that is told what changes.
#[derive(Default)]
struct Follower {
    told: ToldListings,
    has: Directory,
}

impl Follower {
    /// Takes in what there is to hear: then it has everything, and it was woken for it.
    fn hear(&mut self, world: &World, node: NodeId) {
        let change = self.told.look(&world.index, &world.state, node, &Interest::All);
        let is_woken = world.concerned.all || world.concerned.nodes.contains(&node);
        assert!(
            change.whole || change.is_empty() || is_woken,
            "node {node}: {change:?}"
        );
        self.has.apply(change);
        let whole = world.index.directory(&world.state, node, &Interest::All);
        assert_eq!(self.has, whole, "node {node}");
    }
}

#[test]
fn who_hears_of_changes_knows_the_ways_to_nodes_that_nobody_can_dial() {
    let mut world = behind_nat();
    let mut followers: BTreeMap<u64, Follower> = BTreeMap::new();
    let mut hear = |world: &World| {
        for node in [1, 2, 3, 10, 11] {
            followers.entry(node).or_default().hear(world, NodeId(node));
        }
    };
    hear(&world);
    let services = format!(r#"{{"db":{},"web":{}}}"#, on("11", ""), on("10", ""));
    world.deploy("shop", &services);
    // Nobody was asked while it was deployed: all hear of it at once.
    world.concerned.all = true;
    hear(&world);
    let replica = *world.state.replicas.keys().next().unwrap();
    for event in [
        ReplicaEvent::BecameUnhealthy { message: "no".into() },
        ReplicaEvent::BecameHealthy,
    ] {
        world.report(replica, event);
        hear(&world);
    }
    let relays = relays_through(&world.state, NodeId(11));
    let moved = format!("10.0.1.{}:3672", relays[0]);
    world.register_as(relays[0].0, &[("n", "none")], NodeRole::Server, &moved);
    hear(&world);
    world.apply(Command::Node(NodeCommand::Lost { node: relays[0] }));
    hear(&world);
    world.register_as(11, &[("n", "11")], NodeRole::Worker, "10.0.0.11:3672");
    hear(&world);
    world.register_as(10, &[("n", "10")], NodeRole::Worker, REVERSE);
    hear(&world);
}

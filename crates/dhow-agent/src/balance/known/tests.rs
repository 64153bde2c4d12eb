//! What a table has of services that other nodes run, and of names.

use std::collections::BTreeSet;

use dhow_core::directory::{Directory, Listing, ReadyReplica};
use dhow_core::ids::{Generation, RoleName};
use dhow_wire::grpc::MeshPass;

use super::*;
use crate::balance::BackendAddress;
use crate::balance::routes::Routes;
use crate::balance::{NoWay, There};
use crate::proxy::{RelayedPeer, Rule};

const OWN: NodeId = NodeId(1);

fn key(service: &str) -> ServiceKey {
    ServiceKey {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new(service).unwrap(),
    }
}

fn name(service: &str, node: NodeId) -> (ReplicaName, ReadyReplica) {
    let ready = ReadyReplica {
        node,
        role: RoleName::fallback(),
        index: 0,
        generation: Generation(2),
    };
    (ready.name(&key(service)), ready)
}

fn endpoints(json: &str) -> Vec<Endpoint> {
    serde_json::from_str(json).unwrap()
}

fn spec(runtime: Runtime, json: &str) -> ServiceSpec {
    ServiceSpec {
        runtime: Some(runtime),
        endpoints: endpoints(json),
        ..ServiceSpec::default()
    }
}

const PG: &str = r#"[{"name":"pg","protocol":"tcp","port":5432}]"#;
const WEB: &str = r#"[{"name":"http","protocol":"http","port":8080,"expose":"public"}]"#;

/// Two services: a database on nodes 1 and 2, and a public one on node 3 alone.
fn told() -> Arc<KnownDirectory> {
    let listing = |json: &str, ready: &[ReadyReplica]| {
        Arc::new(Listing {
            endpoints: endpoints(json).into(),
            ready: ready.iter().cloned().collect(),
            canary: None,
            cold_start: None,
        })
    };
    let db = [name("db", OWN).1, name("db", NodeId(2)).1];
    let services = [
        (key("db"), listing(PG, &db)),
        (key("web"), listing(WEB, &[name("web", NodeId(3)).1])),
    ];
    Arc::new(KnownDirectory {
        directory: Directory {
            services: services.into(),
            nodes: [
                (NodeId(2), "10.0.0.2:3672".into()),
                (NodeId(3), "10.0.0.3:3672".into()),
            ]
            .into(),
            is_ingress: true,
            removed: [NodeId(9)].into_iter().collect(),
            ..Directory::default()
        },
        pass: MeshPass::default(),
    })
}

fn routes(mesh: bool, runtime: Runtime) -> Routes {
    let mut routes = Routes::default();
    let mesh = mesh.then(|| SocketAddr::from(([10, 0, 0, 1], 3672)));
    routes.known.dns = Some(Dns {
        addr: Ipv4Addr::new(10, 87, 0, 1),
        upstream: Vec::new(),
        host: Ipv4Addr::new(10, 88, 0, 1),
    });
    assert!(routes.known.tell(NodePlace { node: OWN, mesh }, Some(&told())));
    let (replica, _) = name("db", OWN);
    routes
        .open(&key("db"), replica.generation, &spec(runtime, PG))
        .unwrap();
    let backend = BackendAddress {
        endpoint: "pg".into(),
        addr: ([10, 88, 0, 7], 5432).into(),
    };
    routes.admit(&replica, &[backend]);
    let services = routes.known.numbered();
    routes.known.book.keep(&services, 1 << 16, 0);
    routes
}

/// The places behind an endpoint: here, or a node.
fn places(backends: &[Backend]) -> Vec<Option<u64>> {
    backends.iter().map(|backend| backend.node).collect()
}

#[test]
fn a_service_has_its_replicas_here_and_elsewhere_behind_its_name() {
    let table = routes(true, Runtime::Container).table(1);
    table.check().unwrap();
    let names = table.names.unwrap();
    let services: Vec<_> = names
        .services
        .iter()
        .map(|service| (service.service.as_str(), places(&service.endpoints[0].backends)))
        .collect();
    assert_eq!(services, [("db", vec![None, Some(2)]), ("web", vec![Some(3)])]);
    assert!(!names.incomplete);
    let listeners: Vec<_> = table
        .listeners
        .iter()
        .map(|listener| (listener.addr.to_string(), places(&listener.routes[0].backends)))
        .collect();
    let db = ("127.0.0.1:5432".to_owned(), vec![None, Some(2)]);
    let web = ("0.0.0.0:8080".to_owned(), vec![Some(3)]);
    assert_eq!(
        listeners,
        [web, db],
        "public ports are served where no replica is"
    );
    assert!(matches!(table.listeners[1].routes[0].who, Rule::Judged(_)));
    let mesh = table.mesh.unwrap();
    let peers: Vec<_> = mesh.peers.iter().map(|peer| peer.node).collect();
    assert_eq!((mesh.node, peers), (1, vec![2, 3]));
}

#[test]
fn without_a_way_to_other_nodes_there_are_replicas_of_this_one_alone() {
    let table = routes(false, Runtime::Container).table(1);
    let names = table.names.unwrap();
    assert_eq!(places(&names.services[0].endpoints[0].backends), [None]);
    assert_eq!(table.listeners.len(), 1, "nobody is let in for nothing");
    assert_eq!(table.mesh, None);
}

#[test]
fn host_programs_have_addresses_on_the_loopback_and_variables_that_say_the_port() {
    let mut routes = routes(true, Runtime::Process);
    routes.known.book.set_port(&key("db"), "pg", 40_000);
    let table = routes.table(1);
    table.check().unwrap();
    assert_eq!(table.names, None, "there is no container");
    let addrs: BTreeSet<String> = table
        .listeners
        .iter()
        .map(|listener| listener.addr.to_string())
        .filter(|addr| addr.starts_with("127.87."))
        .collect();
    let wanted = ["127.87.0.16:40000".to_owned(), "127.87.0.17:8080".to_owned()];
    assert_eq!(addrs, BTreeSet::from(wanted));
    let deployment = DeploymentName::new("shop").unwrap();
    let reached = routes.known.reached_from(&deployment, Runtime::Process);
    assert_eq!(reached[0].ports, [("pg".to_owned(), 40_000)]);
    assert_eq!(reached[0].address, Ipv4Addr::new(127, 87, 0, 16));
    let inside = routes.known.reached_from(&deployment, Runtime::Container);
    assert_eq!(inside[0].ports, [("pg".to_owned(), 5432)]);
    assert_eq!(inside[0].address, Ipv4Addr::new(10, 87, 0, 16));
}

#[test]
fn a_daemon_after_this_one_goes_on_with_what_was_served() {
    let mut routes = routes(true, Runtime::Container);
    let (replica, _) = name("db", OWN);
    let from = CallsFrom::Bridge(Ipv4Addr::new(10, 88, 0, 7));
    assert!(routes.known.calls_from(&replica, from));
    assert!(!routes.known.calls_from(&replica, from), "that is no news");
    let table = routes.table(1);
    let mut again = Routes::from_table(&table);
    again.known.dns = routes.known.dns.clone();
    again.known.book = routes.known.book.clone();
    again.known.remember(OWN, told());
    let mesh = Some(SocketAddr::from(([10, 0, 0, 1], 3672)));
    assert!(again.known.tell(NodePlace { node: OWN, mesh }, None));
    assert_eq!(again.table(1), table, "before a replica has spoken");
    again.retain(&BTreeSet::from([replica]));
    assert_eq!(again.table(1), table);
    // Another node's knowledge is not this one's.
    let mut other = Routes::from_table(&table);
    other.known.remember(NodeId(9), told());
    other.known.tell(NodePlace { node: OWN, mesh }, None);
    assert!(other.known.numbered().is_empty());
}

#[test]
fn each_replica_has_an_address_behind_which_it_stands_alone() {
    let mut routes = routes(true, Runtime::Container);
    let mut told = told().as_ref().clone();
    let listing = told.directory.services.get_mut(&key("db")).unwrap();
    let elsewhere = name("db", NodeId(2)).1;
    Arc::make_mut(listing).ready.remove(&elsewhere);
    Arc::make_mut(listing).ready.insert(ReadyReplica {
        index: 1,
        ..elsewhere
    });
    let mesh = Some(SocketAddr::from(([10, 0, 0, 1], 3672)));
    routes
        .known
        .tell(NodePlace { node: OWN, mesh }, Some(&Arc::new(told)));
    let replicas = routes.numbered_replicas();
    let ids: Vec<&str> = replicas.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!(ids, ["db-default-0", "db-default-1", "web-default-0"]);
    let numbers = routes.known.replica_numbers();
    routes.known.book.keep_replicas(&replicas, numbers, 0);
    let table = routes.table(1);
    table.check().unwrap();
    let listeners = table.names.unwrap().listeners().into_iter();
    let behind: Vec<_> = listeners
        .map(|listener| (listener.addr.to_string(), places(&listener.routes[0].backends)))
        .filter(|(addr, _)| addr.starts_with("10.87.128."))
        .collect();
    assert_eq!(
        behind,
        [
            ("10.87.128.0:5432".to_owned(), vec![None]),
            ("10.87.128.1:5432".to_owned(), vec![Some(2)]),
            ("10.87.128.2:8080".to_owned(), vec![Some(3)]),
        ]
    );
}

#[test]
fn the_way_of_a_call_is_known_before_it_is_made() {
    let routes = routes(true, Runtime::Container);
    let way = |from: &ServiceKey, to: &str, endpoint: &str| {
        routes.way(from, Runtime::Container, &key(to), endpoint)
    };
    let stranger = ServiceKey {
        deployment: DeploymentName::new("blog").unwrap(),
        ..key("web")
    };
    let own = way(&key("web"), "db", "pg").unwrap();
    assert_eq!(own.address.to_string(), "10.87.0.16:5432");
    assert!(own.may_call && own.name_server.is_some());
    assert_eq!(own.here, ["db-default-0"]);
    let there = There {
        id: "db-default-0".to_owned(),
        node: 2,
        relays: Vec::new(),
    };
    assert_eq!(own.there, [there]);
    assert!(!way(&stranger, "db", "pg").unwrap().may_call);
    assert!(way(&stranger, "web", "http").unwrap().may_call, "it is public");
    assert_eq!(way(&stranger, "nosuch", "x"), Err(NoWay::Service));
    assert_eq!(way(&stranger, "db", "x"), Err(NoWay::Endpoint(vec!["pg".into()])));
    let process = routes
        .way(&key("web"), Runtime::Process, &key("db"), "pg")
        .unwrap();
    assert_eq!(
        (process.address.to_string().as_str(), process.name_server),
        ("127.87.0.16:5432", None)
    );
}

/// A table where one of the nodes has another way.
fn table_with(node: NodeId, way: &str) -> (Routes, Table) {
    let mut routes = routes(true, Runtime::Container);
    let mut told = KnownDirectory::clone(&told());
    told.directory.nodes.insert(node, way.into());
    let place = NodePlace {
        node: OWN,
        mesh: Some(([10, 0, 0, 1], 3672).into()),
    };
    routes.known.relay = Some(RelayDuty { bytes_per_second: 7 });
    assert!(routes.known.tell(place, Some(&Arc::new(told))));
    let table = routes.table(1);
    table.check().unwrap();
    (routes, table)
}

#[test]
fn a_node_that_nobody_can_dial_is_called_through_others() {
    let (routes, table) = table_with(NodeId(2), "through 3");
    let mesh = table.mesh.unwrap();
    let peers: Vec<u64> = mesh.peers.iter().map(|peer| peer.node).collect();
    assert_eq!(peers, [3]);
    let relayed = RelayedPeer {
        node: 2,
        relays: vec![3],
    };
    assert_eq!(
        (mesh.relayed, mesh.relays, mesh.relay),
        (vec![relayed], vec![], None)
    );
    let way = routes.way(&key("web"), Runtime::Container, &key("db"), "pg");
    assert_eq!(way.unwrap().there[0].relays, [3]);
    // What only a newer version can read leads nowhere.
    let (_, table) = table_with(NodeId(2), "by pigeon");
    let mesh = table.mesh.unwrap();
    assert_eq!((mesh.peers.len(), mesh.relayed.len()), (1, 0));
}

#[test]
fn what_a_node_is_to_others_stands_in_its_own_entry() {
    let (_, table) = table_with(OWN, "through 2,3");
    let mesh = table.mesh.unwrap();
    assert_eq!(
        (mesh.relays, mesh.relayed, mesh.relay),
        (vec![2, 3], vec![], None)
    );
    let (_, table) = table_with(OWN, "relay");
    let mesh = table.mesh.unwrap();
    assert_eq!(mesh.relay, Some(RelayDuty { bytes_per_second: 7 }));
    assert!(mesh.relays.is_empty());
    // It runs its proxy for that alone.
    let mut routes = Routes::default();
    assert!(routes.is_empty());
    let mut told = KnownDirectory::default();
    told.directory.nodes.insert(OWN, "relay".into());
    let place = NodePlace {
        node: OWN,
        mesh: None,
    };
    assert!(routes.known.tell(place, Some(&Arc::new(told))));
    assert!(!routes.is_empty());
}

/// This node, where others can dial it.
fn dialled() -> NodePlace {
    NodePlace {
        node: OWN,
        mesh: Some(SocketAddr::from(([10, 0, 0, 1], 3672))),
    }
}

fn of_another_deployment() -> ServiceKey {
    ServiceKey {
        deployment: DeploymentName::new("open").unwrap(),
        ..key("dns")
    }
}

#[test]
fn what_was_given_up_keeps_its_address_until_servers_say_that_it_is_gone() {
    let mut routes = routes(true, Runtime::Container);
    let (place, other) = (dialled(), of_another_deployment());
    let tell = |routes: &mut Routes, wanted: bool, is_told: bool, is_absent: bool| {
        let wanted: BTreeSet<ServiceKey> = wanted.then(|| other.clone()).into_iter().collect();
        let mut next = KnownDirectory::clone(&told());
        next.directory.by_interest = true;
        if is_told {
            let listing = Listing {
                endpoints: endpoints(PG).into(),
                ready: [name("dns", NodeId(2)).1].into(),
                canary: None,
                cold_start: None,
            };
            next.directory.services.insert(other.clone(), Arc::new(listing));
        }
        if is_absent {
            next.directory.absent.deployments.insert(other.deployment.clone());
        }
        routes.known.want(&wanted);
        routes.known.tell(place, Some(&Arc::new(next)));
        let services = routes.known.numbered();
        routes.known.book.keep(&services, 1 << 16, 0);
        let table = routes.table(1);
        table.check().unwrap();
        let names = table.names.unwrap();
        let found = names.services.iter().find(|found| found.deployment == "open");
        let found = found.map(|found| (found.address, found.endpoints[0].backends.len()));
        let on_demand = names.on_demand.clone().unwrap();
        assert_eq!(on_demand.own, ["shop"]);
        let asleep = names
            .listeners()
            .iter()
            .filter(|listener| listener.routes[0].asleep)
            .count();
        (
            found,
            on_demand.asked.len(),
            asleep,
            on_demand.absent_deployments.len(),
        )
    };
    assert_eq!(
        tell(&mut routes, true, false, false),
        (None, 0, 0, 0),
        "it is asked for"
    );
    let (found, asked, asleep, _) = tell(&mut routes, true, true, false);
    let (address, backends) = found.unwrap();
    assert_eq!((backends, asked, asleep), (1, 1, 0));
    let given_up = tell(&mut routes, false, false, false);
    assert_eq!(given_up, (Some((address, 0)), 0, 1, 0), "it is asleep");
    let back = tell(&mut routes, true, true, false);
    assert_eq!(back, (Some((address, 1)), 1, 0, 0));
    tell(&mut routes, false, false, false);
    assert_eq!(
        tell(&mut routes, true, false, true),
        (None, 0, 0, 1),
        "there is none"
    );
}

#[test]
fn what_everybody_was_told_goes_on_answering_where_servers_begin_to_tell_on_demand() {
    let mut routes = routes(true, Runtime::Container);
    let (place, other) = (dialled(), of_another_deployment());
    let mut all = KnownDirectory::clone(&told());
    let listing = Listing {
        endpoints: endpoints(PG).into(),
        ready: [name("dns", NodeId(2)).1].into(),
        canary: None,
        cold_start: None,
    };
    all.directory.services.insert(other.clone(), Arc::new(listing));
    routes.known.tell(place, Some(&Arc::new(all)));
    let mut asked_for = KnownDirectory::clone(&told());
    asked_for.directory.by_interest = true;
    routes.known.tell(place, Some(&Arc::new(asked_for.clone())));
    assert_eq!(routes.known.asleep().keys().collect::<Vec<_>>(), [&other]);
    // A daemon that is started later goes on with it.
    let kept = routes.known.asleep().clone();
    let mut next = self::routes(true, Runtime::Container);
    next.known.remember(OWN, Arc::new(asked_for.clone()));
    next.known.remember_asleep(kept);
    next.known.tell(place, Some(&Arc::new(asked_for)));
    assert!(next.known.numbered().contains(&other));
    // An older server tells of everything that there is.
    next.known.tell(place, Some(&told()));
    assert!(next.known.asleep().is_empty() && !next.known.numbered().contains(&other));
}

//! Tables that are refused, each with its reason, and the form on disk.

use super::*;

fn listener(port: u16, protocol: Protocol, routes: Vec<Route>) -> Listener {
    Listener::new(SocketAddr::from(([127, 0, 0, 1], port)), protocol, routes)
}

fn route(id: &str, host: Option<&str>, path: Option<&str>) -> Route {
    Route {
        id: id.into(),
        host: host.map(str::to_owned),
        path: path.map(str::to_owned),
        backends: vec![backend("a", 9000)],
        ..Route::default()
    }
}

fn backend(id: &str, port: u16) -> Backend {
    Backend::here(id, SocketAddr::from(([127, 0, 0, 1], port)))
}

fn table(listeners: Vec<Listener>) -> Table {
    Table {
        revision: 7,
        listeners,
        ..Table::empty()
    }
}

#[track_caller]
fn refused(table: Table, part: &str) {
    let error = table.check().unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[test]
fn broken_tables_are_refused() {
    use Protocol::{Http, Tcp, Udp};
    let one = || vec![route("r", None, None)];
    let http = |routes| table(vec![listener(80, Http, routes)]);
    refused(
        Table {
            version: 3,
            ..table(vec![])
        },
        "has form 3",
    );
    refused(
        Table {
            version: 0,
            ..table(vec![])
        },
        "has form 0",
    );
    refused(table(vec![listener(0, Tcp, one())]), "no port");
    let twice = vec![listener(80, Tcp, one()), listener(80, Http, one())];
    refused(table(twice), "two listeners have the address 127.0.0.1:80");
    refused(table(vec![listener(80, Tcp, vec![])]), "exactly one route");
    let with_host = vec![route("r", Some("a"), None)];
    refused(table(vec![listener(80, Udp, with_host)]), "exactly one route");
    refused(http(vec![route("", None, None)]), "the route id \"\" is empty");
    let same_id = vec![route("r", None, None), route("r", Some("a"), None)];
    refused(http(same_id), "the id \"r\" twice");
    let same_target = vec![
        route("r", Some("A."), Some("/x")),
        route("s", Some("a"), Some("/x")),
    ];
    refused(http(same_target), "the same host and path");
    refused(
        http(vec![route("r", None, Some("x"))]),
        "does not begin with a slash",
    );
    refused(http(vec![route("r", Some("a:80"), None)]), "no host name");
    refused(http(vec![route("r", Some("a/b"), None)]), "no host name");
    let mut same_backend = route("r", None, None);
    same_backend.backends.push(backend("a", 9000));
    refused(http(vec![same_backend]), "twice");
    let mut to_itself = route("r", None, None);
    to_itself.backends = vec![backend("a", 80)];
    refused(http(vec![to_itself]), "back to itself");
    let long = "x".repeat(TEXT_MAX_BYTES + 1);
    refused(http(vec![route(&long, None, None)]), "longer than");
}

#[test]
fn good_tables_are_taken() {
    let routes = vec![
        route("a", None, None),
        route("b", Some("b.example"), None),
        route("c", Some("b.example"), Some("/api")),
    ];
    let udp = listener(80, Protocol::Udp, vec![route("u", None, None)]);
    let good = table(vec![listener(80, Protocol::Http, routes), udp]);
    assert_eq!(good.check(), Ok(()));
}

#[test]
fn the_form_stays_as_it_is() {
    let mut drained = route("web", Some("b.example"), Some("/api"));
    drained.backends = vec![Backend {
        draining: true,
        ..backend("shop/web-default-0", 9000)
    }];
    let table = table(vec![listener(80, Protocol::Http, vec![drained])]);
    let golden = r#"{"version":2,"revision":7,"listeners":[{"addr":"127.0.0.1:80","protocol":"http","routes":[{"id":"web","host":"b.example","path":"/api","backends":[{"id":"shop/web-default-0","addr":"127.0.0.1:9000","draining":true}],"who":"anybody"}]}]}"#;
    assert_eq!(serde_json::to_string(&table).unwrap(), golden);
    assert_eq!(serde_json::from_str::<Table>(golden).unwrap(), table);
    // Of a proxy before this form, or of its file.
    let first = r#"{"version":1,"revision":7,"listeners":[{"addr":"127.0.0.1:80","protocol":"http","routes":[{"id":"web","host":"b.example","path":"/api","backends":[{"id":"shop/web-default-0","addr":"127.0.0.1:9000","draining":true}]}]}]}"#;
    let first = serde_json::from_str::<Table>(first).unwrap();
    assert_eq!(first.check(), Ok(()));
    assert_eq!(first.listeners, table.listeners);
    // What a newer daemon adds is passed over.
    let newer = r#"{"version":1,"revision":7,"listeners":[],"more":1}"#;
    assert_eq!(serde_json::from_str::<Table>(newer).unwrap().revision, 7);
}

fn named(deployment: &str, service: &str, last: u8) -> NamedService {
    NamedService {
        deployment: deployment.into(),
        service: service.into(),
        address: Ipv4Addr::new(10, 87, 1, last),
        endpoints: vec![NamedEndpoint {
            name: "sql".into(),
            protocol: Protocol::Tcp,
            port: 5432,
            expose: Expose::Internal,
            allow: None,
            path: None,
            backends: vec![
                backend("shop/db-default-0@1", 9000),
                Backend {
                    addr: None,
                    node: Some(7),
                    ..backend("shop/db-default-1@1", 9000)
                },
            ],
            options: EndpointOptions::default(),
            cold_start_ms: None,
        }],
        replicas: Vec::new(),
    }
}

fn with_names(names: Names) -> Table {
    Table {
        names: Some(names),
        ..Table::empty()
    }
}

#[test]
fn broken_names_are_refused() {
    let services = |services| {
        with_names(Names {
            services,
            ..Names::default()
        })
    };
    let db = || named("shop", "db", 1);
    assert_eq!(services(vec![db(), named("blog", "db", 2)]).check(), Ok(()));
    refused(services(vec![db(), named("shop", "db", 2)]), "shop/db twice");
    refused(
        services(vec![db(), named("blog", "db", 1)]),
        "stands for two services",
    );
    let mut loopback = db();
    loopback.address = Ipv4Addr::new(127, 0, 0, 9);
    refused(services(vec![loopback]), "cannot stand for a service");
    let mut twice = db();
    twice.endpoints.extend(db().endpoints);
    refused(services(vec![twice]), "shop/db/sql twice");
    let mut same_port = db();
    same_port.endpoints.extend(db().endpoints);
    same_port.endpoints[1].name = "other".into();
    refused(
        services(vec![same_port]),
        "two listeners have the address 10.87.1.1:5432",
    );
    let mut nowhere = db();
    nowhere.endpoints[0].backends[0].addr = None;
    refused(services(vec![nowhere]), "either an address or a node");
    let caller = |service: &str| Caller {
        addr: Ipv4Addr::new(10, 88, 0, 2),
        deployment: "shop".into(),
        service: service.into(),
    };
    let callers = Names {
        callers: vec![caller("web"), caller("db")],
        ..Names::default()
    };
    refused(with_names(callers), "two callers");
    let dns = Names {
        dns: Some(Dns {
            addr: Ipv4Addr::new(10, 87, 0, 1),
            upstream: vec![SocketAddr::from(([10, 87, 0, 1], 53))],
            host: Ipv4Addr::new(10, 88, 0, 1),
        }),
        ..Names::default()
    };
    refused(with_names(dns), "would ask itself");
    let many = Names {
        services: vec![db(); 8193],
        ..Names::default()
    };
    refused(with_names(many), "8193 named services");
}

#[test]
fn a_mesh_has_each_node_once() {
    let mesh = Mesh {
        node: 1,
        listen: SocketAddr::from(([10, 0, 0, 1], 3672)),
        peers: vec![MeshPeer {
            node: 1,
            addr: SocketAddr::from(([10, 0, 0, 2], 3672)),
        }],
        relayed: Vec::new(),
        relays: Vec::new(),
        relay: None,
        ticket: None,
        ticket_key: None,
        removed: Vec::new(),
        believed_cas: None,
    };
    let table = Table {
        mesh: Some(mesh),
        ..Table::empty()
    };
    refused(table, "node 1 is there twice");
}

#[test]
fn a_service_listens_at_its_address_and_its_replicas_at_theirs() {
    let mut db = named("shop", "db", 1);
    db.replicas.push(NamedReplica {
        name: "db-default-1".into(),
        address: Ipv4Addr::new(10, 87, 128, 1),
    });
    let names = Names {
        services: vec![db],
        ..Names::default()
    };
    let seen: Vec<_> = names
        .listeners()
        .into_iter()
        .map(|listener| (listener.addr.to_string(), listener.routes[0].backends.len()))
        .collect();
    assert_eq!(
        seen,
        [
            ("10.87.1.1:5432".to_owned(), 2),
            ("10.87.128.1:5432".to_owned(), 1)
        ]
    );
}

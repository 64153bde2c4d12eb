//! Tables that are refused, each with its reason, and the form on disk.

use super::*;

fn listener(port: u16, protocol: Protocol, routes: Vec<Route>) -> Listener {
    Listener {
        addr: SocketAddr::from(([127, 0, 0, 1], port)),
        protocol,
        routes,
    }
}

fn route(id: &str, host: Option<&str>, path: Option<&str>) -> Route {
    Route {
        id: id.into(),
        host: host.map(str::to_owned),
        path: path.map(str::to_owned),
        backends: vec![backend("a", 9000)],
    }
}

fn backend(id: &str, port: u16) -> Backend {
    Backend {
        id: id.into(),
        addr: SocketAddr::from(([127, 0, 0, 1], port)),
        draining: false,
    }
}

fn table(listeners: Vec<Listener>) -> Table {
    Table {
        version: TABLE_VERSION,
        revision: 7,
        listeners,
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
            version: 2,
            ..table(vec![])
        },
        "has form 2",
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
    let golden = r#"{"version":1,"revision":7,"listeners":[{"addr":"127.0.0.1:80","protocol":"http","routes":[{"id":"web","host":"b.example","path":"/api","backends":[{"id":"shop/web-default-0","addr":"127.0.0.1:9000","draining":true}]}]}]}"#;
    assert_eq!(serde_json::to_string(&table).unwrap(), golden);
    assert_eq!(serde_json::from_str::<Table>(golden).unwrap(), table);
    // What a newer daemon adds is passed over.
    let newer = r#"{"version":1,"revision":7,"listeners":[],"more":1}"#;
    assert_eq!(serde_json::from_str::<Table>(newer).unwrap().revision, 7);
}

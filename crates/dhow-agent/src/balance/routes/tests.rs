//! What the table holds as replicas come and go.

use std::net::Ipv4Addr;

use super::*;
use dhow_core::ids::{DeploymentName, RoleName, ServiceName};
use dhow_core::spec::{self, Endpoint, Expose};

fn name(service: &str, index: u32, generation: u32) -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new(service).unwrap(),
        role: RoleName::fallback(),
        index,
        generation: Generation(generation),
    }
}

fn endpoint(name: &str, protocol: spec::Protocol, port: u16, path: Option<&str>) -> Endpoint {
    Endpoint {
        expose: Expose::Public,
        path: path.map(Into::into),
        ..Endpoint::new(name, protocol, port)
    }
}

fn spec_of(endpoints: Vec<Endpoint>) -> ServiceSpec {
    ServiceSpec {
        endpoints,
        ..ServiceSpec::default()
    }
}

fn at(port: u16) -> Vec<BackendAddress> {
    vec![BackendAddress {
        endpoint: "http".into(),
        addr: (Ipv4Addr::LOCALHOST, port).into(),
    }]
}

#[test]
fn a_table_has_what_was_admitted_and_can_be_taken_up_again() {
    let mut routes = Routes::default();
    let web = name("web", 0, 1).service_key();
    let spec = spec_of(vec![endpoint("http", spec::Protocol::Http, 80, None)]);
    routes.open(&web, Generation(1), &spec).unwrap();
    routes.admit(&name("web", 0, 1), &at(4000));
    routes.admit(&name("web", 1, 1), &at(4001));
    assert!(routes.drain(&name("web", 1, 1)));
    assert!(!routes.drain(&name("web", 2, 1)));
    let table = routes.table(7);
    let backends = &table.listeners[0].routes[0].backends;
    let seen: Vec<_> = backends
        .iter()
        .map(|backend| (backend.id.as_str(), backend.draining))
        .collect();
    assert_eq!(
        seen,
        [("shop/web-default-0@1", false), ("shop/web-default-1@1", true)]
    );
    let mut again = Routes::from_table(&table);
    routes.remove(&name("web", 1, 1));
    assert_eq!(again.table(7), routes.table(7));
    again.retain(&BTreeSet::from([name("web", 3, 1)]));
    assert!(again.table(7).listeners[0].routes[0].backends.is_empty());
    again.retain(&BTreeSet::from([name("db", 0, 1)]));
    assert!(again.is_empty());
}

#[test]
fn an_old_generation_does_not_bring_old_ports_back() {
    let mut routes = Routes::default();
    let web = name("web", 0, 1).service_key();
    let on = |port| spec_of(vec![endpoint("http", spec::Protocol::Http, port, None)]);
    routes.open(&web, Generation(2), &on(81)).unwrap();
    routes.open(&web, Generation(1), &on(80)).unwrap();
    assert_eq!(
        routes.public_addresses(&web),
        BTreeSet::from([(Ipv4Addr::UNSPECIFIED, 81).into()])
    );
    routes.close(&web);
    assert!(routes.is_empty());
    routes.open(&web, Generation(1), &on(80)).unwrap();
    assert_eq!(routes.public_addresses(&web).len(), 1);
}

#[test]
fn a_port_is_shared_by_paths_alone() {
    let mut routes = Routes::default();
    let (web, api) = (name("web", 0, 1).service_key(), name("api", 0, 1).service_key());
    let open = |routes: &mut Routes, service: &ServiceKey, protocol, path| {
        let spec = spec_of(vec![endpoint("http", protocol, 80, path)]);
        routes.open(service, Generation(1), &spec)
    };
    open(&mut routes, &web, spec::Protocol::Http, None).unwrap();
    let clash = open(&mut routes, &api, spec::Protocol::Http, None).unwrap_err();
    assert!(
        clash.contains("port 80") && clash.contains("shop/web/http"),
        "{clash}"
    );
    open(&mut routes, &api, spec::Protocol::Tcp, None).unwrap_err();
    open(&mut routes, &api, spec::Protocol::Udp, None).unwrap();
    open(&mut routes, &api, spec::Protocol::Http, Some("/api")).unwrap();
    assert_eq!(routes.table(1).listeners.len(), 1);
    assert_eq!(routes.table(1).listeners[0].routes.len(), 2);
}

#[test]
fn what_is_to_come_is_listened_on_beside_what_is_and_nobody_else_gets_it() {
    let mut routes = Routes::default();
    let (web, api) = (name("web", 0, 1), name("api", 0, 1));
    let on = |port| spec_of(vec![endpoint("http", spec::Protocol::Http, port, None)]);
    let (web_key, api_key) = (web.service_key(), api.service_key());
    routes.open(&web_key, Generation(1), &on(80)).unwrap();
    routes.admit(&web, &at(4000));
    routes.open(&api_key, Generation(1), &on(90)).unwrap();
    let seen = |routes: &Routes| -> Vec<(u16, usize)> {
        let listeners = routes.table(1).listeners.into_iter();
        listeners
            .map(|listener| (listener.addr.port(), listener.routes[0].backends.len()))
            .collect()
    };
    let taken = routes.claim(&web, &on(90)).unwrap_err();
    assert!(
        taken.contains("port 90") && taken.contains("shop/api/http"),
        "{taken}"
    );
    assert_eq!(seen(&routes), [(80, 1), (90, 0)], "nothing has changed");
    routes.claim(&web, &on(81)).unwrap();
    assert_eq!(seen(&routes), [(80, 1), (81, 1), (90, 0)]);
    let taken = routes.claim(&api, &on(81)).unwrap_err();
    assert!(taken.contains("shop/web/http"), "{taken}");
    routes.open(&api_key, Generation(2), &on(81)).unwrap_err();
    // A daemon after this one goes on with what counts.
    assert_eq!(
        Routes::from_table(&routes.table(1)).public_addresses(&web_key),
        routes.public_addresses(&web_key)
    );
    routes.open(&web_key, Generation(1), &on(81)).unwrap();
    assert_eq!(seen(&routes), [(81, 1), (90, 0)]);
    routes.unclaim(&web);
    assert_eq!(seen(&routes), [(81, 1), (90, 0)]);
    // An older generation claims nothing, and what is gone holds nothing.
    routes.open(&web_key, Generation(2), &on(81)).unwrap();
    routes.claim(&web, &on(82)).unwrap();
    assert_eq!(seen(&routes), [(81, 1), (90, 0)]);
    routes.claim(&name("web", 0, 2), &on(82)).unwrap();
    routes.retain(&BTreeSet::from([api.clone()]));
    routes.claim(&api, &on(82)).unwrap();
}

#[test]
fn what_is_public_at_an_address_of_the_loopback_is_taken_up_again() {
    let web = name("web", 0, 1);
    let key = web.service_key();
    for ingress in [
        Ipv4Addr::new(127, 0, 0, 3),
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::UNSPECIFIED,
    ] {
        let mut routes = Routes::default();
        routes.known.ingress_addr = Some(ingress.into());
        let spec = spec_of(vec![endpoint("http", spec::Protocol::Http, 80, None)]);
        routes.open(&key, Generation(1), &spec).unwrap();
        let table = routes.table(1);
        let mut again = Routes::from_table(&table);
        again.known.ingress_addr = Some(ingress.into());
        again.retain(&BTreeSet::from([web.clone()]));
        assert_eq!(again.table(1).listeners, table.listeners, "{ingress}");
    }
}

/// A port that is listened on stays as it is until the change counts.
#[test]
fn the_same_port_is_not_opened_twice() {
    let mut routes = Routes::default();
    let web = name("web", 0, 1);
    let on = |protocol, expose| {
        spec_of(vec![Endpoint {
            expose,
            ..endpoint("http", protocol, 80, None)
        }])
    };
    routes
        .open(
            &web.service_key(),
            Generation(1),
            &on(spec::Protocol::Http, Expose::Public),
        )
        .unwrap();
    let before = routes.table(1);
    for next in [
        on(spec::Protocol::Tcp, Expose::Internal),
        on(spec::Protocol::Http, Expose::Internal),
    ] {
        routes.claim(&web, &next).unwrap();
        assert_eq!(routes.table(1), before);
    }
    routes
        .claim(&web, &on(spec::Protocol::Udp, Expose::Internal))
        .unwrap();
    let table = routes.table(1);
    assert_eq!((table.listeners.len(), table.check()), (2, Ok(())));
}

#[test]
fn ports_of_this_host_alone_are_no_reason_to_refuse() {
    let mut routes = Routes::default();
    let on = |expose| {
        spec_of(vec![Endpoint {
            expose,
            ..endpoint("http", spec::Protocol::Tcp, 5432, None)
        }])
    };
    let (web, api) = (name("web", 0, 1).service_key(), name("api", 0, 1).service_key());
    let owners = |routes: &Routes| -> Vec<(SocketAddr, String)> {
        let listeners = routes.table(1).listeners.into_iter();
        listeners
            .map(|listener| (listener.addr, listener.routes[0].id.clone()))
            .collect()
    };
    routes.open(&web, Generation(1), &on(Expose::Internal)).unwrap();
    routes.open(&api, Generation(1), &on(Expose::Internal)).unwrap();
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 5432));
    assert_eq!(
        owners(&routes),
        [(here, "shop/api/http".to_owned())],
        "one of them"
    );
    routes.open(&web, Generation(1), &on(Expose::Public)).unwrap();
    let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 5432));
    assert_eq!(
        owners(&routes),
        [(all, "shop/web/http".to_owned())],
        "who is public"
    );
    let clash = routes.open(&api, Generation(1), &on(Expose::Public)).unwrap_err();
    assert!(clash.contains("shop/web/http"), "{clash}");
}

//! The rules as the API calls them: on a spec, without a text. The messages are in the reader's goldens.

use std::sync::Arc;

use super::*;
use crate::ids::{DeploymentName, RoleName, ServiceName};
use crate::spec::{
    AffinityMode, Dependency, Endpoint, Expose, ImageSpec, Protocol, ReplicaGroup, ScaleSpec, SpecVersion,
    Storage,
};

fn service() -> ServiceSpec {
    ServiceSpec {
        image: Some(ImageSpec::named("nginx:1.27")),
        ..ServiceSpec::default()
    }
}

fn paths(services: Vec<(&str, ServiceSpec)>) -> Vec<String> {
    let named = |(name, spec)| (ServiceName::new(name).unwrap(), Arc::new(spec));
    let deployment = DeploymentSpec {
        version: SpecVersion::V1,
        deployment: DeploymentName::new("test").unwrap(),
        services: services.into_iter().map(named).collect(),
        scaled: Default::default(),
        configs: Default::default(),
    };
    check_deployment(&deployment)
        .iter()
        .map(|finding| finding.path.to_string())
        .collect()
}

fn paths_of(spec: ServiceSpec) -> Vec<String> {
    paths(vec![("web", spec)])
}

#[test]
fn a_plain_service_is_fine() {
    assert_eq!(paths_of(service()), Vec::<String>::new());
    assert_eq!(paths(Vec::new()), ["services"]);
}

#[test]
fn the_default_spec_needs_something_to_run() {
    assert_eq!(paths_of(ServiceSpec::default()), ["services.web.image"]);
}

#[test]
fn scale_beside_groups() {
    let group = |role: &str| ReplicaGroup {
        role: RoleName::new(role).unwrap(),
        count: 1,
        image: None,
        env: Default::default(),
        command: None,
        resources: None,
        affinity: None,
    };
    let mut spec = service();
    spec.replica_groups = vec![group("a"), group("b")];
    assert_eq!(paths_of(spec.clone()), Vec::<String>::new());
    spec.scale = ScaleSpec::Fixed { replicas: 2 };
    assert_eq!(paths_of(spec.clone()), ["services.web.scale"]);
    spec.scale = ScaleSpec::default();
    spec.replica_groups.push(group("a"));
    assert_eq!(paths_of(spec), ["services.web.replica_groups[2].role"]);
}

#[test]
fn ids_that_would_clash() {
    let with_role = |role: &str| ServiceSpec {
        replica_groups: vec![ReplicaGroup {
            role: RoleName::new(role).unwrap(),
            count: 1,
            image: None,
            env: Default::default(),
            command: None,
            resources: None,
            affinity: None,
        }],
        ..service()
    };
    assert_eq!(
        paths(vec![("a", with_role("b-c")), ("a-b", with_role("c"))]),
        ["services.a-b.replica_groups[0].role"]
    );
    assert_eq!(
        paths(vec![("a", with_role("default")), ("b", service())]),
        Vec::<String>::new()
    );
}

#[test]
fn cycles_are_found_once_each() {
    let after = |names: &[&str]| ServiceSpec {
        depends: names
            .iter()
            .map(|name| Dependency {
                service: ServiceName::new(name).unwrap(),
                condition: Default::default(),
                timeout: Dependency::default_timeout(),
                on_timeout: Default::default(),
            })
            .collect(),
        ..service()
    };
    assert_eq!(
        paths(vec![
            ("a", after(&["b"])),
            ("b", after(&["a", "c"])),
            ("c", after(&["b"])),
            ("d", after(&["a"]))
        ]),
        ["services.b.depends[0].service", "services.c.depends[0].service"]
    );
    assert_eq!(
        paths(vec![
            ("a", after(&["b", "c"])),
            ("b", after(&["c"])),
            ("c", after(&[]))
        ]),
        Vec::<String>::new()
    );
}

#[test]
fn ports_may_be_shared_only_by_route() {
    let endpoint = |name: &str, protocol, path: Option<&str>| Endpoint {
        path: path.map(Into::into),
        ..Endpoint::new(name, protocol, 80)
    };
    let with = |endpoints| ServiceSpec {
        endpoints,
        ..service()
    };
    let http = |name, path| endpoint(name, Protocol::Http, path);
    assert_eq!(
        paths(vec![
            ("a", with(vec![http("x", None)])),
            ("b", with(vec![http("x", Some("/b"))]))
        ]),
        Vec::<String>::new()
    );
    // Each has its own address; at those of the nodes both would be in each other's way.
    let both = |expose| {
        let one = || Endpoint {
            expose,
            ..http("x", None)
        };
        paths(vec![("a", with(vec![one()])), ("b", with(vec![one()]))])
    };
    assert_eq!(both(Expose::Internal), Vec::<String>::new());
    assert_eq!(both(Expose::Cluster), Vec::<String>::new());
    assert_eq!(both(Expose::Public), ["services.b.endpoints[0].port"]);
    let mixed = vec![
        http("x", None),
        endpoint("y", Protocol::Https, Some("/y")),
        endpoint("z", Protocol::Udp, None),
    ];
    assert_eq!(paths_of(with(mixed)), ["services.web.endpoints[1].port"]);
}

#[test]
fn a_volume_cannot_surge() {
    let mut spec = service();
    spec.storage = vec![Storage::Named {
        name: "data".into(),
        target: "/data".into(),
        read_only: false,
        nocopy: false,
        size: None,
    }];
    assert_eq!(paths_of(spec.clone()), Vec::<String>::new());
    spec.rollout.max_surge = Some(1);
    assert_eq!(paths_of(spec.clone()), ["services.web.rollout.max_surge"]);
    spec.rollout.max_surge = None;
    spec.rollout.max_unavailable = Some(0);
    assert_eq!(paths_of(spec), ["services.web.rollout.max_unavailable"]);
}

#[test]
fn pin_needs_nodes_to_pin_to() {
    let mut spec = service();
    spec.affinity.mode = AffinityMode::Pin;
    assert_eq!(paths_of(spec.clone()), ["services.web.affinity.mode"]);
    spec.node_selector.labels.insert("zone".into(), "a".into());
    assert_eq!(paths_of(spec), Vec::<String>::new());
}

#[test]
fn paths_are_shown_as_people_write_them() {
    let path = FieldPath::of("services")
        .key("web")
        .key("endpoints")
        .index(0)
        .key("a.b");
    assert_eq!(path.to_string(), "services.web.endpoints[0].\"a.b\"");
}

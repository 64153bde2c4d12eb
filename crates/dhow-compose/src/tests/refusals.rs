//! What cannot be carried out is refused by name and place, with what to write instead.

use dhow_core::spec::Storage;

use super::world;
use crate::Nodes;

/// A file with one service, what is found, and a word of the hint.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "network_mode: host",
        "3:19 `network_mode: host` cannot be carried out",
        "ports",
    ),
    (
        "network_mode: none",
        "3:19 `network_mode: none` cannot be carried out",
        "leave it out",
    ),
    (
        "network_mode: \"service:db\"",
        "`network_mode: service:db` cannot be carried out",
        "call the other service",
    ),
    ("pid: host", "`pid: host` cannot be carried out", "leave it out"),
    ("ipc: host", "`ipc: host` cannot be carried out", "leave it out"),
    (
        "networks: { back: { ipv4_address: 10.0.0.2 } }",
        "`ipv4_address`: addresses are not fixed here",
        "by its name",
    ),
    (
        "volumes: [\"/var/run/docker.sock:/var/run/docker.sock\"]",
        "the Docker socket cannot be mounted",
        "leave this mount out",
    ),
    (
        "volumes: [\"/x:/x:rshared\"]",
        "`rshared` cannot be carried out",
        "leave it out",
    ),
    (
        "volumes: [\"data2:/x\"]",
        "the volume `data2` is not declared",
        "volumes: { data2: }",
    ),
    (
        "ports: [\"10.0.0.1:80:80\"]",
        "a port cannot be served at 10.0.0.1 alone",
        "127.0.0.1",
    ),
    ("ports: [\"80:x\"]", "`x` is no port", "8080:80"),
    (
        "privilegd: true",
        "a service has no key `privilegd`",
        "`privileged`",
    ),
    (
        "volumes_from: [db]",
        "`volumes_from`: volumes of other services",
        "name each volume",
    ),
    ("devices: [{}]", "this names no device", "/dev/fuse"),
    ("gpus: all", "`gpus`: GPUs are not given out", "devices"),
    (
        "restart: sometimes",
        "`sometimes` is no rule of restarting",
        "unless-stopped",
    ),
    (
        "healthcheck: { interval: 5s }",
        "the check of the image itself is not known here",
        "`test`",
    ),
    (
        "healthcheck: { test: [curl] }",
        "this list does not say how it is run",
        "CMD",
    ),
    (
        "deploy: { endpoint_mode: dnsrr }",
        "`endpoint_mode: dnsrr` cannot be carried out",
        "all.SERVICE",
    ),
    (
        "deploy: { update_config: { failure_action: continue } }",
        "`failure_action: continue` cannot be carried out",
        "rollback",
    ),
    (
        "deploy: { placement: { constraints: [node.role == manager] } }",
        "the constraint `node.role == manager`",
        "dhow node label",
    ),
    (
        "deploy: { resources: { limits: { memory: 2g }, reservations: { memory: 1g } } }",
        "there is one amount here",
        "both equal",
    ),
    (
        "deploy: { resources: { reservations: { devices: [{ capabilities: [gpu] }] } } }",
        "`devices` cannot be carried out",
        "devices",
    ),
    (
        "depends_on: [db, dbb]",
        "there is no service `dbb`",
        "did you mean `db`?",
    ),
    (
        "configs: [nope]",
        "there is no `nope` in `configs`",
        "file: ./nope",
    ),
    ("command: 'a \"b'", "a double quote is never closed", "list"),
    (
        "image: ${GONE:?set it}",
        "`GONE` is required and not set: set it",
        ".env",
    ),
    ("cap_add: [NET_ADMINN]", "NET_ADMINN", "NET_ADMIN"),
];

#[test]
fn each_is_named_with_its_place_and_a_hint() {
    for (fields, message, hint) in REFUSED {
        let image = if fields.starts_with("image") {
            ""
        } else {
            "image: a:1\n    "
        };
        let text = format!(
            "services:\n  web:\n    {fields}\n    {image}\n  db: {{ image: b:1 }}\nnetworks: {{ back: }}\nvolumes: {{ data: }}\n"
        );
        let found = world(&text).refusals();
        let fits = found.iter().any(|found| {
            let (what, advice) = found.split_once(" | ").unwrap();
            what.contains(message) && advice.contains(hint)
        });
        assert!(fits, "{fields}: {found:#?}");
    }
}

#[test]
fn all_is_told_at_once_and_in_the_file_that_it_stands_in() {
    let mut shop = world(
        "services:\n  web: { image: a:1, pid: host, ipc: host }\n  db: { image: b:1, privilegd: true }\n",
    );
    assert_eq!(shop.refusals().len(), 3);
    shop.add("over.yaml", "services:\n  web:\n    gpus: all\n");
    shop.asked.files.push("/srv/shop/over.yaml".into());
    assert!(
        shop.refusals()
            .iter()
            .any(|found| found.starts_with("3:5 `gpus`")),
        "{:?}",
        shop.refusals()
    );
}

#[test]
fn volumes_and_networks_of_others_are_refused() {
    for (top, message) in [
        (
            "networks: { default: { external: true } }",
            "the network `default` is not this file's own",
        ),
        (
            "networks: { default: { internal: true } }",
            "`internal: true` cannot be carried out",
        ),
        (
            "volumes: { data: { external: true } }",
            "the volume `data` is not this file's own",
        ),
        ("volumes: { data: { name: other } }", "cannot be called otherwise"),
        (
            "volumes: { data: { driver_opts: { type: nfs } } }",
            "`driver_opts` of a volume cannot be carried out",
        ),
        ("secretz: {}", "a compose file has no `secretz`"),
    ] {
        let found = world(&format!("services: {{ web: {{ image: a:1 }} }}\n{top}\n")).refusals();
        assert!(found[0].contains(message), "{top}: {found:?}");
    }
    // A network that nobody uses is nobody's concern.
    world("services: { web: { image: a:1 } }\nnetworks: { other: { external: true } }\n").deployment();
}

#[test]
fn an_image_that_is_built_is_named() {
    let found = world("services: { web: { build: . } }\n").refusals();
    assert!(found[0].contains("it would expect `shop-web`"), "{found:?}");
    let notes = world("services: { web: { build: ., image: \"x/web:1\" } }\n").notes();
    assert!(
        notes[0].contains("`x/web:1` is expected where nodes find it"),
        "{notes:?}"
    );
}

#[test]
fn names_that_clash_are_refused() {
    let found = world("services: { a_b: { image: a:1 }, a-b: { image: a:1 } }\n").refusals();
    assert!(found[0].contains("would be called `a-b`"), "{found:?}");
    let found =
        world("services: { web: { image: a:1, container_name: db }, db: { image: a:1 } }\n").refusals();
    assert!(
        found[0].contains("`db` is the name of another service too"),
        "{found:?}"
    );
}

#[test]
fn what_is_of_this_machine_is_refused_where_there_are_several() {
    let mut shop = world(
        "services:\n  web: { image: a:1, volumes: [\"./data:/data\"], ports: [\"127.0.0.1:80:80\"] }\n  \
         db: { image: a:1 }\n",
    );
    shop.deployment();
    shop.nodes = Nodes::Elsewhere;
    let found = shop.refusals();
    for message in [
        "the folder /srv/shop/data is on this machine",
        "127.0.0.1 is each node",
    ] {
        assert!(
            found.iter().any(|found| found.contains(message)),
            "{message}: {found:#?}"
        );
    }
}

#[test]
fn services_that_share_a_volume_need_no_label_where_there_are_several_nodes() {
    let mut shop = world(
        "services:\n  web: { image: a:1, volumes: [\"v:/v:nocopy\"] }\n  db: { image: a:1, volumes: [\"v:/v\"] }\nvolumes: { v: }\n",
    );
    shop.nodes = Nodes::Elsewhere;
    let deployment = shop.deployment();
    let nocopy = |service: &str| match &deployment.services[service].storage[..] {
        [Storage::Named { name, nocopy, .. }] if name == "v" => *nocopy,
        other => panic!("{other:?}"),
    };
    assert_eq!((nocopy("web"), nocopy("db")), (true, false));
}

//! One service: what is carried over, and how.

use dhow_core::spec::{
    ByteSize, Check, Condition, Expose, RType, RestartPolicy, ScaleSpec, Storage, TimeSpan,
};

use super::{service, world};

#[test]
fn restart_is_never_unless_said() {
    for (written, policy, attempts) in [
        ("", RestartPolicy::Never, None),
        ("    restart: \"no\"\n", RestartPolicy::Never, None),
        ("    restart: no\n", RestartPolicy::Never, None),
        ("    restart: unless-stopped\n", RestartPolicy::Always, None),
        ("    restart: always\n", RestartPolicy::Always, None),
        ("    restart: on-failure:4\n", RestartPolicy::OnFailure, Some(4)),
        (
            "    deploy: { restart_policy: { condition: on-failure, max_attempts: 2 } }\n",
            RestartPolicy::OnFailure,
            Some(2),
        ),
    ] {
        let restart = service(written).restart;
        assert_eq!(
            (restart.policy, restart.max_attempts),
            (policy, attempts),
            "{written}"
        );
    }
}

#[test]
fn placement_of_swarm_is_carried_over() {
    let spec = service(
        "    deploy:\n      restart_policy: { condition: on-failure, max_attempts: 3, window: 2m }\n      \
         placement: { max_replicas_per_node: 2, constraints: [node.labels.disk == ssd, node.labels.zone != c] }\n",
    );
    assert_eq!(spec.max_per_node, Some(2));
    assert_eq!(spec.restart.interval, Some(TimeSpan::from_secs(120)));
    let selector = &spec.node_selector;
    assert_eq!(selector.labels["disk"], "ssd");
    let rules: Vec<String> = selector.rules.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["zone != c"]);
    let unlimited = service("    deploy: { placement: { max_replicas_per_node: 0 } }\n");
    assert_eq!(unlimited.max_per_node, None);
}

#[test]
fn a_check_has_the_defaults_of_compose() {
    let health = service("    healthcheck: { test: pg_isready -q }\n")
        .health
        .unwrap();
    let Check::Command { command } = &health.check else {
        panic!("{health:?}")
    };
    assert_eq!(command, &["/bin/sh", "-c", "pg_isready -q"]);
    let (thirty, none) = (TimeSpan::from_secs(30), TimeSpan::ZERO);
    assert_eq!(
        (
            health.interval,
            health.timeout,
            health.start_grace,
            health.retries
        ),
        (thirty, thirty, none, 3)
    );
    let health = service(
        "    healthcheck:\n      test: [CMD, curl, -f, http://x]\n      interval: 1m30s\n      retries: 5\n",
    )
    .health;
    let health = health.unwrap();
    assert_eq!((health.interval, health.retries), (TimeSpan::from_secs(90), 5));
    assert!(service("    healthcheck: { disable: true }\n").health.is_none());
    assert!(service("    healthcheck: { test: [NONE] }\n").health.is_none());
    // As good as nothing written, where the check of the image would stay on.
    let on = world("services:\n  web:\n    image: a:1\n    healthcheck: { disable: false }\n");
    assert!(on.deployment().services.values().all(|web| web.health.is_none()));
    assert!(on.notes()[0].contains("the check of the image itself is not known here"));
}

#[test]
fn commands_are_split_without_a_shell() {
    let command =
        service("    entrypoint: /bin/sh -c\n    command: 'echo \"a b\" $$HOME'\n    working_dir: /app\n")
            .command
            .unwrap();
    assert_eq!(command.entrypoint.unwrap(), ["/bin/sh", "-c"]);
    assert_eq!(command.args.unwrap(), ["echo", "a b", "$HOME"]);
    assert_eq!(command.workdir.as_deref(), Some("/app"));
}

#[test]
fn ports_are_tcp_on_every_node_and_neighbours_have_the_inner_one() {
    let web = service(
        "    ports: [\"8080:80\", \"53:53/udp\", \"127.0.0.1:5432:5432\", 222:22]\n    expose: [9000]\n",
    );
    let shown: Vec<_> = web
        .endpoints
        .iter()
        .map(|one| (one.name.as_str(), one.port, one.target_port(), one.expose))
        .collect();
    assert_eq!(
        shown,
        [
            ("tcp-8080", 8080, 80, Expose::Public),
            ("udp-53", 53, 53, Expose::Public),
            ("tcp-5432", 5432, 5432, Expose::Internal),
            ("tcp-222", 222, 22, Expose::Public),
            ("tcp-80", 80, 80, Expose::Internal),
            ("tcp-22", 22, 22, Expose::Internal),
            ("tcp-9000", 9000, 9000, Expose::Internal),
        ]
    );
    // What the image exposes stands beside them.
    assert!(web.image_ports.is_some());
    assert!(service("").image_ports.is_none() && service("").endpoints.is_empty());
    let range = service("    ports: [\"3000-3002:3000-3002\"]\n");
    assert_eq!(range.endpoints.len(), 3);
    let long = service("    ports: [{ target: 80, published: \"8080\", app_protocol: http }]\n");
    assert_eq!(long.endpoints[0].protocol, dhow_core::spec::Protocol::Http);
}

#[test]
fn limits_and_rights_are_as_they_are() {
    let web = service(
        "    mem_limit: 512M\n    cpus: 0.5\n    pids_limit: 100\n    shm_size: 1gb\n    init: true\n    user: 1000:1000\n    \
         cap_add: [NET_ADMIN]\n    cap_drop: [ALL]\n    ulimits: { nofile: { soft: 1024, hard: 65536 }, nproc: 65535 }\n    \
         sysctls: [net.core.somaxconn=1024]\n    tmpfs: /run\n    stop_signal: SIGINT\n    stop_grace_period: 1m30s\n    \
         read_only: true\n    extra_hosts: [\"host.docker.internal:host-gateway\"]\n    labels: [a.b=c]\n",
    );
    assert_eq!(web.resources.memory, Some(ByteSize(512 << 20)));
    assert_eq!(web.resources.cpu.map(|cpu| cpu.0), Some(500));
    assert_eq!(web.resources.pids, Some(100));
    let shm = Storage::Tmpfs {
        target: "/dev/shm".into(),
        size: Some(ByteSize(1 << 30)),
    };
    assert!(web.storage.contains(&shm), "{:?}", web.storage);
    assert_eq!(web.ulimits["nofile"].hard, 65536);
    assert_eq!(web.sysctls["net.core.somaxconn"], "1024");
    assert_eq!(web.stop.grace, TimeSpan::from_secs(90));
    assert_eq!(web.extra_hosts, ["host.docker.internal:host-gateway"]);
    assert_eq!(web.labels["a.b"], "c");
    // Docker lets programs gain rights unless it is told not to.
    assert_eq!(web.no_new_privileges, Some(false));
    assert_eq!(
        service("    security_opt: [no-new-privileges:true]\n").no_new_privileges,
        Some(true)
    );
}

#[test]
fn variables_of_the_file_are_text() {
    let mut world = world(
        "services:\n  web:\n    image: a:${TAG:-1}\n    env_file: [a.env]\n    environment:\n      A: $$S:x\n      B: ${WORD}\n      \
         C:\n      D:\n      E: 1\n      F: \"$$E:HOME $${X}\"\n",
    );
    world.add("a.env", "A=from file\nG='$S:y'\nD=gone\n");
    world.add(".env", "WORD='$S:secret'\nC=dot\nTAG=\n");
    world.set("C", "shell");
    let deployment = world.deployment();
    let web = deployment.services.values().next().unwrap();
    let env: Vec<_> = web
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let expected = [
        ("A", "$$S:x"),
        ("B", "$$S:secret"),
        ("C", "shell"),
        ("E", "1"),
        ("F", "$E:HOME ${X}"),
        ("G", "$$S:y"),
    ];
    assert_eq!(env, expected);
    assert_eq!(web.image.as_ref().unwrap().name, "a:1");
}

#[test]
fn mounts_are_volumes_folders_and_memory() {
    let mut shop = world(
        "services:\n  web:\n    image: a:1\n    volumes:\n      - data:/data:ro\n      - ./conf/app.conf:/etc/app.conf:ro,z\n      \
         - ./new:/new\n      - /app/node_modules\n      - { type: tmpfs, target: /t, tmpfs: { size: 64m } }\nvolumes: { data: }\n",
    );
    shop.add("conf/app.conf", "x");
    let converted = shop.convert().unwrap();
    assert_eq!(converted.missing_folders, [std::path::Path::new("/srv/shop/new")]);
    let deployment = shop.deployment();
    let web = deployment.services.values().next().unwrap();
    let named = |name: &str, target: &str, read_only| Storage::Named {
        name: name.into(),
        target: target.into(),
        read_only,
        nocopy: false,
        size: None,
    };
    let bind = |source: &str, target: &str, read_only| Storage::Bind {
        source: source.into(),
        target: target.into(),
        read_only,
    };
    let expected = [
        named("data", "/data", true),
        bind("/srv/shop/conf/app.conf", "/etc/app.conf", true),
        bind("/srv/shop/new", "/new", false),
        named("anonymous-web-app-node_modules", "/app/node_modules", false),
        Storage::Tmpfs {
            target: "/t".into(),
            size: Some(ByteSize(64 << 20)),
        },
    ];
    assert_eq!(web.storage, expected);
    // Two never write to one folder of the host.
    assert_eq!(
        (web.rollout.max_surge, web.rollout.max_unavailable),
        (Some(0), Some(1))
    );
}

#[test]
fn files_that_are_only_read_go_along_where_there_are_several_nodes() {
    let mut shop =
        world("services:\n  web:\n    image: a:1\n    volumes: [\"./app.conf:/etc/app.conf:ro\"]\n");
    shop.add("app.conf", "listen 80\nserver\n");
    shop.nodes = crate::Nodes::Elsewhere;
    let deployment = shop.deployment();
    let web = deployment.services.values().next().unwrap();
    assert!(web.storage.is_empty());
    assert_eq!(web.configs[0].target.as_deref(), Some("/etc/app.conf"));
    let content = deployment.configs.values().next().unwrap().bytes().unwrap();
    assert_eq!(content, b"listen 80\nserver\n");
}

#[test]
fn who_is_awaited_until_it_is_done_is_a_job() {
    let shop = world(
        "services:\n  web:\n    image: a:1\n    depends_on:\n      db: { condition: service_healthy }\n      \
         migrate: { condition: service_completed_successfully }\n      cache: { condition: service_started, required: false }\n  \
         migrate:\n    image: a:1\n    depends_on: [db]\n  db:\n    image: b:1\n    healthcheck: { test: x }\n",
    )
    .deployment();
    let of = |name: &str| {
        shop.services
            .iter()
            .find(|(service, _)| service.as_str() == name)
            .unwrap()
            .1
    };
    assert_eq!(
        (of("migrate").rtype, of("db").rtype),
        (RType::Job, RType::Service)
    );
    let mut waits: Vec<_> = of("web")
        .depends
        .iter()
        .map(|one| (one.service.to_string(), one.condition))
        .collect();
    waits.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        waits,
        [
            ("db".to_owned(), Condition::Healthy),
            ("migrate".to_owned(), Condition::Completed)
        ]
    );
    assert_eq!(of("migrate").depends[0].condition, Condition::Started);
}

#[test]
fn swarm_rules_are_carried_over() {
    let web = service(
        "    deploy:\n      replicas: 3\n      update_config: { parallelism: 2, order: start-first, failure_action: rollback, monitor: 5s }\n      \
         placement: { constraints: [node.labels.disk == ssd], preferences: [{ spread: node.labels.zone }] }\n      \
         resources: { limits: { cpus: '1.5', memory: 64M } }\n",
    );
    assert_eq!(web.scale, ScaleSpec::Fixed { replicas: 3 });
    assert_eq!(
        (web.rollout.max_surge, web.rollout.max_unavailable),
        (Some(2), Some(0))
    );
    assert_eq!(web.node_selector.labels["disk"], "ssd");
    assert_eq!(web.spread_by.as_deref(), Some("zone"));
    assert_eq!(web.resources.memory, Some(ByteSize(64 << 20)));
    assert_eq!(service("    deploy: { mode: global }\n").rtype, RType::System);
}

#[test]
fn networks_say_who_may_call_whom_and_by_which_names() {
    let shop = world(
        "services:\n  web_app:\n    image: a:1\n    networks: [front, back]\n  proxy:\n    image: a:1\n    ports: [\"80:80\"]\n    \
         networks: [front]\n    links: [\"web_app:app\"]\n  db:\n    image: b:1\n    container_name: shop_db\n    networks: { back: { aliases: [sql] } }\n\
         networks: { front: , back: { driver: bridge } }\n",
    )
    .deployment();
    let of = |name: &str| {
        shop.services
            .iter()
            .find(|(service, _)| service.as_str() == name)
            .unwrap()
            .1
    };
    let allow = of("db").image_ports.as_ref().unwrap().allow.clone().unwrap();
    let allow: Vec<String> = allow.iter().map(ToString::to_string).collect();
    assert_eq!(allow, ["web-app", "db"]);
    assert!(of("web-app").image_ports.is_none(), "all share a network with it");
    assert_eq!(
        of("web-app").extra_hosts,
        ["shop_db:@db", "sql:@db", "web_app:@web-app"]
    );
    assert_eq!(of("proxy").extra_hosts, ["app:@web-app", "web_app:@web-app"]);
}

#[test]
fn a_port_that_a_neighbour_names_is_an_endpoint() {
    let shop = world(
        "services:\n  web:\n    image: a:1\n    environment: { API: \"http://api:3000/v1\" }\n  api:\n    image: b:1\n",
    );
    let deployment = shop.deployment();
    let api = deployment
        .services
        .iter()
        .find(|(name, _)| name.as_str() == "api")
        .unwrap()
        .1;
    assert_eq!(
        api.endpoints.iter().map(|one| one.port).collect::<Vec<_>>(),
        [3000]
    );
    assert!(
        shop.notes()
            .iter()
            .any(|note| note.contains("api:3000 is called by web"))
    );
}

#[test]
fn secrets_and_configs_are_named_within_the_deployment() {
    let mut shop = world(
        "services:\n  web:\n    image: a:1\n    secrets: [pw, { source: key, target: /etc/key, mode: 0400, uid: \"1000\" }]\n    \
         configs: [conf]\nsecrets: { pw: { file: ./pw.txt }, key: { environment: KEY } }\nconfigs: { conf: { content: \"a\\nb\\n\" } }\n",
    );
    shop.add("pw.txt", "hunter2");
    shop.set("KEY", "k");
    let converted = shop.convert().unwrap();
    let names: Vec<_> = converted
        .secrets
        .iter()
        .map(|secret| (secret.name.as_str(), secret.value.as_slice()))
        .collect();
    assert_eq!(names, [("shop.pw", &b"hunter2"[..]), ("shop.key", b"k")]);
    assert!(!format!("{converted:?}").contains("hunter2"));
    let deployment = shop.deployment();
    let web = deployment.services.values().next().unwrap();
    let targets: Vec<_> = web
        .placed_files()
        .iter()
        .filter_map(|file| file.target())
        .collect();
    assert_eq!(targets, ["/conf", "/run/secrets/pw", "/etc/key"]);
}

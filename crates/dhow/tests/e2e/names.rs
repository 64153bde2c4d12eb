//! A service finds another one by its name and by variables: in containers, and as host programs of an ordinary user.

use std::path::Path;

use serde_json::json;

use crate::support::{
    Answer, Daemon, Scratch, Service, busybox_layout, container, free_port, is_root, skip, until,
};

/// Nobody's own user, who has nothing of the host.
const NOBODY: u32 = 65_534;

/// A database that answers with a word, behind port 5432 unless the endpoint says another one.
fn database(layout: &Path, word: &str, endpoint: serde_json::Value) -> Service {
    let script =
        format!("mkdir -p /tmp/www; echo {word} > /tmp/www/index.html; exec httpd -f -p 8000 -h /tmp/www");
    let mut plain = json!({ "name": "pg", "protocol": "tcp", "port": 5432, "target_port": 8000 });
    for (key, value) in endpoint.as_object().into_iter().flatten() {
        plain[key] = value.clone();
    }
    container(layout, &script).with("endpoints", json!([plain]))
}

fn inside(daemon: &Daemon, replica: &str, script: &str) -> Answer {
    daemon.dhow(&["exec", replica, "--", "sh", "-c", script])
}

/// What a replica reads at an address, once it can.
fn reads(daemon: &Daemon, replica: &str, url: &str, wanted: &str) {
    let script = format!("timeout 3 wget -qO- {url}");
    until(&format!("{replica} reads {wanted} at {url}"), || {
        let answer = inside(daemon, replica, &script);
        (answer.stdout.trim() == wanted).then_some(())
    });
}

fn is_refused(daemon: &Daemon, replica: &str, url: &str) {
    let answer = inside(daemon, replica, &format!("timeout 3 wget -qO- {url}"));
    assert_ne!(answer.code, 0, "{replica} reads {:?} at {url}", answer.stdout);
}

/// Calls that are tried from inside say why they do not come about.
fn net_checks(daemon: &Daemon) {
    let check = |from: &str, to: &str, code: i32, texts: &[&str]| {
        let answer = daemon.dhow(&["net", "check", from, to]).ends_with(code);
        let said = answer.stdout + &answer.stderr;
        for text in texts {
            assert!(said.contains(text), "no `{text}` in:\n{said}");
        }
    };
    let steps = [
        "shop/web-default-0 on node 1 calls shop/db:pg",
        "db.shop.dhow is 10.87.",
        "ready: db-default-0 on this node",
        "reachable",
    ];
    check("shop/web", "shop/db", 0, &steps);
    check("shop/job-default-0", "blog/open:pg", 0, &[]);
    check("shop/job", "blog/notes", 1, &["does not let it in"]);
    check("blog/web", "shop/db", 1, &["does not let it in"]);
    check("shop/web", "shop/db:nosuch", 4, &["only pg"]);
    check("shop/nosuch", "shop/db", 4, &[]);
    check("shop/web", "shop/web", 4, &["has no endpoints"]);
}

/// What has passed an endpoint stands in the metrics.
fn calls_are_counted(daemon: &Daemon) {
    let labels = "{deployment=\"shop\",service=\"db\",endpoint=\"pg\"}";
    let reply = daemon.get("/metrics").unwrap();
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let value = |name: &str| -> u64 {
        let start = format!("dhow_{name}{labels} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start}in {text}"))
            .parse()
            .unwrap()
    };
    assert!(value("endpoint_requests_total") > 0);
    assert!(value("endpoint_sent_bytes_total") > 0);
    assert!(value("endpoint_refused_total") > 0, "blog may not call it");
    assert!(value("endpoint_latency_seconds_count") > 0);
}

#[test]
fn containers_find_services_by_name_and_only_those_that_let_them() {
    if !is_root() {
        return skip("names for containers", "containers need root");
    }
    let mut daemon = Daemon::start("names");
    let layout = match busybox_layout(&daemon.scratch.path) {
        Ok(layout) => layout,
        Err(why) => {
            daemon.finish();
            return skip("names for containers", &why);
        }
    };
    let sleeper = || container(&layout, "exec sleep 3600");
    let db = |word| database(&layout, word, json!({}));
    daemon
        .deploy(
            "shop",
            &[("db", db("shop-data")), ("web", sleeper()), ("job", sleeper())],
        )
        .ends_with(0);
    let narrow = database(
        &layout,
        "for-web",
        json!({ "allow": ["web", "shop/web"], "port": 5433 }),
    );
    let open = database(&layout, "for-all", json!({ "expose": "cluster", "port": 5434 }));
    let blog = [
        ("db", db("blog-data")),
        ("web", sleeper()),
        ("notes", narrow),
        ("open", open),
    ];
    daemon.deploy("blog", &blog).ends_with(0);
    reads(&daemon, "shop/web-default-0", "http://db:5432/", "shop-data");
    reads(
        &daemon,
        "shop/web-default-0",
        "http://db.shop.dhow:5432/",
        "shop-data",
    );
    reads(&daemon, "shop/web-default-0", "http://$DB_ADDR/", "shop-data");
    reads(
        &daemon,
        "shop/web-default-0",
        "http://$DB_HOST:$DB_PG_PORT/",
        "shop-data",
    );
    reads(&daemon, "blog/web-default-0", "http://db:5432/", "blog-data");
    is_refused(&daemon, "blog/web-default-0", "http://db.shop:5432/");
    reads(
        &daemon,
        "shop/web-default-0",
        "http://notes.blog:5433/",
        "for-web",
    );
    is_refused(&daemon, "shop/job-default-0", "http://notes.blog:5433/");
    reads(&daemon, "shop/job-default-0", "http://open.blog:5434/", "for-all");
    net_checks(&daemon);
    calls_are_counted(&daemon);
    let explained = daemon.dhow(&["explain", "blog/notes"]).ends_with(0).stdout;
    let line = "only replicas of web, shop/web may call it; ready replicas are on node 1";
    assert!(explained.contains(line), "{explained}");
    // What was known is known to the next daemon, and nothing is lost in between.
    daemon.kill9();
    daemon.restart();
    reads(&daemon, "shop/web-default-0", "http://db:5432/", "shop-data");
    is_refused(&daemon, "blog/web-default-0", "http://db.shop:5432/");
    daemon.finish();
}

#[test]
fn host_programs_of_an_ordinary_user_find_services_by_variables() {
    if !is_root() {
        return skip(
            "names for an ordinary user",
            "the daemon's user is changed as root",
        );
    }
    let scratch = Scratch::new("names-user");
    let mut daemon = Daemon::at(scratch);
    daemon.run_as(NOBODY);
    daemon.restart();
    // Below 1024, which an ordinary user may not have.
    let endpoint = json!([{ "name": "http", "protocol": "http", "port": 80 }]);
    let db = |word: &str| {
        let dir = daemon.scratch.path.join(word);
        let dir = dir.display();
        let script = format!(
            "mkdir -p {dir}; echo {word} > {dir}/index.html; exec busybox httpd -f -p 127.0.0.1:$PORT -h {dir}"
        );
        Service::shell(&script).with("endpoints", endpoint.clone())
    };
    // One that an ordinary user may have is kept.
    let plain = free_port();
    let idle = json!([{ "name": "x", "protocol": "tcp", "port": plain }]);
    let idle = Service::sleeper().with("endpoints", idle);
    daemon
        .deploy(
            "shop",
            &[
                ("db", db("shop-data")),
                ("web", Service::sleeper()),
                ("idle", idle),
            ],
        )
        .ends_with(0);
    let said = inside(&daemon, "shop/web-default-0", "echo $IDLE_PORT").stdout;
    assert_eq!(said.trim(), plain.to_string());
    daemon
        .deploy("blog", &[("db", db("blog-data")), ("web", Service::sleeper())])
        .ends_with(0);
    for (replica, word) in [
        ("shop/web-default-0", "shop-data"),
        ("blog/web-default-0", "blog-data"),
    ] {
        let asked =
            "busybox timeout 3 busybox wget -qO- http://$DB_ADDR/ && echo $DB_HOST $DB_PORT $DB_HTTP_PORT";
        let answer = until(&format!("{replica} reads {word}"), || {
            let answer = inside(&daemon, replica, asked);
            answer.stdout.starts_with(word).then_some(answer)
        });
        let found = answer.stdout.lines().nth(1).unwrap_or_default();
        let [host, port, same] = found.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{found:?}");
        };
        assert!(host.starts_with("127.87."), "{found}");
        assert!(port.parse::<u16>().unwrap() >= 1024 && port == same, "{found}");
    }
    // Tried by a process of the replica, because its group says who calls.
    daemon.dhow(&["net", "check", "shop/web", "shop/db"]).ends_with(0);
    daemon.finish();
}

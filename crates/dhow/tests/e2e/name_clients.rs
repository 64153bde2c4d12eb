//! Clients as people have them find services by name: dig, the resolvers of glibc and musl, PostgreSQL's and Redis' own.

use std::process::Command;

use serde_json::json;

use crate::support::{Cluster, Daemon, Network, Service, Where, by_node, image, is_root, lacks, skip, until};

/// The first address of the range that services have where nothing is configured.
const NAME_SERVER: &str = "10.87.0.1";

/// A container that runs a script.
fn container(image: &str, script: &str) -> Service {
    Service::program(&["sh", "-c", script])
        .with("image", json!(image))
        .with("runtime", json!("container"))
}

/// Answers with its replica's name.
fn named_server(image: &str, port: u16) -> Service {
    let script = "mkdir -p /tmp/www; hostname > /tmp/www/index.html; exec httpd -f -p 8000 -h /tmp/www";
    let endpoint = json!([{ "name": "pg", "protocol": "tcp", "port": port, "target_port": 8000 }]);
    container(image, script).with("endpoints", endpoint)
}

/// Dig's answer from the network of a replica.
fn dig(daemon: &Daemon, service: &str, args: &[&str]) -> String {
    let pid = daemon.replicas_of(service)[0].pid.unwrap();
    let asked = Command::new("nsenter")
        .arg(format!("--net=/proc/{pid}/ns/net"))
        .args(["dig", "+time=2", "+tries=1"])
        .arg(format!("@{NAME_SERVER}"))
        .args(args)
        .output()
        .unwrap();
    String::from_utf8(asked.stdout).unwrap()
}

fn inside(daemon: &Daemon, replica: &str, script: &str) -> String {
    let answer = daemon.dhow(&["exec", replica, "--", "sh", "-c", script]);
    answer.stdout.trim().to_owned()
}

/// Prints each name with the address that musl's resolver finds for it.
const MUSL_PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
#include <netdb.h>
#include <arpa/inet.h>
int main(int n, char **names) {
    for (int i = 1; i < n; i++) {
        struct addrinfo hint, *found;
        memset(&hint, 0, sizeof hint);
        hint.ai_socktype = SOCK_STREAM;
        if (getaddrinfo(names[i], 0, &hint, &found)) { printf("nothing\n"); continue; }
        char text[64] = "six";
        if (found->ai_family == AF_INET)
            inet_ntop(AF_INET, &((struct sockaddr_in *)found->ai_addr)->sin_addr, text, sizeof text);
        printf("%s\n", text);
    }
    return 0;
}
"#;

/// What dig is told, over UDP and TCP.
fn answers_of_the_name_server(daemon: &Daemon, address: &str) {
    let asked = |args: &[&str]| dig(daemon, "web", args);
    assert_eq!(asked(&["+tcp", "+short", "db.shop.dhow"]).trim(), address);
    assert_eq!(asked(&["+short", "db"]).trim(), address);
    for (name, kind) in [
        ("db.shop.dhow", "AAAA"),
        ("db.shop.dhow", "MX"),
        ("shop.dhow", "A"),
    ] {
        let said = asked(&[name, kind]);
        assert!(
            said.contains("status: NOERROR") && said.contains("ANSWER: 0"),
            "{said}"
        );
    }
    assert!(asked(&["nosuch.shop.dhow"]).contains("status: NXDOMAIN"));
    assert!(asked(&["db.nosuch.dhow"]).contains("status: NXDOMAIN"));
    for name in ["_pg._tcp.db.shop.dhow", "_pg._tcp.db.shop", "_pg._tcp.db"] {
        let said = asked(&["+short", name, "SRV"]);
        assert_eq!(said.trim(), "0 0 5432 db.shop.dhow.", "{name}");
    }
}

/// Each replica has a name of its own.
fn calls_of_single_replicas(daemon: &Daemon) {
    let asked = |args: &[&str]| dig(daemon, "web", args);
    until("both replicas have addresses", || {
        (asked(&["+short", "all.db.shop.dhow"]).lines().count() == 2).then_some(())
    });
    // Each replica by its own name, and always that one.
    for id in ["db-default-0", "db-default-1"] {
        for _ in 0..4 {
            let script = format!("timeout 3 wget -qO- http://{id}.db:5432/");
            assert_eq!(inside(daemon, "shop/web-default-0", &script), id);
        }
    }
    let cache = inside(
        daemon,
        "shop/web-default-0",
        "timeout 3 wget -qO- http://cache:5432/",
    );
    assert_eq!(cache, "cache-default-0");
}

#[test]
fn every_resolver_finds_services_and_single_replicas() {
    const WHAT: &str = "names for dig, glibc and musl";
    if !is_root() {
        return skip(WHAT, "containers need root");
    }
    if let Some(why) = lacks(&["dig", "nsenter", "getent", "busybox", "umoci"]) {
        return skip(WHAT, &why);
    }
    let daemon = Daemon::start("resolvers");
    let with_musl = match lacks(&["musl-gcc"]) {
        None => "printf '%s' \"$MUSL_PROGRAM\" > musl.c; musl-gcc -static -o $R/bin/musl-look musl.c;",
        Some(why) => {
            skip("names for musl", &why);
            ""
        }
    };
    let extra = format!("MUSL_PROGRAM='{MUSL_PROGRAM}'; {with_musl} take $(command -v getent)");
    let tools = match image(&daemon.scratch.path, "tools", &extra, ":") {
        Ok(tools) => tools,
        Err(why) => {
            daemon.finish();
            return skip(WHAT, &why);
        }
    };
    let sleeper = || container(&tools, "exec sleep 3600");
    // Two services of one deployment have the same port: each has its own address.
    let shop = [
        ("db", named_server(&tools, 5432).replicas(2)),
        ("cache", named_server(&tools, 5432)),
        ("web", sleeper()),
    ];
    daemon.deploy("shop", &shop).ends_with(0);
    let address = until("the name is known", || {
        let found = dig(&daemon, "web", &["+short", "db.shop.dhow"]);
        found.starts_with("10.87.").then(|| found.trim().to_owned())
    });
    answers_of_the_name_server(&daemon, &address);
    calls_of_single_replicas(&daemon);
    let names = "db db.shop db.shop.dhow";
    let script = format!("for n in {names}; do getent ahostsv4 $n | head -n1 | cut -d' ' -f1; done");
    let found = inside(&daemon, "shop/web-default-0", &script);
    assert_eq!(found.lines().collect::<Vec<_>>(), [address.as_str(); 3], "glibc");
    if !with_musl.is_empty() {
        let found = inside(&daemon, "shop/web-default-0", &format!("musl-look {names}"));
        assert_eq!(found.lines().collect::<Vec<_>>(), [address.as_str(); 3], "musl");
    }
    daemon.finish();
}

#[test]
fn a_replica_of_another_node_is_called_by_its_own_name() {
    const WHAT: &str = "names of replicas between nodes";
    if let Some(why) = Network::obstacle().or_else(|| lacks(&["busybox", "umoci"])) {
        return skip(WHAT, &why);
    }
    let cluster = Cluster::fixed("replicas", 2, Where::Namespaces);
    let node = &cluster.nodes[0];
    let tools = match image(&node.scratch.path, "tools", ":", ":") {
        Ok(tools) => tools,
        Err(why) => {
            cluster.finish();
            return skip(WHAT, &why);
        }
    };
    let shop = [
        ("db", named_server(&tools, 5432).replicas(2)),
        ("web", container(&tools, "exec sleep 3600")),
    ];
    node.deploy("shop", &shop).ends_with(0);
    let nodes = by_node(&node.replicas_of("db"));
    assert_eq!(nodes.len(), 2, "one replica on each node: {nodes:?}");
    for id in ["db-default-0", "db-default-1"] {
        let script = format!("timeout 3 wget -qO- http://{id}.db:5432/");
        until(&format!("web calls {id}"), || {
            (inside(node, "shop/web-default-0", &script) == id).then_some(())
        });
        // Not by chance.
        assert_eq!(inside(node, "shop/web-default-0", &script), id);
    }
    let checked = node
        .dhow(&["net", "check", "shop/web", "shop/db"])
        .ends_with(0)
        .stdout;
    assert!(checked.contains("through the tunnel to node"), "{checked}");
    let explained = node.dhow(&["explain", "shop/db"]).ends_with(0).stdout;
    assert!(
        explained.contains("other nodes call through tunnels: node 1 at "),
        "{explained}"
    );
    cluster.finish();
}

/// What PostgreSQL needs to make a database and serve it.
const POSTGRES: &str = r#"P=$(ls -d /usr/lib/postgresql/* | tail -n1); V=$(basename $P); S=/usr/share/postgresql/$V
mkdir -p $R$P/bin $R$P/lib $R$S/extension $R/var/run/postgresql; chmod 1777 $R/var/run/postgresql
for f in postgres initdb psql pg_isready; do cp $P/bin/$f $R$P/bin/; ln -s $P/bin/$f $R/bin/$f; libs $P/bin/$f; done
cp $P/lib/plpgsql.so $P/lib/dict_snowball.so $R$P/lib/; cp $S/*.* $R$S/; cp -r $S/timezonesets $S/tsearch_data $R$S/
cp $S/extension/plpgsql* $R$S/extension/; mkdir -p $R/usr/share/zoneinfo
printf 'root:x:0:0::/:/bin/sh\npostgres:x:70:70::/tmp:/bin/sh\n' > $R/etc/passwd
printf 'root:x:0:\npostgres:x:70:\n' > $R/etc/group"#;

#[test]
fn databases_are_called_by_name_with_their_own_clients() {
    const WHAT: &str = "PostgreSQL and Redis by name";
    if !is_root() {
        return skip(WHAT, "containers need root");
    }
    let server = "/usr/lib/postgresql/*/bin/postgres";
    if let Some(why) = lacks(&[server, "redis-server", "redis-cli", "busybox", "umoci"]) {
        return skip(WHAT, &why);
    }
    let daemon = Daemon::start("databases");
    let dir = &daemon.scratch.path;
    let redis = "take $(command -v redis-server) $(command -v redis-cli)";
    let exposed = "umoci config --image oci:redis --config.exposedports 6379/tcp";
    let images =
        image(dir, "pg", POSTGRES, ":").and_then(|pg| Ok((pg, image(dir, "redis", redis, exposed)?)));
    let (pg, redis) = match images {
        Ok(images) => images,
        Err(why) => {
            daemon.finish();
            return skip(WHAT, &why);
        }
    };
    let script = "initdb -D /tmp/data -A trust --no-locale -E UTF8 >&2 && echo 'host all all all trust' >> \
                  /tmp/data/pg_hba.conf && exec postgres -D /tmp/data -c 'listen_addresses=*' -c shared_buffers=16MB";
    let ready = json!({ "check": { "type": "command", "command": ["pg_isready", "-h", "127.0.0.1"] },
                        "interval": "1s", "start_grace": "30s" });
    let db = container(&pg, script)
        .with("user", json!("postgres"))
        .with("health", ready)
        .with(
            "endpoints",
            json!([{ "name": "pg", "protocol": "tcp", "port": 5432 }]),
        );
    // It has no endpoints of its own: its image says where it listens.
    let cache = container(&redis, "exec redis-server --protected-mode no --save ''");
    let shop = [
        ("db", db),
        ("cache", cache),
        (
            "web",
            container(&pg, "exec sleep 3600").with("user", json!("postgres")),
        ),
        ("worker", container(&redis, "exec sleep 3600")),
    ];
    daemon.deploy("shop", &shop).ends_with(0);
    let ask = "psql -h db -U postgres -tAc 'create table if not exists t (n int); insert into t values (41); select max(n) + 1 from t'";
    until("psql asks db", || {
        (inside(&daemon, "shop/web-default-0", ask).lines().last() == Some("42")).then_some(())
    });
    let ask = "redis-cli -h cache set greeting hello; redis-cli -h cache.shop get greeting";
    until("redis-cli asks cache", || {
        (inside(&daemon, "shop/worker-default-0", ask) == "OK\nhello").then_some(())
    });
    daemon.finish();
}

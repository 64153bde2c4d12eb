//! A worker behind a router that translates addresses: nobody can dial it, and everything works all the same. Its servers ask
//! it to dial back for logs and commands, and other nodes call its replicas through its servers.

use std::io::{BufRead, BufReader};

use dhow_core::ids::NodeId;
use rustix::process::Signal;
use serde_json::json;

use super::*;
use crate::support::{Person, helpers, signal};

/// A cluster whose second worker is behind a router.
struct Home {
    stage: Stage,
    /// The worker that can be dialled, and the one that cannot.
    plain: u64,
    hidden: u64,
}

/// What a service on the plain worker says.
const FRONT: &str = "front-page";

impl Home {
    fn new() -> Self {
        let soon = json!({ "failover_heartbeat_ttl": 12 });
        let cluster = Cluster::worker_tier_with_room("nat", 3, 1, 1, &soon);
        cluster.network().behind_nat(4);
        let mut stage = Stage::new(cluster);
        let plain = stage.cluster.workers[0].node_id.unwrap();
        let hidden = join(&mut stage);
        Self { stage, plain, hidden }
    }

    fn place_of_hidden(&self) -> usize {
        let workers = self.stage.cluster.workers.iter();
        let mut found = workers
            .enumerate()
            .filter(|(_, worker)| worker.node_id == Some(self.hidden));
        found.next().expect("it has joined").0
    }

    fn shown(&self) -> String {
        let shown = self
            .stage
            .server()
            .dhow(&["node", "show", &self.hidden.to_string()]);
        shown.ends_with(0).stdout
    }

    /// The servers through whom it is called, the first before the second.
    fn relays(&self) -> Vec<u64> {
        let said = self
            .stage
            .server()
            .dhow(&["explain", "shop/db"])
            .ends_with(0)
            .stdout;
        let (_, rest) = said.split_once("through server ").expect("calls are relayed");
        let line = rest.lines().next().unwrap_or_default();
        let named = line.split(" or ").map(|word| {
            let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        });
        named.collect()
    }

    /// Every server that runs shows what the replica said.
    fn all_show_logs(&self) {
        let replica = self.stage.replica("db", self.hidden);
        for server in self
            .stage
            .cluster
            .nodes
            .iter()
            .filter(|server| server.is_running())
        {
            until("a server has its logs", || {
                let shown = server.dhow(&["logs", &replica]);
                shown.stdout.contains(STARTED).then_some(())
            });
        }
    }
}

/// What the database says in its log.
const STARTED: &str = "database-started";

fn services(layout: &Path) -> Vec<(&'static str, Service)> {
    let script = format!(
        "echo {STARTED}; mkdir -p /tmp/www; echo {WORD} > /tmp/www/index.html; exec httpd -f -p 8000 -h /tmp/www"
    );
    let page = json!([{ "name": "http", "protocol": "http", "port": 80, "target_port": 8000 }]);
    let mut services = shop(layout);
    let endpoints = json!([{ "name": "pg", "protocol": "tcp", "port": 5432, "target_port": 8000 }]);
    services[0] = (
        "db",
        on(container(layout, &script), "data").with("endpoints", endpoints),
    );
    services.push(("front", on(site(layout, FRONT), "front").with("endpoints", page)));
    services
}

#[test]
fn a_worker_that_nobody_can_dial_is_reached_in_reverse() {
    if let Some(why) = obstacle() {
        return skip("a worker behind NAT", &why);
    }
    let mut home = Home::new();
    let layout = match busybox_layout(&home.stage.cluster.nodes[0].scratch.path) {
        Ok(layout) => layout,
        Err(why) => return skip("a worker behind NAT", &why),
    };
    until("it has found out that nobody can dial it", || {
        home.shown().contains("reached in reverse").then_some(())
    });
    home.stage.label(home.hidden, "data");
    home.stage.label(home.plain, "front");
    home.stage
        .server()
        .deploy("shop", &services(&layout))
        .ends_with(0);
    all_ways_lead_there(&home);
    the_ways_are_told(&home);
    what_dies_comes_back(&mut home);
    a_removed_one_is_cut(&mut home);
    home.stage.cluster.finish();
}

/// Names, ports and commands in both directions, over TCP, HTTP and UDP.
fn all_ways_lead_there(home: &Home) {
    let (stage, plain, hidden) = (&home.stage, home.plain, home.hidden);
    let wget = |url: &str| format!("timeout 5 wget -qO- {url}");
    for node in [plain, hidden] {
        stage.says("client", node, &wget("http://db:5432/"), WORD);
        stage.says(
            "client",
            node,
            &wget(&format!("http://site:{SITE_PORT}/")),
            "hello",
        );
        stage.says("client", node, &wget("http://front/"), FRONT);
        let lookup = format!("timeout 5 nslookup -type=a {} resolver", resolver::NAME);
        stage.says("client", node, &lookup, resolver::ADDRESS);
    }
    // The public port of a server, behind which there is no replica but that one.
    until("the public port of a server answers", || {
        stage.fetch(3, 1).filter(|said| said == "hello")
    });
    home.all_show_logs();
    follows(stage, &stage.replica("db", hidden));
}

/// Lines come while they are written.
fn follows(stage: &Stage, replica: &str) {
    let mut child = stage.server().dhow_child(&["logs", "-f", replica]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains(STARTED));
    let script = "echo second-line > /proc/1/fd/1";
    stage
        .server()
        .dhow(&["exec", replica, "--", "sh", "-c", script])
        .ends_with(0);
    assert!(lines.next().unwrap().unwrap().contains("second-line"));
    child.kill().unwrap();
    child.wait().unwrap();
    let shell = ["exec", "-it", replica, "--", "sh"];
    let mut person = Person::sits_down(stage.server(), &shell);
    person.types("stty size; echo up-$((1+1))\r");
    assert!(person.sees("up-2\r\n").contains("40 100\r\n"));
    person.types(
        "exec sh -c \"trap 'stty size; exit 5' WINCH; echo waits-$((1+1)); while :; do sleep 0.1; done\"\r",
    );
    person.sees("waits-2\r\n");
    person.resizes(50, 120);
    person.sees("50 120\r\n");
    person.ends_with(5);
}

fn the_ways_are_told(home: &Home) {
    let relays = home.relays();
    let servers = [1, 2, 3].map(NodeId);
    let first = dhow_core::lease::best_server(NodeId(home.hidden), servers).unwrap();
    assert_eq!((relays.len(), relays[0]), (2, first.0));
    let client = home.stage.replica("client", home.plain);
    let check = |from: &str| {
        let checked = home.stage.server().dhow(&["net", "check", from, "shop/db"]);
        checked.ends_with(0).stdout
    };
    let said = check(&client);
    let way = format!(
        "on node {}, relayed through server {} or {}",
        home.hidden, relays[0], relays[1]
    );
    assert!(said.contains(&way), "{said}");
    // From the hidden worker itself: the check runs there.
    let said = check(&home.stage.replica("client", home.hidden));
    assert!(said.contains("reached directly"), "{said}");
    let bytes: u64 = relays
        .iter()
        .map(|relay| relayed_bytes(&home.stage, *relay))
        .sum();
    assert!(bytes > 0);
}

/// What a server says that it has passed on.
fn relayed_bytes(stage: &Stage, server: u64) -> u64 {
    let figures = stage.daemon(server).get("/metrics").unwrap();
    let text = String::from_utf8_lossy(&figures.body).into_owned();
    let mut counts = text
        .lines()
        .filter_map(|line| line.strip_prefix("dhow_relayed_bytes_total "));
    counts.next().expect("it counts").trim().parse().unwrap()
}

fn what_dies_comes_back(home: &mut Home) {
    let pid = client_pid(&home.stage, home.plain);
    assert!(reads_database(pid));
    // The worker's proxy.
    let folder = home.stage.daemon(home.hidden).scratch.path.clone();
    for proxy in helpers(&folder, "proxy") {
        signal(proxy, Signal::KILL);
    }
    until("it is called again after its proxy has died", || {
        reads_database(pid).then_some(())
    });
    // Its daemon: nothing of what passes notices.
    let place = home.place_of_hidden();
    home.stage.cluster.workers[place].kill9();
    assert!(reads_database(pid), "the proxy goes on without its daemon");
    home.stage.cluster.workers[place].restart();
    home.all_show_logs();
    assert!(reads_database(pid));
    // The server that passes on, and that holds its session.
    let first = home.relays()[0];
    let server = usize::try_from(first).unwrap() - 1;
    home.stage.cluster.power_off(server);
    until("it is called through the other server", || {
        reads_database(pid).then_some(())
    });
    home.all_show_logs();
}

fn a_removed_one_is_cut(home: &mut Home) {
    let pid = client_pid(&home.stage, home.plain);
    let place = home.place_of_hidden();
    // It does not hear that it is removed, and would go on.
    home.stage.cluster.workers[place].pause();
    home.stage
        .server()
        .dhow(&["node", "rm", "--force", &home.hidden.to_string()])
        .ends_with(0);
    until("nobody reaches it any more", || {
        (!reads_database(pid)).then_some(())
    });
    home.stage.cluster.workers[place].resume();
    home.stage.cluster.power_off_worker(place);
}

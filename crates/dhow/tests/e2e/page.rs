//! The page in a real browser: what a person sees, presses and types, with pictures that a person looks at. They are in
//! `target/tmp/page-pictures`.

use std::io::{BufRead, BufReader};
use std::process::Child;

use serde_json::json;

use crate::support::{Browser, Cluster, Daemon, Service, Where, deployment, free_port, signal, until};

/// `dhow dashboard`, and the link that it has printed.
struct Dashboard {
    child: Child,
    link: String,
}

impl Dashboard {
    fn start(daemon: &Daemon) -> Self {
        let mut child = daemon.dhow_child(&["dashboard", "--no-open"]);
        let mut link = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut link)
            .unwrap();
        Self {
            child,
            link: link.trim().to_owned(),
        }
    }

    fn address(&self, place: &str) -> String {
        let (root, _) = self.link.split_once("/enter/").unwrap();
        format!("{root}{place}")
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        signal(self.child.id(), rustix::process::Signal::INT);
        let ended = self.child.wait();
        assert!(std::thread::panicking() || ended.unwrap().success());
    }
}

const LONG: &str = "a-service-whose-name-is-as-long-as-a-name-can-be-and-then-some";

fn shop(port: u16, behaviour: &str) -> Vec<(&'static str, Service)> {
    let web = Service::web(behaviour, port).replicas(3).with(
        "rollout",
        json!({ "min_healthy": "1s", "progress_deadline": "40s" }),
    );
    let says = Service::shell(
        "while :; do echo '<script>document.title=1</script> <b>bold</b>'; echo 'and an error' >&2; sleep 1; done",
    );
    vec![("web", web), ("talks", says), (LONG, Service::sleeper())]
}

#[test]
fn a_person_uses_it() {
    let daemon = Daemon::start("page");
    let Some(browser) = Browser::start("the page in a browser", &daemon.scratch.path) else {
        return daemon.finish();
    };
    let dashboard = Dashboard::start(&daemon);
    browser.go(&dashboard.address("/ui/"));
    browser.until_it_says("Use the link that dhow dashboard has printed");
    browser.go(&dashboard.link);
    browser.until_it_says("Nothing is deployed yet.");
    browser.picture("overview-0");
    browser.go(&dashboard.link);
    browser.until_it_says("no longer good");

    browser.go(&dashboard.address("/ui/"));
    browser.until_it_says("live");
    let port = free_port();
    daemon.deploy("shop", &shop(port, "one")).ends_with(0);
    // It comes without loading the page again.
    browser.until_it_says("Everything is well");
    browser.picture("overview-3");

    rolls(&daemon, &browser, port);
    uses_the_keyboard(&daemon, &browser);
    follows_a_log(&browser, &dashboard);
    plans(&browser, &dashboard);
    reads_only(&daemon, &browser);
    // What the policy blocks, the browser says: a blocked script would stand here.
    let complaints = browser.complaints();
    let blocked: Vec<_> = complaints
        .iter()
        .filter(|text| text.contains("Content Security Policy"))
        .collect();
    assert!(blocked.is_empty(), "{blocked:?}");
    drop((browser, dashboard));
    daemon.finish();
}

/// A version that is never healthy goes out, and the page shows both sides and the end.
fn rolls(daemon: &Daemon, browser: &Browser, port: u16) {
    browser.press("a[href='/ui/deployments/shop']");
    browser.until_it_says("History");
    browser.picture("deployment");
    let file = daemon.deployment("shop", &shop(port, "two never"));
    daemon.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    browser.until_it_says("Rollout of web");
    browser.until_it_says("New · revision 2");
    browser.until_it_says("not healthy");
    browser.picture("deployment-rollout");
    // Where the cluster has given it up by now, it has done the same.
    daemon.dhow(&["rollback", "shop", "--to", "1", "--wait"]);
    browser.until_it_says("brings back 1");
    // What is pressed is done, after it was shown what it does.
    browser.press("a[href='/ui/deployments/shop/services/talks']");
    browser.until_it_says("Replicas");
    browser.press("section.actions details:first-of-type summary");
    browser.run("document.getElementById('replicas').value = 2");
    browser.picture("service");
    browser.press("section.actions details[open] button");
    browser.until_it_says("Scaled.");
    until("it is scaled", || {
        (daemon.replicas_of("talks").len() == 2).then_some(())
    });
}

fn uses_the_keyboard(daemon: &Daemon, browser: &Browser) {
    browser.keys("gn");
    until("the keys lead to the nodes", || {
        (browser.place() == "/ui/nodes").then_some(())
    });
    browser.until_it_says("Replicas");
    browser.picture("nodes");
    browser.keys("/");
    browser.keys("zone=nowhere\u{e007}");
    browser.until_it_says("No node is like this.");
    browser.keys("ge");
    until("the keys lead to the events", || {
        (browser.place() == "/ui/events").then_some(())
    });
    browser.until_it_says("deployed");
    browser.picture("events");
    let node = daemon.dhow(&["node", "ls", "--json"]).json()[0]["node_id"]
        .as_u64()
        .unwrap();
    browser.keys("gn");
    until("the keys lead to the nodes", || {
        (browser.place() == "/ui/nodes").then_some(())
    });
    browser.press(&format!("a[href='/ui/nodes/{node}']"));
    browser.until_it_says("CPU reserved");
    browser.picture("node");
}

/// Lines come as they are written, and are text.
fn follows_a_log(browser: &Browser, dashboard: &Dashboard) {
    browser.go(&dashboard.address("/ui/deployments/shop/replicas/talks-default-0"));
    browser.until_it_says("<script>document.title=1</script> <b>bold</b>");
    let count = || {
        browser
            .run("return document.querySelectorAll('#log-lines .line').length")
            .as_u64()
            .unwrap()
    };
    let before = count();
    until("further lines", || (count() > before + 1).then_some(()));
    assert_eq!(
        browser.run("return document.title"),
        "shop/talks-default-0 · Dhow"
    );
    assert_eq!(
        browser.run("return document.querySelectorAll('#log-lines script, #log-lines b').length"),
        0
    );
    browser.picture("replica");
}

fn plans(browser: &Browser, dashboard: &Dashboard) {
    browser.go(&dashboard.address("/ui/plan"));
    browser.press("#file");
    browser.run(
        "document.getElementById('file').value = 'version: v1\\ndeployment: blog\\nservices:\\n  web:\\n    runtime: \
         process\\n    command: [sleep, \"60\"]\\n    scale: { mode: fixed, replicas: 2 }\\n'",
    );
    browser.press("form.paste button.primary");
    browser.until_it_says("What it would do to blog");
    browser.picture("plan");
    browser.run("document.getElementById('file').value = 'version: v1\\ndeployment: blog\\nservises: {}\\n'");
    browser.press("form.paste button.primary");
    browser.until_it_says("pasted.yaml:3");
    browser.picture("plan-refused");
}

/// On the daemon's own address with a token that may only read.
fn reads_only(daemon: &Daemon, browser: &Browser) {
    let token = daemon
        .dhow(&["token", "create", "--role", "read", "--name", "looker"])
        .ends_with(0);
    browser.go(&format!("http://127.0.0.1:{}/", daemon.api_port));
    browser.until_it_says("Sign in to Dhow");
    browser.picture("sign-in");
    browser.press("#token");
    browser.keys(&format!("{}\u{e007}", token.stdout.trim()));
    browser.until_it_says("read only");
    browser.until_it_says("Everything is well");
    browser.go(&format!(
        "http://127.0.0.1:{}/ui/deployments/shop",
        daemon.api_port
    ));
    assert_eq!(
        browser.run("return document.querySelectorAll('main form').length"),
        0
    );
    assert_eq!(browser.run("return document.cookie"), "", "no script sees it");
    browser.press(".who form button");
    browser.until_it_says("Sign in to Dhow");
}

/// Three hundred services, most of which wait; long names; and what is left of a cluster without a leader.
#[test]
fn large_and_sad_states_can_be_read() {
    let mut cluster = Cluster::raft("page-states", 3, Where::Loopback);
    let Some(browser) = Browser::start("large states in a browser", &cluster.nodes[0].scratch.path) else {
        return cluster.finish();
    };
    let names: Vec<String> = (0..300).map(|number| format!("service-{number:03}")).collect();
    let impossible = |number: usize| {
        let service = Service::sleeper();
        match number % 3 {
            0 => service.with("resources", json!({ "cpu": 900 })),
            _ => service.manual(),
        }
    };
    let services: Vec<(&str, Service)> = names
        .iter()
        .enumerate()
        .map(|(number, name)| (name.as_str(), impossible(number)))
        .collect();
    let first = &cluster.nodes[0];
    let file = first.file("large.json", &deployment(&first.mark, "large", &services));
    first.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    let file = first.file(
        "long.json",
        &deployment(&first.mark, LONG, &[(LONG, impossible(0))]),
    );
    first.dhow(&["deploy", &file, "--detach"]).ends_with(0);
    let dashboard = Dashboard::start(first);
    browser.go(&dashboard.link);
    browser.until_it_says("not well");
    browser.picture("overview-300");
    browser.go(&dashboard.address("/ui/deployments/large"));
    browser.until_it_says("service-299");
    browser.picture("deployment-300");
    browser.go(&dashboard.address(&format!("/ui/deployments/{LONG}/services/{LONG}")));
    browser.until_it_says("Replicas");
    browser.picture("service-long");
    browser.go(&dashboard.address("/ui/"));
    browser.until_it_says("live");
    cluster.nodes[1].kill9();
    cluster.nodes[2].kill9();
    browser.until_it_says("No leader");
    browser.picture("overview-no-leader");
    drop((browser, dashboard));
    cluster.nodes[1].restart();
    cluster.nodes[2].restart();
    cluster.until_leader();
    cluster.finish();
}

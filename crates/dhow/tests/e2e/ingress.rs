//! Requests from outside: TLS with certificates out of secrets, hosts that share ports, and what becomes of bad ones. The
//! clients are curl and openssl, as people have them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Cluster, Daemon, Network, Scratch, Service, Where, free_port, skip, until};

/// Why these tests cannot run here.
pub fn obstacle() -> Option<String> {
    let missing = ["curl", "openssl"].into_iter().find(|program| {
        let found = Command::new(program).arg("--version").output();
        found.is_err()
    });
    missing.map(|program| format!("there is no {program}"))
}

/// A certificate for hosts with its key, made by its own CA.
pub struct Certificates {
    dir: PathBuf,
}

impl Certificates {
    /// Makes the CA that clients believe.
    pub fn new(dir: &Path) -> Self {
        let made = Self { dir: dir.to_owned() };
        made.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=Root -days 30",
        );
        made
    }

    fn openssl(&self, args: &str) {
        let mut command = Command::new("openssl");
        command.args(args.split(' ')).current_dir(&self.dir);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {args}: {said}");
    }

    /// The chain and its key, as a secret has them.
    pub fn make(&self, name: &str, hosts: &str, days: i32) -> String {
        let names = format!("{name}.ext");
        std::fs::write(self.dir.join(&names), format!("subjectAltName={hosts}\n")).unwrap();
        self.openssl(&format!(
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days {days} -extfile {names}"
        ));
        format!(
            "{}{}",
            self.read(&format!("{name}.pem")),
            self.read(&format!("{name}.key"))
        )
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.dir.join(file)).unwrap()
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }
}

/// Who asks: curl, with the names of all hosts led to an address.
pub struct Client {
    pub ca: PathBuf,
    pub namespace: Option<String>,
    pub ip: String,
    pub http: u16,
    pub https: u16,
}

impl Client {
    fn command(&self, program: &str) -> Command {
        match &self.namespace {
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    /// What curl prints, or why it failed.
    pub fn ask(&self, url: &str, extra: &[&str]) -> Result<String, String> {
        let port = match url.starts_with("https") {
            true => self.https,
            false => self.http,
        };
        let to = format!("::{}:{port}", self.ip);
        let mut command = self.command("curl");
        command
            .args(["-sS", "--max-time", "10", "--connect-to", &to, "--cacert"])
            .arg(&self.ca);
        let output = command.args(extra).arg(url).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// The beginning of the certificate that is shown for a host; nothing where none is.
    pub fn shown(&self, host: &str) -> String {
        let connect = format!("{}:{}", self.ip, self.https);
        let shown = self
            .command("openssl")
            .args(["s_client", "-connect", &connect, "-servername", host])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let begin = text.find("-----BEGIN CERTIFICATE-----");
        begin
            .map(|begin| text[begin..].lines().take(6).collect())
            .unwrap_or_default()
    }
}

/// A service with one public endpoint, which has these fields too.
pub fn web(port: u16, endpoint: serde_json::Value) -> Service {
    let mut plain = json!({ "name": "http", "protocol": "http", "port": port, "expose": "public" });
    for (key, value) in endpoint.as_object().into_iter().flatten() {
        plain[key] = value.clone();
    }
    Service::web("good", port).with("endpoints", json!([plain]))
}

/// The certificate of the shop from now on.
fn set(daemon: &Daemon, value: &str) {
    let args = ["secret", "set", "shop-tls"];
    daemon.dhow_with_stdin(&args, value.as_bytes()).ends_with(0);
}

/// A service at a host with TLS.
fn shop() -> Service {
    let endpoint = json!({ "host": "shop.test", "tls": { "secret": "shop-tls" } });
    web(free_port(), endpoint)
}

/// What cannot serve is refused before anything is written, with the reason.
fn refuses_what_cannot_serve(daemon: &Daemon, certificates: &Certificates) {
    daemon
        .deploy("shop", &[("web", shop())])
        .ends_with(4)
        .says(&["there is no secret `shop-tls`"]);
    let other = certificates.make("other", "DNS:other.test", 30);
    certificates.make("good", "DNS:shop.test,DNS:*.shop.test", 30);
    let (chain, key) = (certificates.read("good.pem"), certificates.read("other.key"));
    for (value, why) in [
        ("no certificate".to_owned(), "holds no certificate"),
        (chain.clone(), "holds no private key"),
        (
            format!("{chain}{key}"),
            "does not belong to its first certificate",
        ),
        (other, "is for other.test, not for shop.test"),
        (certificates.make("old", "DNS:shop.test", -1), "has expired"),
    ] {
        set(daemon, &value);
        daemon
            .deploy("shop", &[("web", shop())])
            .ends_with(4)
            .says(&[why]);
    }
}

/// Over TLS in both versions of HTTP, and over nothing else.
fn is_served(client: &Client) {
    let hello = until("it answers over TLS", || {
        client.ask("https://shop.test/", &[]).ok()
    });
    assert!(!hello.is_empty());
    let two = client.ask(
        "https://shop.test/",
        &["--http2", "-o", "/dev/null", "-w", "%{http_version}"],
    );
    assert_eq!(two.unwrap(), "2");
    let sent = client.ask(
        "http://shop.test/x?y=z",
        &["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"],
    );
    let https = client.https;
    assert_eq!(sent.unwrap(), format!("308 https://shop.test:{https}/x?y=z"));
    let (status, _) = crate::support::get(https, "/").unwrap_or((0, String::new()));
    assert_ne!(status, 200, "nobody gets round TLS");
}

#[test]
fn a_host_is_served_over_tls_from_a_secret_that_is_replaced() {
    if let Some(why) = obstacle() {
        return skip("TLS from a secret", &why);
    }
    let (http, https) = (free_port(), free_port());
    let mut daemon = Daemon::at(Scratch::new("ingress"));
    let api = format!("127.0.0.1:{}", daemon.api_port);
    let network = json!({ "ingress_addr": "127.0.0.1", "http_port": http, "https_port": https });
    daemon.config = Some(json!({ "api_addr": api, "network": network }).to_string());
    daemon.restart();
    let certificates = Certificates::new(&daemon.scratch.path);
    let client = Client {
        ca: certificates.ca(),
        namespace: None,
        ip: "127.0.0.1".into(),
        http,
        https,
    };
    refuses_what_cannot_serve(&daemon, &certificates);
    set(
        &daemon,
        &certificates.make("good", "DNS:shop.test,DNS:*.shop.test", 30),
    );
    daemon.deploy("shop", &[("web", shop())]).ends_with(0);
    is_served(&client);
    // A new one is shown to new clients, and a bad one to nobody.
    let first = client.shown("shop.test");
    set(&daemon, &certificates.make("next", "DNS:shop.test", 30));
    until("the new certificate is shown", || {
        (client.shown("shop.test") != first).then_some(())
    });
    let next = client.shown("shop.test");
    set(&daemon, "broken");
    let status = until("the status says what is wrong", || {
        let status = daemon.dhow(&["status", "shop"]).ends_with(0).stdout;
        status.contains("holds no certificate").then_some(status)
    });
    assert!(status.contains("web/http"), "{status}");
    let explained = daemon.dhow(&["explain", "shop/web"]).ends_with(0).stdout;
    assert!(explained.contains("holds no certificate"), "{explained}");
    assert_eq!(client.shown("shop.test"), next);
    // The next daemon goes on with it, and so does a proxy that was killed.
    daemon.kill9();
    daemon.restart();
    assert_eq!(client.shown("shop.test"), next);
    assert!(!daemon.said().contains("PRIVATE"), "no key is logged");
    daemon.finish();
}

#[test]
fn every_node_shows_the_certificate_and_is_given_the_next() {
    if let Some(why) = obstacle().or_else(Network::obstacle) {
        return skip("TLS on every node", &why);
    }
    let cluster = Cluster::raft("ingress-nodes", 3, Where::Namespaces);
    let daemon = &cluster.nodes[cluster.until_leader()];
    let certificates = Certificates::new(&daemon.scratch.path);
    let set = |value: &str| {
        let args = ["secret", "set", "shop-tls"];
        daemon.dhow_with_stdin(&args, value.as_bytes()).ends_with(0);
    };
    set(&certificates.make("first", "DNS:shop.test", 30));
    let shop = web(
        8080,
        json!({ "host": "shop.test", "tls": { "secret": "shop-tls" } }),
    );
    daemon.deploy("shop", &[("web", shop)]).ends_with(0);
    let clients = (0..3).map(|node| Client {
        ca: certificates.ca(),
        namespace: Some(cluster.network().namespace(node)),
        ip: cluster.network().addr(node),
        http: 80,
        https: 443,
    });
    let clients: Vec<Client> = clients.collect();
    let mut first = Vec::new();
    for client in &clients {
        until("each node answers over TLS", || {
            client.ask("https://shop.test/", &["--http2"]).ok()
        });
        first.push(client.shown("shop.test"));
    }
    set(&certificates.make("second", "DNS:shop.test", 30));
    for (client, first) in clients.iter().zip(first) {
        until("each node shows the next one", || {
            let shown = client.shown("shop.test");
            (!shown.is_empty() && shown != first).then_some(())
        });
    }
    // Another deployment cannot have the host, and is told who does.
    let other = web(
        9090,
        json!({ "host": "SHOP.test", "tls": { "secret": "shop-tls" } }),
    );
    daemon
        .deploy("blog", &[("web", other)])
        .ends_with(4)
        .says(&["belongs to `shop/web/http", "shop.test"]);
    cluster.finish();
}

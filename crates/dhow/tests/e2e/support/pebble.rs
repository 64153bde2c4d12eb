//! A real ACME server with a name server of its own: pebble, built from its source where Go is installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::json;

/// What is built, by its module and version.
const MODULE: &str = "github.com/letsencrypt/pebble/v2";
const VERSION: &str = "v2.10.1";
const PROGRAMS: [&str; 2] = ["pebble", "pebble-challtestsrv"];

/// How it is to be.
pub struct PebbleOptions<'a> {
    /// Where its files go; it finds its own certificate and key there as `pebble.pem` and `pebble.key`.
    pub dir: &'a Path,
    /// The namespace that it runs in, and its address there.
    pub namespace: Option<String>,
    pub ip: String,
    /// For the server, its management, the name server and that one's.
    pub ports: [u16; 4],
    /// The port at which it asks hosts.
    pub http_port: u16,
    /// How long its certificates are good.
    pub validity_secs: u64,
}

/// Runs until it is dropped.
pub struct Pebble {
    children: Vec<Child>,
    namespace: Option<String>,
    pub directory: String,
    management: String,
    names: String,
}

/// The folder with the programs, or why there is none. They are built once and stay in the folder for builds.
fn programs() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pebble-{VERSION}"));
        if PROGRAMS.iter().all(|program| dir.join(program).exists()) {
            return Ok(dir);
        }
        let modules = PROGRAMS.map(|program| format!("{MODULE}/cmd/{program}@{VERSION}"));
        // Beside it run other tests, which have deadlines.
        let mut go = Command::new("nice");
        go.args(["-n", "19", "go", "install"])
            .args(modules)
            .env("GOBIN", &dir)
            .env("GOFLAGS", "-mod=mod");
        match go.output() {
            Ok(output) if output.status.success() => Ok(dir),
            Err(_) => Err("`nice` is not installed".to_owned()),
            // What `nice` ends with where there is no such program.
            Ok(output) if output.status.code() == Some(127) => {
                Err("Go is not installed, which the ACME server is built with".to_owned())
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let last = said.lines().last().unwrap_or_default().to_owned();
                Err(format!("the ACME server cannot be built: {last}"))
            }
        }
    });
    built.clone()
}

impl Pebble {
    /// Why there can be none here.
    pub fn obstacle() -> Option<String> {
        programs().err()
    }

    pub fn start(options: &PebbleOptions<'_>) -> Self {
        let PebbleOptions { dir, ip, ports, .. } = options;
        let [server, management, names, names_management] = ports.map(|port| format!("{ip}:{port}"));
        let config = json!({ "pebble": {
            "listenAddress": server,
            "managementListenAddress": management,
            "certificate": dir.join("pebble.pem"),
            "privateKey": dir.join("pebble.key"),
            "httpPort": options.http_port,
            "tlsPort": 1,
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "short", "validityPeriod": options.validity_secs } },
        }});
        let file = dir.join("pebble.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let mut pebble = Self {
            children: Vec::new(),
            namespace: options.namespace.clone(),
            directory: format!("https://{server}/dir"),
            management: format!("https://{management}"),
            names: format!("http://{names_management}"),
        };
        let names_args = [
            "-dnsserver",
            &names,
            "-management",
            &names_management,
            "-defaultIPv6",
            "",
        ];
        let off = ["-http01", "", "-https01", "", "-doh", "", "-tlsalpn01", ""];
        pebble.spawn("pebble-challtestsrv", dir, &[&names_args[..], &off].concat());
        let file = file.to_str().unwrap();
        pebble.spawn("pebble", dir, &["-config", file, "-dnsserver", &names]);
        pebble
    }

    fn spawn(&mut self, program: &str, dir: &Path, args: &[&str]) {
        let log = std::fs::File::create(dir.join(format!("{program}.log"))).unwrap();
        let path = programs().unwrap().join(program);
        let mut command = self.inside(path.to_str().unwrap());
        command.args(args).env("PEBBLE_VA_NOSLEEP", "1");
        command
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log);
        self.children.push(command.spawn().unwrap());
    }

    fn inside(&self, program: &str) -> Command {
        match &self.namespace {
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    fn curl(&self, url: &str, extra: &[&str]) -> Option<String> {
        let mut command = self.inside("curl");
        command.args(["-sSfk", "--max-time", "5"]).args(extra).arg(url);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    /// The authority that signs its certificates, written to a file.
    pub fn root(&self, dir: &Path) -> PathBuf {
        let url = format!("{}/roots/0", self.management);
        let root = super::until("the ACME server answers", || self.curl(&url, &[]));
        let file = dir.join("acme-root.pem");
        std::fs::write(&file, root).unwrap();
        file
    }

    /// Where a host is from now on.
    pub fn name(&self, host: &str, addrs: &[String]) {
        let body = json!({ "host": format!("{host}."), "addresses": addrs }).to_string();
        super::until("the name server answers", || {
            self.curl(&format!("{}/add-a", self.names), &["-d", &body])
        });
    }

    /// From now on nobody knows where a host is.
    pub fn unname(&self, host: &str) {
        let body = json!({ "host": format!("{host}.") }).to_string();
        let url = format!("{}/set-servfail", self.names);
        super::until("the name server answers", || self.curl(&url, &["-d", &body]));
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

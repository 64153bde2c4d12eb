//! Deployment files, as JSON, which is YAML.

use std::path::Path;

use serde_json::{Map, Value, json};

/// What runs a test's programs: host programs, or containers of the image that this variable names.
const IMAGE: &str = "DHOW_E2E_IMAGE";

/// One service of a file.
#[derive(Clone)]
pub struct Service(Map<String, Value>);

impl Service {
    /// A shell script.
    pub fn shell(script: &str) -> Self {
        Self::program(&["sh", "-c", script])
    }

    pub fn program(command: &[&str]) -> Self {
        let service = Self(Map::new()).with("command", json!(command));
        match std::env::var(IMAGE) {
            Ok(image) => service.with("image", json!(image)),
            Err(_) => service.with("runtime", json!("process")),
        }
        // Tests are to be quick, and so are their programs.
        .with("stop", json!({ "grace": "2s" }))
    }

    /// Sleeps for as long as a test could take.
    pub fn sleeper() -> Self {
        Self::program(&["sleep", "3600"])
    }

    /// The web server of this test program, which behaves as it is told; see [`crate::web`].
    pub fn web(behaviour: &str, port: u16) -> Self {
        let own = std::env::current_exe().unwrap();
        let command = [own.to_str().unwrap(), "--exact", crate::web::SERVE, "--nocapture"];
        Self::program(&command)
            .env(crate::web::BEHAVIOUR, behaviour)
            .with(
                "endpoints",
                json!([{ "name": "http", "protocol": "http", "port": port, "expose": "public" }]),
            )
            .with(
                "health",
                json!({
                    "check": { "type": "http", "url": "/healthz" },
                    "interval": "200ms", "timeout": "5s", "start_grace": "5s", "retries": 2,
                }),
            )
            .with("rollout", json!({ "min_healthy": "1s" }))
    }

    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.0.insert(key.into(), value);
        self
    }

    pub fn env(mut self, key: &str, value: &str) -> Self {
        let env = self.0.entry("env").or_insert_with(|| json!({}));
        env[key] = json!(value);
        self
    }

    pub fn replicas(self, count: u32) -> Self {
        self.with("scale", json!({ "mode": "fixed", "replicas": count }))
    }

    pub fn manual(self) -> Self {
        self.with("scale", json!({ "mode": "manual" }))
    }

    pub fn never_restarted(self) -> Self {
        self.with("restart", json!({ "policy": "never" }))
    }
}

/// A file. Each program carries the folder's name in its environment, by which it is found wherever it ends up.
pub fn deployment(folder: &Path, name: &str, services: &[(&str, Service)]) -> String {
    let services = services.iter().map(|(name, service)| {
        let marked = service.clone().env("E2E_MARK", folder.to_str().unwrap());
        ((*name).to_owned(), Value::Object(marked.0))
    });
    let services: Map<String, Value> = services.collect();
    json!({ "version": "v1", "deployment": name, "services": services }).to_string()
}

/// Programs that say where they run; a new version of them takes no longer than it has to.
pub fn spread(count: u32) -> Service {
    Service::shell("echo replica $DHOW_NODE_ID speaks; exec sleep 3600")
        .replicas(count)
        .with("rollout", json!({ "min_healthy": "0s", "max_surge": 4 }))
}

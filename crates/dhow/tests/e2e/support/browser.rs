//! A real browser without a screen: Chromium, driven over the WebDriver protocol by requests of our own, which are a
//! hundred lines where a library would be forty crates.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{PATIENCE, skip, until};

/// What the pages are looked at with: a desk and a hand.
pub const WIDE: u32 = 1_280;
pub const NARROW: u32 = 390;

/// One browser with one open page.
pub struct Browser {
    driver: Child,
    /// Held open: the driver still writes there.
    _said: BufReader<ChildStdout>,
    port: u16,
    session: String,
    pictures: PathBuf,
}

fn is_there(program: &str) -> bool {
    let asked = Command::new(program)
        .arg("--version")
        .stderr(Stdio::null())
        .output();
    asked.is_ok_and(|answer| answer.status.success())
}

/// One request to the driver.
fn call(port: u16, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(told)?;
    stream.set_read_timeout(Some(2 * PATIENCE)).map_err(told)?;
    let body = if method == "POST" {
        body.to_string()
    } else {
        String::new()
    };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())
        .map_err(told)?;
    let mut reader = BufReader::new(stream);
    let mut length = None;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).map_err(told)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(told) = line.strip_prefix("content-length:") {
            length = told.trim().parse().ok();
        }
    }
    let mut answer = vec![0; length.ok_or("the driver says no length")?];
    reader.read_exact(&mut answer).map_err(told)?;
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
    match answer["value"]["error"].as_str() {
        Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
        None => Ok(answer["value"].clone()),
    }
}

impl Browser {
    /// None where there is no browser, which is said.
    pub fn start(test: &str, folder: &Path) -> Option<Self> {
        for program in ["chromium", "chromedriver"] {
            if !is_there(program) {
                skip(
                    test,
                    &format!("{program} is not here (packages chromium, chromium-driver)"),
                );
                return None;
            }
        }
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(driver.stdout.take().unwrap());
        let port = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "the driver ended");
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim().trim_end_matches('.').parse().unwrap();
            }
        };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--no-proxy-server",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "acceptInsecureCerts": true,
            "unhandledPromptBehavior": "ignore",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let opened = call(port, "POST", "/session", &wanted).unwrap();
        let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-pictures");
        std::fs::create_dir_all(&pictures).unwrap();
        Some(Self {
            driver,
            _said: said,
            port,
            session: opened["sessionId"].as_str().unwrap().to_owned(),
            pictures,
        })
    }

    #[track_caller]
    fn ask(&self, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        call(self.port, "POST", &path, body).unwrap()
    }

    /// A command of the browser's own protocol.
    #[track_caller]
    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.ask(
            "goog/cdp/execute",
            &json!({ "cmd": command, "params": parameters }),
        )
    }

    #[track_caller]
    pub fn go(&self, address: &str) {
        self.ask("url", &json!({ "url": address }));
    }

    /// What a script returns.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.ask("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// What is shown, as text.
    #[track_caller]
    pub fn text(&self) -> String {
        self.run("return document.body.innerText")
            .as_str()
            .unwrap()
            .to_owned()
    }

    #[track_caller]
    pub fn until_it_says(&self, text: &str) {
        until(&format!("the page says `{text}`"), || {
            self.text().contains(text).then_some(())
        });
    }

    #[track_caller]
    pub fn place(&self) -> String {
        self.run("return location.pathname + location.search")
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Presses what a selector finds, as a person does.
    #[track_caller]
    pub fn press(&self, selector: &str) {
        let found = self.ask("element", &json!({ "using": "css selector", "value": selector }));
        let id = found
            .as_object()
            .unwrap()
            .values()
            .next()
            .unwrap()
            .as_str()
            .unwrap()
            .to_owned();
        self.ask(&format!("element/{id}/click"), &json!({}));
    }

    /// Types into whatever has the focus.
    #[track_caller]
    pub fn keys(&self, text: &str) {
        let keys = text.chars().flat_map(|key| {
            [
                json!({ "type": "keyDown", "value": key }),
                json!({ "type": "keyUp", "value": key }),
            ]
        });
        let keys: Vec<Value> = keys.collect();
        self.ask(
            "actions",
            &json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] }),
        );
    }

    /// What the browser has complained of: blocked by the policy, scripts that failed.
    #[track_caller]
    pub fn complaints(&self) -> Vec<String> {
        let all = self.ask("se/log", &json!({ "type": "browser" }));
        let all = all.as_array().unwrap().iter();
        all.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    fn look(&self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &scheme);
    }

    /// Pictures for a person, wide and narrow, light and dark; and what a person need not look for: texts that are too
    /// pale, fields without a name, pages that are wider than the screen.
    #[track_caller]
    pub fn picture(&self, name: &str) {
        for (width, scheme) in [
            (WIDE, "light"),
            (WIDE, "dark"),
            (NARROW, "light"),
            (NARROW, "dark"),
        ] {
            self.look(width, scheme);
            let shown = self.devtools(
                "Page.captureScreenshot",
                &json!({ "captureBeyondViewport": true, "format": "png" }),
            );
            let bytes = STANDARD.decode(shown["data"].as_str().unwrap()).unwrap();
            std::fs::write(self.pictures.join(format!("{name}-{width}-{scheme}.png")), bytes).unwrap();
            let found = self.run(include_str!("browser/look.js"));
            assert_eq!(found, json!([]), "{name}, {width} wide, {scheme}");
        }
        self.look(WIDE, "light");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It takes its browser with it.
        let _ = call(
            self.port,
            "DELETE",
            &format!("/session/{}", self.session),
            &Value::Null,
        );
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

//! A daemon on a Unix socket that answers each request as its script says, and the binary that asks it.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `GET /api/v1/cluster?a=b`.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Action = Box<dyn FnOnce(&mut UnixStream) + Send>;

/// What the daemon does when the request comes that is expected.
pub struct Step {
    /// How the request line begins.
    expect: String,
    action: Action,
}

impl Step {
    /// Whatever is to be done with the connection.
    pub fn with(expect: &str, action: impl FnOnce(&mut UnixStream) + Send + 'static) -> Self {
        Self {
            expect: expect.into(),
            action: Box::new(action),
        }
    }

    fn raw(expect: &str, head: String, body: Vec<u8>) -> Self {
        Self::with(expect, move |connection| {
            // A client that has gone away is looked at by its test.
            let _ = connection.write_all(head.as_bytes());
            let _ = connection.write_all(&body);
        })
    }

    pub fn json(expect: &str, body: Value) -> Self {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n";
        Self::raw(expect, head.into(), body.to_string().into_bytes())
    }

    pub fn problem(expect: &str, status: u16, code: &str, detail: &str) -> Self {
        let body = serde_json::json!({ "status": status, "code": code, "detail": detail });
        Self::raw(expect, problem_head(status), body.to_string().into_bytes())
    }

    /// A stream that begins with this and ends.
    pub fn stream(expect: &str, body: impl Into<Vec<u8>>) -> Self {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        Self::raw(expect, head.into(), body.into())
    }

    /// The connection ends without an answer.
    pub fn broken(expect: &str) -> Self {
        Self::with(expect, |_| {})
    }
}

pub fn problem_head(status: u16) -> String {
    format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\nretry-after: 0\r\ncontent-type: application/problem+json\r\n\r\n"
    )
}

/// A server-sent event.
pub fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// A folder with the daemon's socket, gone at its end.
pub struct Daemon {
    pub folder: PathBuf,
    is_closed: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Seen>>>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Daemon {
    /// `name` is the test's own.
    pub fn new(name: &str, script: Vec<Step>) -> Self {
        let folder = folder(name);
        let listener = UnixListener::bind(folder.join("dhow.sock")).unwrap();
        let (is_closed, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (closed, requests) = (is_closed.clone(), seen.clone());
        let thread = std::thread::spawn(move || serve(&listener, script, &closed, &requests));
        Self {
            folder,
            is_closed,
            seen,
            thread: Some(thread),
        }
    }

    pub fn dhow(&self, args: &[&str]) -> Command {
        dhow(&self.folder, args)
    }

    pub fn run(&self, args: &[&str]) -> Answer {
        answer(self.dhow(args).output().unwrap())
    }

    pub fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Answer {
        let mut child = self
            .dhow(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        answer(child.wait_with_output().unwrap())
    }

    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().into()
    }

    /// Everything that was asked; the script must have been followed to its end.
    pub fn seen(mut self) -> Vec<Seen> {
        let left = self.close();
        assert!(
            left.is_empty(),
            "was never asked: {left:?}, but {:#?}",
            self.seen.lock().unwrap()
        );
        self.seen.lock().unwrap().clone()
    }

    fn close(&mut self) -> Vec<String> {
        let Some(thread) = self.thread.take() else {
            return Vec::new();
        };
        self.is_closed.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for a connection.
        let _ = UnixStream::connect(self.folder.join("dhow.sock"));
        thread.join().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.close();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A new folder with a short name: the path of a socket has a limit.
pub fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dhow-online-{}-{name}", std::process::id()));
    // What an aborted run has left would only confuse this one.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The steps that are left at the end. One request after the other, as the command line asks.
fn serve(
    listener: &UnixListener,
    script: Vec<Step>,
    closed: &AtomicBool,
    seen: &Mutex<Vec<Seen>>,
) -> Vec<String> {
    let mut script = script.into_iter();
    loop {
        let (mut connection, _) = listener.accept().unwrap();
        if closed.load(Ordering::SeqCst) {
            return script.map(|step| step.expect).collect();
        }
        let Some(request) = read(&mut connection) else {
            continue;
        };
        seen.lock().unwrap().push(request.clone());
        match script.next() {
            Some(step) if request.line.starts_with(&step.expect) => (step.action)(&mut connection),
            other => {
                let expected = other.map(|step| step.expect);
                let text = format!("not in the script: {}, but {expected:?}", request.line);
                let body = serde_json::json!({ "status": 500, "code": "internal", "detail": text });
                let _ = connection.write_all(problem_head(500).as_bytes());
                let _ = connection.write_all(body.to_string().as_bytes());
            }
        }
    }
}

pub fn read(connection: &mut impl Read) -> Option<Seen> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if connection.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(key, value)| (key.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(key, _)| key == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    connection.read_exact(&mut body).ok()?;
    Some(Seen { line, headers, body })
}

pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

pub fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code().expect("ended by a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The binary with an environment of its own.
pub fn dhow(data_dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dhow"));
    command
        .args(args)
        .env_clear()
        .env("HOME", "/home/nobody")
        .env("TZ", "UTC")
        .env("DHOW_DATA_DIR", data_dir)
        .stdin(Stdio::null());
    command
}

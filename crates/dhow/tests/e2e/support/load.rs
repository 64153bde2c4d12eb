//! Requests without a pause, each connection kept alive, and how many failed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::until;

/// Longer than any request may wait for a replica.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Between two requests of a connection: constant load, and time for others on a machine with few cores.
const PAUSE: Duration = Duration::from_millis(2);
const FAILURES_KEPT: usize = 10;

#[derive(Default)]
struct Tally {
    ends: AtomicBool,
    answered: AtomicU64,
    bodies: Mutex<BTreeMap<String, u64>>,
    failures: Mutex<Vec<String>>,
}

pub struct Load {
    tally: Arc<Tally>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// On this many connections.
    pub fn start(port: u16, connections: usize) -> Self {
        let tally = Arc::new(Tally::default());
        let threads = (0..connections).map(|_| {
            let tally = Arc::clone(&tally);
            std::thread::spawn(move || press(port, &tally))
        });
        let threads = threads.collect();
        let load = Self { tally, threads };
        load.goes_on();
        load
    }

    pub fn answered(&self) -> u64 {
        self.tally.answered.load(Ordering::Relaxed)
    }

    /// Waits for another hundred answers.
    pub fn goes_on(&self) {
        let enough = self.answered() + 100;
        until("requests are answered", || {
            (self.answered() >= enough).then_some(())
        });
    }

    /// How often each body came.
    pub fn bodies(&self) -> BTreeMap<String, u64> {
        self.tally.bodies.lock().unwrap().clone()
    }

    /// What failed so far.
    pub fn failures(&self) -> Vec<String> {
        self.tally.failures.lock().unwrap().clone()
    }

    /// Forgets what failed so far: it was meant to.
    pub fn forgive(&self) {
        self.tally.failures.lock().unwrap().clear();
    }

    /// Ends it; no request may have failed. Gives the number of those that were answered.
    #[track_caller]
    pub fn ends_without_failure(self) -> u64 {
        self.tally.ends.store(true, Ordering::Relaxed);
        let answered = self.answered();
        for thread in self.threads {
            thread.join().unwrap();
        }
        let failures = self.tally.failures.lock().unwrap();
        assert!(
            failures.is_empty(),
            "{} of {answered} failed: {:#?}",
            failures.len(),
            &failures[..failures.len().min(FAILURES_KEPT)]
        );
        answered
    }
}

fn press(port: u16, tally: &Tally) {
    let mut connection = None;
    while !tally.ends.load(Ordering::Relaxed) {
        match request(local(port), &mut connection, "/") {
            Ok((200, body)) => {
                *tally.bodies.lock().unwrap().entry(body).or_default() += 1;
                tally.answered.fetch_add(1, Ordering::Relaxed);
            }
            Ok((status, body)) => tally.failures.lock().unwrap().push(format!("{status}: {body}")),
            Err(error) => {
                connection = None;
                tally.failures.lock().unwrap().push(error.to_string());
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// One request on a connection of its own: status and body.
pub fn get(port: u16, path: &str) -> std::io::Result<(u16, String)> {
    get_from(local(port), path)
}

/// The same from another address than the host's first.
pub fn get_from(addr: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    request(addr, &mut None, path)
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn request(
    addr: SocketAddr,
    connection: &mut Option<BufReader<TcpStream>>,
    path: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = match connection.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(addr)?;
            stream.set_read_timeout(Some(ANSWER_WITHIN))?;
            stream.set_nodelay(true)?;
            BufReader::new(stream)
        }
    };
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes())?;
    let broken = |what: &str| std::io::Error::other(format!("no HTTP answer: {what:?}"));
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| broken(&line))?;
    let (mut length, mut closes) = (0, false);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header)?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        let (key, value) = header.split_once(':').ok_or_else(|| broken(&header))?;
        match key {
            "content-length" => length = value.trim().parse().map_err(|_| broken(&header))?,
            "connection" => closes = value.contains("close"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    if !closes {
        *connection = Some(stream);
    }
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// A server that answers well, badly and not at all: two of three requests fail, and are counted.
#[test]
fn what_fails_is_counted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        for status in ["200 OK", "503 Busy", ""] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            while lines.read_line(&mut line).unwrap() > 2 {}
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream
                .write_all(if status.is_empty() { b"" } else { answer.as_bytes() })
                .unwrap();
        }
    });
    let tally = Arc::new(Tally::default());
    let pressing = std::thread::spawn({
        let tally = Arc::clone(&tally);
        move || press(port, &tally)
    });
    until("three requests are counted", || {
        let failed = tally.failures.lock().unwrap().len();
        (failed >= 2 && tally.answered.load(Ordering::Relaxed) == 1).then_some(())
    });
    tally.ends.store(true, Ordering::Relaxed);
    pressing.join().unwrap();
    server.join().unwrap();
    assert!(tally.failures.lock().unwrap()[0].contains("503"));
}

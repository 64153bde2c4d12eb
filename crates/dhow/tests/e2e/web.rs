//! A web server that behaves as it is told. This test program starts itself as one: it is there, it starts in
//! milliseconds and needs nothing of the host.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The test that is the server, where it is asked to be one.
pub const SERVE: &str = "web::serves_where_it_is_asked_to";

/// `VERSION`, `VERSION crash`, `VERSION never` (is never healthy), `VERSION sick MS` (is not any more after that) or
/// `VERSION fails N` (answers every Nth request with 500).
pub const BEHAVIOUR: &str = "E2E_WEB";

#[derive(Clone, Copy)]
enum Health {
    Good,
    Never,
    Until(Instant),
}

#[test]
fn serves_where_it_is_asked_to() {
    let Ok(behaviour) = std::env::var(BEHAVIOUR) else {
        return;
    };
    let words: Vec<&str> = behaviour.split(' ').collect();
    let health = match words[..] {
        [_, "crash"] => {
            eprintln!("FATAL: version {} cannot start", words[0]);
            std::process::exit(3);
        }
        [_, "never"] => Health::Never,
        [_, "sick", ms] => Health::Until(Instant::now() + Duration::from_millis(ms.parse().unwrap())),
        _ => Health::Good,
    };
    let fails = match words[..] {
        [_, "fails", every] => every.parse().unwrap(),
        _ => u64::MAX,
    };
    let requests = Arc::new(AtomicU64::new(0));
    let port: u16 = std::env::var("PORT").unwrap().parse().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    println!("{} listens on {port}", words[0]);
    for stream in listener.incoming().flatten() {
        let (version, requests) = (words[0].to_owned(), Arc::clone(&requests));
        // Ends with its connection.
        std::thread::spawn(move || answer(stream, &version, health, (&requests, fails)));
    }
}

fn answer(
    mut stream: TcpStream,
    version: &str,
    health: Health,
    (requests, fails): (&AtomicU64, u64),
) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut first = String::new();
        if lines.read_line(&mut first).ok()? == 0 {
            return None;
        }
        let (mut line, mut body_bytes) = (String::new(), 0);
        while lines.read_line(&mut line).ok()? > 2 {
            let length = line.to_ascii_lowercase();
            let length = length.strip_prefix("content-length:");
            body_bytes = length.map_or(body_bytes, |length| length.trim().parse().unwrap());
            line.clear();
        }
        let body = std::io::copy(&mut lines.by_ref().take(body_bytes), &mut std::io::sink());
        if body.ok()? < body_bytes {
            return None;
        }
        let is_well = match health {
            Health::Good => true,
            Health::Never => false,
            Health::Until(end) => Instant::now() < end,
        };
        let status = match first.contains("/healthz") {
            true if is_well => "200 OK",
            true => "500 Not Well",
            false if (requests.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(fails) => "500 Failed",
            false => "200 OK",
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", version.len());
        stream.write_all(format!("{head}{version}").as_bytes()).ok()?;
    }
}

//! Requests a second through the proxy, over HTTP and as a TCP stream, as a ratio to the same load without
//! it; and what the proxy weighs. `cargo bench -p dhow-agent --bench proxy`, with `wrk` installed.
//!
//! One binary in three roles: `proxy` (what the product's binary does under that name), `backend` (a small
//! server), and the measurement. All share the host's cores with `wrk`: the ratio is a lower bound.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on ends where it stands"
)]

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};

use bytes::Bytes;
use dhow_agent::proxy::{Backend, Listener, Protocol, Route, Rule, Table};
use http_body_util::Full;
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

const ROUNDS: usize = 3;
const ROUND_SECS: &str = "3";
const CONNECTIONS: [&str; 2] = ["1", "64"];

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("proxy") => std::process::exit(dhow_agent::proxy::main(args)),
        Some("backend") => backend(),
        Some(_) | None => measure(),
    }
}

fn backend() -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let service = service_fn(|_| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&[b'x'; 128]))))
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    })
}

/// A process that is killed when it is dropped.
struct Role(Child);

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn role(args: &[&str]) -> Role {
    let mut command = Command::new(std::env::current_exe().unwrap());
    Role(command.args(args).stdout(Stdio::piped()).spawn().unwrap())
}

fn measure() -> ExitCode {
    if Command::new("wrk").arg("-v").output().is_err() {
        println!("wrk is not installed: nothing measured");
        return ExitCode::SUCCESS;
    }
    let mut servers: Vec<Role> = (0..3).map(|_| role(&["backend"])).collect();
    let addrs: Vec<SocketAddr> = servers.iter_mut().map(said).collect();
    let dir = tempfile::tempdir().unwrap();
    let http = free_port();
    let tcp = free_port();
    let table = Table {
        revision: 1,
        listeners: vec![
            listener(http, Protocol::Http, &addrs),
            listener(tcp, Protocol::Tcp, &addrs),
        ],
        ..Table::empty()
    };
    std::fs::write(dir.path().join("table.json"), serde_json::to_vec(&table).unwrap()).unwrap();
    let proxy = role(&["proxy", "--dir", dir.path().to_str().unwrap()]);
    while std::net::TcpStream::connect(tcp).is_err() || std::net::TcpStream::connect(http).is_err() {
        std::thread::yield_now();
    }
    println!("proxy, idle: {}", resident(&proxy));
    for connections in CONNECTIONS {
        // Direct, over HTTP, as a stream; in turns, so that a busy moment of the host hits all of them. Who
        // is charged for the processor: the server alone, or the proxy alone.
        let loads = [(addrs[0], &servers[0]), (http, &proxy), (tcp, &proxy)];
        let mut results = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (results, (addr, charged)) in results.iter_mut().zip(loads) {
                results.push(wrk(addr, connections, charged));
            }
        }
        let [direct, http, tcp] = results.map(median);
        println!(
            "{connections} connections: direct {:.0}/s ({:.1} us of the server's processor time each), http \
             {:.0}/s (ratio {:.2}, {:.1} us of the proxy's), tcp {:.0}/s (ratio {:.2}, {:.1} us of the proxy's)",
            direct.rate,
            direct.cpu_us,
            http.rate,
            http.rate / direct.rate,
            http.cpu_us,
            tcp.rate,
            tcp.rate / direct.rate,
            tcp.cpu_us,
        );
    }
    println!("proxy, after: {}", resident(&proxy));
    ExitCode::SUCCESS
}

fn said(server: &mut Role) -> SocketAddr {
    let mut line = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    line.trim().parse().unwrap()
}

fn free_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn listener(addr: SocketAddr, protocol: Protocol, backends: &[SocketAddr]) -> Listener {
    let backends = backends.iter().map(|addr| Backend::here(addr.to_string(), *addr));
    let route = Route {
        id: "all".into(),
        host: None,
        path: None,
        backends: backends.collect(),
        who: Rule::Anybody,
    };
    Listener {
        addr,
        protocol,
        routes: vec![route],
    }
}

/// What came of one round: requests a second, and processor time for each.
#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    cpu_us: f64,
}

fn wrk(addr: SocketAddr, connections: &str, charged: &Role) -> Measured {
    let before_us = cpu_us(charged);
    let output = Command::new("wrk")
        .args(["-t1", "-c", connections, "-d", ROUND_SECS])
        .arg(format!("http://{addr}/"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        !text.contains("Non-2xx") && !text.contains("Socket errors"),
        "{text}"
    );
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    let requests = text
        .lines()
        .find_map(|line| line.trim().split_once(" requests in"));
    let requests: f64 = requests.unwrap().0.parse().unwrap();
    Measured {
        rate: rate.unwrap().trim().parse().unwrap(),
        cpu_us: (cpu_us(charged) - before_us) / requests,
    }
}

/// Processor time of a process so far, from clock ticks of 10 ms.
fn cpu_us(role: &Role) -> f64 {
    const TICK_US: f64 = 10_000.0;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", role.0.id())).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_ascii_whitespace()
        .collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) * TICK_US
}

fn median(mut results: Vec<Measured>) -> Measured {
    results.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    results[results.len() / 2]
}

fn resident(role: &Role) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", role.0.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_ascii_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    format!(
        "RSS {} (anonymous {}), {} threads",
        field("VmRSS:"),
        field("RssAnon:"),
        field("Threads:")
    )
}

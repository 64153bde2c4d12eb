//! Requests a second through the proxy, over HTTP and as a TCP stream, as a ratio to the same load without
//! it and beside nginx and HAProxy where they are installed; and what the proxy weighs.
//! `cargo bench -p dhow-agent --bench proxy`, with `wrk` installed. `DHOW_BENCH_BEFORE` may name the same program of an
//! earlier version, whose proxy is measured beside this one.
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
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use bytes::Bytes;
use dhow_agent::proxy::{Backend, Listener, Protocol, Route, Table};
use http_body_util::Full;
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

const ROUNDS: usize = 5;
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
    role_of(&std::env::current_exe().unwrap(), args)
}

fn role_of(program: &Path, args: &[&str]) -> Role {
    let mut command = Command::new(program);
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
    let (proxy, http, tcp) = proxy(&std::env::current_exe().unwrap(), dir.path(), &addrs);
    let before_dir = tempfile::tempdir().unwrap();
    let before = std::env::var_os("DHOW_BENCH_BEFORE");
    let before = before.map(|program| self::proxy(Path::new(&program), before_dir.path(), &addrs));
    println!("proxy, idle: {}", resident(&proxy));
    let peers = peers(dir.path(), &addrs);
    for connections in CONNECTIONS {
        let mut ways = vec![
            Way::new("direct", addrs[0], &servers[0]),
            Way::new("http", http, &proxy),
            Way::new("tcp", tcp, &proxy),
        ];
        ways.extend(
            before
                .iter()
                .map(|(role, http, _)| Way::new("http before", *http, role)),
        );
        ways.extend(peers.iter().map(|(name, addr, role)| Way::new(name, *addr, role)));
        compare(connections, &mut ways);
    }
    println!("proxy, after: {}", resident(&proxy));
    ExitCode::SUCCESS
}

/// A proxy that listens for requests and for streams.
fn proxy(program: &Path, dir: &Path, backends: &[SocketAddr]) -> (Role, SocketAddr, SocketAddr) {
    let (http, tcp) = (free_port(), free_port());
    let table = Table {
        revision: 1,
        listeners: vec![
            listener(http, Protocol::Http, backends),
            listener(tcp, Protocol::Tcp, backends),
        ],
        ..Table::empty()
    };
    std::fs::write(dir.join("table.json"), serde_json::to_vec(&table).unwrap()).unwrap();
    let proxy = role_of(program, &["proxy", "--dir", dir.to_str().unwrap()]);
    while std::net::TcpStream::connect(tcp).is_err() || std::net::TcpStream::connect(http).is_err() {
        std::thread::yield_now();
    }
    (proxy, http, tcp)
}

/// One way to the servers, who is charged for the processor on it, and what came of its rounds.
struct Way<'a> {
    name: &'a str,
    addr: SocketAddr,
    charged: &'a Role,
    results: Vec<Measured>,
}

impl<'a> Way<'a> {
    fn new(name: &'a str, addr: SocketAddr, charged: &'a Role) -> Self {
        let results = Vec::new();
        Self {
            name,
            addr,
            charged,
            results,
        }
    }
}

/// In turns, so that a busy moment of the host hits all of them; medians.
fn compare(connections: &str, ways: &mut [Way<'_>]) {
    for _ in 0..ROUNDS {
        for way in &mut *ways {
            way.results.push(wrk(way.addr, connections, way.charged));
        }
    }
    let medians: Vec<Measured> = ways.iter().map(|way| median(way.results.clone())).collect();
    println!(
        "\n{connections} connections {:>12} {:>14} {:>10} {:>22} {:>10} {:>10}",
        "a second", "of direct", "p99 ms", "processor us a request", "http / it", "p99 / it"
    );
    for (way, measured) in ways.iter().zip(&medians) {
        println!(
            "{:14} {:>12.0} {:>14.2} {:>10.2} {:>22.1} {:>10.2} {:>10.2}",
            way.name,
            measured.rate,
            measured.rate / medians[0].rate,
            measured.p99_ms,
            measured.cpu_us,
            medians[1].rate / measured.rate,
            medians[1].p99_ms / measured.p99_ms,
        );
    }
}

/// The others that do the same, each with one thread as the proxy has on a small host.
fn peers(dir: &Path, backends: &[SocketAddr]) -> Vec<(&'static str, SocketAddr, Role)> {
    let mut peers = Vec::new();
    let (nginx, haproxy) = (free_port(), free_port());
    let servers = |word: &str, end: &str| {
        let lines = backends.iter().enumerate();
        let lines =
            lines.map(|(number, addr)| format!("{}{addr}{end}\n", word.replace('N', &number.to_string())));
        lines.collect::<String>()
    };
    let upstream = servers("server ", ";");
    let config = format!(
        "worker_processes 1; master_process off; daemon off; pid {dir}/nginx.pid; error_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir}; \
         uwsgi_temp_path {dir}; scgi_temp_path {dir};\n\
         upstream all {{ {upstream} keepalive 128; }}\n\
         server {{ listen {nginx}; location / {{ proxy_pass http://all; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }} }} }}\n",
        dir = dir.display()
    );
    std::fs::write(dir.join("nginx.conf"), config).unwrap();
    let file = dir.join("nginx.conf");
    peers.extend(peer("nginx", nginx, &["-c", file.to_str().unwrap()]));
    let config = format!(
        "global\n nbthread 1\n maxconn 8192\ndefaults\n mode http\n option forwardfor\n timeout connect 5s\n \
         timeout client 60s\n timeout server 60s\nlisten all\n bind {haproxy}\n{}",
        servers(" server sN ", "")
    );
    std::fs::write(dir.join("haproxy.cfg"), config).unwrap();
    let file = dir.join("haproxy.cfg");
    peers.extend(peer("haproxy", haproxy, &["-q", "-f", file.to_str().unwrap()]));
    peers
}

/// Where it is not installed there is nothing to compare with.
fn peer(name: &'static str, addr: SocketAddr, args: &[&str]) -> Option<(&'static str, SocketAddr, Role)> {
    let started = Command::new(name).args(args).stdin(Stdio::null()).spawn();
    let Ok(child) = started else {
        println!("{name} is not installed: nothing to compare with");
        return None;
    };
    let mut role = Role(child);
    while std::net::TcpStream::connect(addr).is_err() {
        assert!(role.0.try_wait().unwrap().is_none(), "{name} does not run");
        std::thread::yield_now();
    }
    Some((name, addr, role))
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
        backends: backends.collect(),
        ..Route::default()
    };
    Listener::new(addr, protocol, vec![route])
}

/// What came of one round: requests a second, and processor time for each.
#[derive(Clone, Copy)]
struct Measured {
    rate: f64,
    p99_ms: f64,
    cpu_us: f64,
}

fn wrk(addr: SocketAddr, connections: &str, charged: &Role) -> Measured {
    let before_us = cpu_us(charged);
    let output = Command::new("wrk")
        .args(["-t1", "--latency", "-c", connections, "-d", ROUND_SECS])
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
    let p99 = text.lines().find_map(|line| line.trim().strip_prefix("99%"));
    Measured {
        p99_ms: millis(p99.unwrap().trim()),
        rate: rate.unwrap().trim().parse().unwrap(),
        cpu_us: (cpu_us(charged) - before_us) / requests,
    }
}

/// As `wrk` writes a time.
fn millis(text: &str) -> f64 {
    let units = [("us", 0.001), ("ms", 1.0), ("s", 1000.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(unit, ms)| Some((text.strip_suffix(unit)?, ms)))
        .unwrap();
    number.parse::<f64>().unwrap() * unit
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

//! One stream and small requests from node to node, through two proxies with TLS between them, beside the same without
//! them and through one proxy. `cargo bench -p dhow-agent --bench mesh`.
//!
//! One binary in three roles: `proxy` (what the product's binary does under that name), `backend` (a server that answers
//! with what it gets, or counts it), and the measurement. All share the host's cores.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on ends where it stands"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use dhow_agent::proxy::{Backend, Listener, Mesh, MeshIdentity, MeshPeer, Protocol, Route, Rule, Table};
use dhow_core::ids::NodeId;
use dhow_wire::certificate::{CLUSTER_CA_NAME, proxy_uri};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, PKCS_ED25519, SanType,
};

const ROUNDS: usize = 5;
const STREAM_TIME: Duration = Duration::from_secs(2);
const REQUESTS: usize = 5_000;
const CONNECTS: usize = 1_000;
const REQUEST_BYTES: usize = 64;
/// Answers with what it gets.
const ECHO: &str = "echo";
/// Reads, and answers with the count at the end.
const COUNT: &str = "count";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("proxy") => std::process::exit(dhow_agent::proxy::main(args)),
        Some("backend") => backend(args.next().is_some_and(|word| word == COUNT)),
        Some(_) | None => measure(),
    }
}

fn backend(counts: bool) -> ! {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 256 << 10];
            let mut total = 0u64;
            while let Ok(count) = stream.read(&mut buffer) {
                if count == 0 {
                    break;
                }
                total += count as u64;
                if !counts && stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
            if counts {
                let _ = stream.write_all(&total.to_le_bytes());
            }
        });
    }
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

fn said(server: &mut Role) -> SocketAddr {
    let mut line = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    line.trim().parse().unwrap()
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// One of the three ways to a backend.
struct Way {
    name: &'static str,
    echo: SocketAddr,
    count: SocketAddr,
}

fn measure() -> ExitCode {
    let (mut echo, mut count) = (role(&["backend", ECHO]), role(&["backend", COUNT]));
    let (echo_addr, count_addr) = (said(&mut echo), said(&mut count));
    let (far_dir, near_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cluster = Cluster::new();
    let (far_mesh, near_mesh) = (free_port(), free_port());
    let here = |id: &str, addr| vec![Backend::here(id, addr)];
    let there = |id: &str| {
        let id = id.to_owned();
        vec![Backend {
            id,
            addr: None,
            node: Some(2),
            draining: false,
        }]
    };
    let one_proxy = [free_port(), free_port()];
    let far = vec![
        listener(one_proxy[0], "b/echo/main", here("b/echo-0@1", echo_addr)),
        listener(one_proxy[1], "b/count/main", here("b/count-0@1", count_addr)),
    ];
    prepare(&cluster, far_dir.path(), 2, far_mesh, (1, near_mesh), far);
    let two_proxies = [free_port(), free_port()];
    let near = vec![
        listener(two_proxies[0], "b/echo/main", there("b/echo-0@1")),
        listener(two_proxies[1], "b/count/main", there("b/count-0@1")),
    ];
    prepare(&cluster, near_dir.path(), 1, near_mesh, (2, far_mesh), near);
    let proxies =
        [far_dir.path(), near_dir.path()].map(|dir| role(&["proxy", "--dir", dir.to_str().unwrap()]));
    for addr in one_proxy.into_iter().chain(two_proxies) {
        while TcpStream::connect(addr).is_err() {
            std::thread::yield_now();
        }
    }
    let way = |name, [echo, count]: [SocketAddr; 2]| Way { name, echo, count };
    let ways = [
        way("direct", [echo_addr, count_addr]),
        way("one proxy", one_proxy),
        way("two nodes", two_proxies),
    ];
    compare(&ways);
    drop(proxies);
    ExitCode::SUCCESS
}

/// In turns, so that a busy moment of the host hits all of them; medians.
fn compare(ways: &[Way]) {
    let mut results: Vec<[Vec<f64>; 4]> = ways.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        for (way, results) in ways.iter().zip(&mut results) {
            results[0].push(stream(way.count));
            let mut trips = round_trips(way.echo);
            trips.sort_by(f64::total_cmp);
            results[1].push(trips[trips.len() / 2]);
            results[2].push(trips[trips.len() * 99 / 100]);
            results[3].push(connects(way.echo));
        }
    }
    println!(
        "{:10} {:>12} {:>16} {:>12} {:>24}",
        "", "Gbit/s", "round trip us", "p99 us", "connect and request us"
    );
    for (way, results) in ways.iter().zip(results) {
        let [stream, trip, late, connect] = results.map(median);
        println!(
            "{:10} {stream:>12.2} {trip:>16.1} {late:>12.1} {connect:>24.1}",
            way.name
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Gigabits a second of one stream, as the receiver counts them.
fn stream(addr: SocketAddr) -> f64 {
    let mut stream = TcpStream::connect(addr).unwrap();
    let bytes = vec![7; 256 << 10];
    let begin = Instant::now();
    while begin.elapsed() < STREAM_TIME {
        stream.write_all(&bytes).unwrap();
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut total = [0; 8];
    stream.read_exact(&mut total).unwrap();
    u64::from_le_bytes(total) as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9
}

/// Microseconds of each request on one open connection.
fn round_trips(addr: SocketAddr) -> Vec<f64> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    (0..REQUESTS).map(|_| request(&mut stream)).collect()
}

/// Microseconds of a connection with one request, on average.
fn connects(addr: SocketAddr) -> f64 {
    let begin = Instant::now();
    for _ in 0..CONNECTS {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        request(&mut stream);
    }
    begin.elapsed().as_secs_f64() * 1e6 / CONNECTS as f64
}

fn request(stream: &mut TcpStream) -> f64 {
    let begin = Instant::now();
    let mut bytes = [7; REQUEST_BYTES];
    stream.write_all(&bytes).unwrap();
    stream.read_exact(&mut bytes).unwrap();
    begin.elapsed().as_secs_f64() * 1e6
}

fn listener(addr: SocketAddr, id: &str, backends: Vec<Backend>) -> Listener {
    let route = Route {
        id: id.into(),
        host: None,
        path: None,
        backends,
        who: Rule::Anybody,
    };
    Listener {
        addr,
        protocol: Protocol::Tcp,
        routes: vec![route],
    }
}

/// Leaves in a proxy's folder what it comes up with.
fn prepare(
    cluster: &Cluster,
    dir: &Path,
    node: u64,
    listen: SocketAddr,
    other: (u64, SocketAddr),
    listeners: Vec<Listener>,
) {
    let (other, addr) = other;
    let table = Table {
        revision: 1,
        listeners,
        mesh: Some(Mesh {
            node,
            listen,
            peers: vec![MeshPeer { node: other, addr }],
            ticket: None,
            ticket_key: None,
            removed: Vec::new(),
            believed_cas: None,
        }),
        ..Table::empty()
    };
    let folder = dir.join("table");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("table.json"), serde_json::to_vec(&table).unwrap()).unwrap();
    let identity = serde_json::to_vec(&cluster.identity(node)).unwrap();
    std::fs::write(folder.join("mesh.json"), identity).unwrap();
}

/// The CA of a cluster.
struct Cluster(CertifiedIssuer<'static, KeyPair>);

impl Cluster {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, CLUSTER_CA_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn identity(&self, node: u64) -> MeshIdentity {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(proxy_uri(NodeId(node)).try_into().unwrap())];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        MeshIdentity {
            key_pem: key.serialize_pem(),
            chain_pem: params.signed_by(&key, &self.0).unwrap().pem(),
            anchors_pem: self.0.pem(),
        }
    }
}

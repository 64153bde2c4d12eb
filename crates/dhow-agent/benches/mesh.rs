//! One stream, small requests and new connections from node to node, through two proxies with TLS between them, beside the
//! same without them, through one proxy, and through two HAProxy with TLS between them where that is installed; then what
//! stalled readers, a reset, thousands of idle connections, a thousand short ones a second and bodies of 5 GiB cost.
//! `cargo bench -p dhow-agent --bench mesh`.
//!
//! One binary in three roles: `proxy` (what the product's binary does under that name), `backend` (a server that answers
//! with what it gets, counts it, or behaves badly), and the measurement. All share the host's cores. With
//! `BENCH_FAR_NETNS`, `BENCH_FAR_IP` and `BENCH_NEAR_IP` the far side is in a network namespace of its own; `bench/network`
//! makes one.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on ends where it stands"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use dhow_agent::proxy::{Backend, Listener, Mesh, MeshIdentity, MeshPeer, Protocol, Route, Table};
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
/// Takes connections and does nothing with them.
const HOLD: &str = "hold";
/// Writes for as long as somebody reads.
const FLOOD: &str = "flood";
/// Resets each connection that has said something.
const RESET: &str = "reset";
/// Speaks HTTP: sends a long body, or takes one and says how long it was.
const WEB: &str = "web";
const KINDS: [&str; 6] = [ECHO, COUNT, HOLD, FLOOD, RESET, WEB];
const STALLED: usize = 5;
const IDLE_CONNECTIONS: usize = 9_000;
const SHORT_TIME: Duration = Duration::from_secs(5);
const SHORT_PER_SECOND: u32 = 1_000;
const BODY_BYTES: u64 = 5 << 30;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("proxy") => std::process::exit(dhow_agent::proxy::main(args)),
        Some("backend") => backend(args.next().unwrap().to_str().unwrap()),
        Some(_) | None => measure(),
    }
}

fn backend(kind: &str) -> ! {
    let listener = TcpListener::bind((far_ip(), 0)).unwrap();
    println!("{}", listener.local_addr().unwrap());
    let mut held = Vec::new();
    loop {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        match kind {
            HOLD => held.push(stream),
            FLOOD => drop(std::thread::spawn(move || flood(stream))),
            WEB => drop(std::thread::spawn(move || web(stream))),
            RESET => {
                let _ = (&stream).read(&mut [0; 64]);
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
            counts_or_echoes => {
                let counts = counts_or_echoes == COUNT;
                std::thread::spawn(move || answer(stream, counts));
            }
        }
    }
}

fn flood(mut stream: TcpStream) {
    while stream.write_all(&[7; 64 << 10]).is_ok() {}
}

/// Headers up to the empty line, or what there is of them.
fn head(stream: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|count| count > 0) {}
    head
}

fn web(stream: TcpStream) {
    let mut reader = BufReader::with_capacity(256 << 10, stream.try_clone().unwrap());
    let mut writer = stream;
    let asked = head(&mut reader);
    if asked.starts_with("GET") {
        let _ = write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
        let _ = std::io::copy(&mut std::io::repeat(7).take(BODY_BYTES), &mut writer);
    } else if asked.starts_with("POST") {
        let taken = std::io::copy(&mut reader.take(BODY_BYTES), &mut std::io::sink()).unwrap();
        let text = taken.to_string();
        let _ = write!(
            writer,
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        );
    }
}

fn answer(mut stream: TcpStream, counts: bool) {
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
}

fn variable_or(name: &str, plain: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| plain.to_owned())
}

fn far_ip() -> IpAddr {
    variable_or("BENCH_FAR_IP", "127.0.0.1").parse().unwrap()
}

fn near_ip() -> IpAddr {
    variable_or("BENCH_NEAR_IP", "127.0.0.1").parse().unwrap()
}

/// A program on the far side.
fn far_command(program: &std::ffi::OsStr) -> Command {
    match std::env::var("BENCH_FAR_NETNS") {
        Ok(name) => {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{name}")).arg(program);
            command
        }
        Err(_) => Command::new(program),
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

fn role(mut command: Command, args: &[&str]) -> Role {
    Role(command.args(args).stdout(Stdio::piped()).spawn().unwrap())
}

fn near_role(args: &[&str]) -> Role {
    role(Command::new(std::env::current_exe().unwrap()), args)
}

fn far_role(args: &[&str]) -> Role {
    role(far_command(std::env::current_exe().unwrap().as_os_str()), args)
}

fn said(server: &mut Role) -> SocketAddr {
    let mut line = String::new();
    let stdout = server.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    line.trim().parse().unwrap()
}

/// A port that nobody has there, as far as this side can tell.
fn free_port(ip: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    SocketAddr::new(ip, listener.local_addr().unwrap().port())
}

/// One way to the backends: an address for each kind of them.
struct Way {
    name: &'static str,
    to: BTreeMap<&'static str, SocketAddr>,
}

impl Way {
    /// With a free port of an address for each.
    fn through(name: &'static str, ip: IpAddr) -> Self {
        let to = KINDS.into_iter().map(|kind| (kind, free_port(ip))).collect();
        Self { name, to }
    }

    fn until_open(&self) {
        for addr in self.to.values() {
            while TcpStream::connect(addr).is_err() {
                std::thread::yield_now();
            }
        }
    }
}

fn measure() -> ExitCode {
    let mut backends = KINDS.map(|kind| (kind, far_role(&["backend", kind])));
    let direct = Way {
        name: "direct",
        to: backends
            .iter_mut()
            .map(|(kind, role)| (*kind, said(role)))
            .collect(),
    };
    let (far_dir, near_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cluster = Cluster::new();
    let (far_mesh, near_mesh) = (free_port(far_ip()), free_port(near_ip()));
    // The proxy of the backends' own node, as a caller on that node has it.
    let one_proxy = Way::through("one proxy", far_ip());
    let far = one_proxy.to.iter().map(|(kind, addr)| {
        let backend = Backend::here(format!("b/{kind}-0@1"), direct.to[kind]);
        listener(*addr, &format!("b/{kind}/main"), vec![backend])
    });
    prepare(
        &cluster,
        far_dir.path(),
        2,
        far_mesh,
        (1, near_mesh),
        far.collect(),
    );
    let two_nodes = Way::through("two nodes", near_ip());
    let near = two_nodes.to.iter().map(|(kind, addr)| {
        let backend = Backend {
            id: format!("b/{kind}-0@1"),
            addr: None,
            node: Some(2),
            draining: false,
            canary: None,
        };
        listener(*addr, &format!("b/{kind}/main"), vec![backend])
    });
    prepare(
        &cluster,
        near_dir.path(),
        1,
        near_mesh,
        (2, far_mesh),
        near.collect(),
    );
    let far = far_role(&["proxy", "--dir", far_dir.path().to_str().unwrap()]);
    let near = near_role(&["proxy", "--dir", near_dir.path().to_str().unwrap()]);
    one_proxy.until_open();
    two_nodes.until_open();
    let pair = HaproxyPair::start(&cluster, near_dir.path(), &direct);
    let mut ways = vec![direct, one_proxy, two_nodes];
    let _pair = pair.map(|(way, roles)| {
        ways.push(way);
        roles
    });
    compare(&ways);
    resets(&ways[2]);
    bodies(&ways[2], [&near, &far]);
    stalls(&ways[2]);
    shorts(&ways[2], [&near, &far]);
    idles(&ways[1], &far);
    drop((near, far, backends));
    ExitCode::SUCCESS
}

/// Two HAProxy of one thread each, with TLS between them.
struct HaproxyPair;

impl HaproxyPair {
    fn start(cluster: &Cluster, dir: &Path, direct: &Way) -> Option<(Way, [Role; 2])> {
        let identity = cluster.identity(2);
        let pem = dir.join("haproxy.pem");
        std::fs::write(&pem, identity.chain_pem.clone() + &identity.key_pem).unwrap();
        let near = Way::through("haproxy", near_ip());
        let plain = "global\n nbthread 1\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n \
                     timeout server 60s\n";
        let (mut near_config, mut far_config) = (plain.to_owned(), plain.to_owned());
        for (kind, addr) in &near.to {
            let (between, backend, pem) = (free_port(far_ip()), direct.to[kind], pem.display());
            near_config +=
                &format!("listen {kind}\n bind {addr}\n server far {between} ssl verify none crt {pem}\n");
            far_config += &format!(
                "listen {kind}\n bind {between} ssl crt {pem} verify optional ca-file {pem} crt-ignore-err all \
                 ca-ignore-err all\n server replica {backend}\n"
            );
        }
        let start = |mut command: Command, name: &str, config: String| {
            let file = dir.join(name);
            std::fs::write(&file, config).unwrap();
            let started = command.args(["-q", "-f"]).arg(file).spawn();
            started.ok().map(Role)
        };
        Command::new("haproxy").arg("-v").output().ok().or_else(|| {
            println!("haproxy is not installed: nothing to compare with");
            None
        })?;
        let far = start(far_command("haproxy".as_ref()), "far.cfg", far_config)?;
        let here = start(Command::new("haproxy"), "near.cfg", near_config)?;
        near.until_open();
        Some((near, [here, far]))
    }
}

/// Whether what the backend resets is a reset here.
fn resets(way: &Way) {
    let mut stream = TcpStream::connect(way.to[RESET]).unwrap();
    stream.write_all(&[7]).unwrap();
    let read = stream.read(&mut [0; 64]);
    let is_reset = read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
    println!("a reset between nodes stays a reset: {is_reset}");
}

/// What long bodies cost both proxies, which pass them on through HTTP.
fn bodies(way: &Way, proxies: [&Role; 2]) {
    let gib = BODY_BYTES >> 30;
    for is_sent in [false, true] {
        let before = proxies.map(resident_mib);
        let mut stream = TcpStream::connect(way.to[WEB]).unwrap();
        let begin = Instant::now();
        let (method, length) = match is_sent {
            true => ("POST", format!("content-length: {BODY_BYTES}\r\n")),
            false => ("GET", String::new()),
        };
        write!(
            stream,
            "{method} / HTTP/1.1\r\nhost: x\r\n{length}connection: close\r\n\r\n"
        )
        .unwrap();
        if is_sent {
            std::io::copy(&mut std::io::repeat(7).take(BODY_BYTES), &mut stream).unwrap();
        }
        let mut reader = BufReader::with_capacity(256 << 10, stream);
        let answer = head(&mut reader);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let taken = match is_sent {
            true => std::io::read_to_string(reader).unwrap().parse().unwrap(),
            false => std::io::copy(&mut reader, &mut std::io::sink()).unwrap(),
        };
        assert_eq!(taken, BODY_BYTES);
        let secs = begin.elapsed().as_secs_f64();
        let most = proxies.map(|role| status_mib(role, "VmHWM:"));
        println!(
            "a body of {gib} GiB by {method} through both nodes in {secs:.1} s: at most {:.0} and {:.0} MiB resident ever, \
             {:.0} and {:.0} before",
            most[0], most[1], before[0], before[1]
        );
    }
}

/// What readers that stall cost others.
fn stalls(way: &Way) {
    let before = median(round_trips(way.to[ECHO]));
    let stalled: Vec<TcpStream> = (0..STALLED)
        .map(|_| TcpStream::connect(way.to[FLOOD]).unwrap())
        .collect();
    // Until the queues between here and there are full.
    std::thread::sleep(Duration::from_secs(2));
    let after = median(round_trips(way.to[ECHO]));
    println!(
        "{STALLED} stalled readers between nodes: a round trip of {after:.1} us, {before:.1} without them (ratio {:.2})",
        after / before
    );
    drop(stalled);
}

/// What short connections cost both proxies.
fn shorts(way: &Way, proxies: [&Role; 2]) {
    let used = || proxies.map(cpu_secs).iter().sum::<f64>();
    let (before, begin) = (used(), Instant::now());
    let mut count = 0u32;
    while begin.elapsed() < SHORT_TIME {
        let due = begin + Duration::from_secs(1) * count / SHORT_PER_SECOND;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut stream = TcpStream::connect(way.to[ECHO]).unwrap();
        request(&mut stream);
        count += 1;
    }
    let secs = begin.elapsed().as_secs_f64();
    println!(
        "{:.0} connections with a request a second between nodes: {:.2} of a core for both proxies",
        f64::from(count) / secs,
        (used() - before) / secs
    );
}

/// What connections that nobody uses cost the proxy.
fn idles(way: &Way, proxy: &Role) {
    let before = resident_mib(proxy);
    let mut open = Vec::with_capacity(IDLE_CONNECTIONS);
    while open.len() < IDLE_CONNECTIONS {
        match TcpStream::connect(way.to[HOLD]) {
            Ok(stream) => open.push(stream),
            Err(error) => {
                println!("after {} idle connections: {error}", open.len());
                break;
            }
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    println!(
        "{} idle connections through one proxy: {:.0} MiB resident, {before:.0} before",
        open.len(),
        resident_mib(proxy)
    );
}

/// The process itself, behind the one that enters a namespace: that has become it.
fn cpu_secs(role: &Role) -> f64 {
    const TICKS_PER_SEC: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", role.0.id())).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_ascii_whitespace()
        .collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS_PER_SEC
}

fn resident_mib(role: &Role) -> f64 {
    status_mib(role, "VmRSS:")
}

fn status_mib(role: &Role, field: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", role.0.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse::<f64>()
        .unwrap()
        / 1024.0
}

/// In turns, so that a busy moment of the host hits all of them; medians.
fn compare(ways: &[Way]) {
    let mut results: Vec<[Vec<f64>; 4]> = ways.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        for (way, results) in ways.iter().zip(&mut results) {
            results[0].push(stream(way.to[COUNT]));
            let mut trips = round_trips(way.to[ECHO]);
            trips.sort_by(f64::total_cmp);
            results[1].push(trips[trips.len() / 2]);
            results[2].push(trips[trips.len() * 99 / 100]);
            results[3].push(connects(way.to[ECHO]));
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
        backends,
        ..Route::default()
    };
    let protocol = match id.contains(WEB) {
        true => Protocol::Http,
        false => Protocol::Tcp,
    };
    Listener::new(addr, protocol, vec![route])
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
            relayed: Vec::new(),
            relays: Vec::new(),
            relay: None,
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

//! One look from where a replica is: into the network of a container, or by a process inside a host program's group.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use dhow_core::ids::ReplicaName;
use dhow_driver::driver::{Driver, DriverResult, ExecRequest};
use dhow_driver::shim::OwnCommand;
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use nix::sched::{CloneFlags, setns};

/// How long a connection, and an answer to a name, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The port of name servers.
const NAME_PORT: u16 = 53;
/// The longest answer without a larger size agreed on.
const ANSWER_MAX_BYTES: usize = 512;

/// What a name server said.
pub enum Asked {
    Addresses(Vec<Ipv4Addr>),
    /// In its own word, such as NXDOMAIN.
    Failed(String),
}

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It was held open, or somebody spoke.
    Open,
    Reset,
    Closed,
    Refused,
    Silent,
}

impl Tried {
    const ALL: [Self; 5] = [Self::Open, Self::Reset, Self::Closed, Self::Refused, Self::Silent];

    fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Silent => "silent",
        }
    }
}

/// Runs a look in the network that a process of this host is in. The thread ends with it.
pub async fn in_network_of<T: Send + 'static>(
    pid: u32,
    look: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, seen) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("dhow-net-check".into());
    thread.spawn(move || {
        let entered = File::open(format!("/proc/{pid}/ns/net"))
            .and_then(|network| setns(network, CloneFlags::CLONE_NEWNET).map_err(io::Error::from));
        // Whoever asked and has gone needs no answer.
        let _ = sender.send(entered.and_then(|()| look()));
    })?;
    seen.await.map_err(io::Error::other)?
}

/// Asks a name server for the addresses of a name. Blocks.
pub fn look_up(server: Ipv4Addr, name: &str) -> io::Result<Asked> {
    let name = Name::from_ascii(format!("{name}.")).map_err(io::Error::other)?;
    let mut question = Message::query();
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(name, RecordType::A));
    let bytes = question.to_vec().map_err(io::Error::other)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    socket.connect((server, NAME_PORT))?;
    socket.send(&bytes)?;
    let mut answer = [0; ANSWER_MAX_BYTES];
    let count = socket.recv(&mut answer)?;
    let answer = Message::from_vec(answer.get(..count).unwrap_or_default()).map_err(io::Error::other)?;
    if answer.metadata.id != question.metadata.id {
        return Err(io::Error::other("an answer to another question"));
    }
    match answer.metadata.response_code {
        ResponseCode::NoError => {
            let addresses = answer.answers.iter().filter_map(|record| match &record.data {
                RData::A(address) => Some(address.0),
                _ => None,
            });
            Ok(Asked::Addresses(addresses.collect()))
        }
        code => Ok(Asked::Failed(code.to_str().to_owned())),
    }
}

/// Connects, and watches for a moment what becomes of it. Blocks.
pub fn connect(address: SocketAddr, watch: Duration) -> Tried {
    let mut stream = match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Tried::Refused,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => return Tried::Reset,
        Err(_) => return Tried::Silent,
    };
    // A socket that takes no timeout is read until the other side says something: the proxy's own limits end that.
    let _ = stream.set_read_timeout(Some(watch));
    match stream.read(&mut [0]) {
        Ok(0) => Tried::Closed,
        Ok(_) => Tried::Open,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Tried::Reset,
        Err(_) => Tried::Open,
    }
}

/// The same by a process of a replica, which runs this very binary.
pub async fn from_replica(
    driver: &dyn Driver,
    name: &ReplicaName,
    address: SocketAddr,
    watch: Duration,
) -> DriverResult<Tried> {
    let own = OwnCommand::of_this_binary("net-probe");
    let words = [
        own.program.display().to_string(),
        "net-probe".to_owned(),
        address.to_string(),
        watch.as_millis().to_string(),
    ];
    let session = driver.exec(name, ExecRequest::new(words)).await?;
    let limit = ANSWER_TIMEOUT
        .saturating_add(watch)
        .saturating_add(ANSWER_TIMEOUT);
    let Some(output) = session.finish(ANSWER_MAX_BYTES, limit).await else {
        return Ok(Tried::Silent);
    };
    let output = output?;
    let said = String::from_utf8_lossy(&output.stdout);
    let tried = Tried::ALL.into_iter().find(|tried| tried.word() == said.trim());
    // One that could not even run has connected to nobody.
    Ok(tried.unwrap_or(Tried::Silent))
}

/// The verb that [`from_replica`] runs: `ADDRESS WATCH_MS`.
pub fn main(mut args: impl Iterator<Item = std::ffi::OsString>) -> i32 {
    let mut next = || args.next()?.into_string().ok();
    let address = next().and_then(|text| text.parse().ok());
    let watch_ms = next().and_then(|text| text.parse().ok());
    let (Some(address), Some(watch_ms)) = (address, watch_ms) else {
        return 2;
    };
    let tried = connect(address, Duration::from_millis(watch_ms));
    match writeln!(io::stdout(), "{}", tried.word()) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

//! What a proxy may do: everything at its start, almost nothing afterwards, and port 80 nevertheless.

use std::collections::BTreeMap;
use std::io::{IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use dhow_agent::proxy::Table;
use hyper::Method;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::backend::BackendProcess;
use crate::load::{Client, Load};
use crate::test_host::{TestHost, free_port, table};

crate::tests! {
    an_older_root_proxy_hands_port_80_over,
    others_may_not_speak_with_it,
}

const STEP_REQUESTS: u64 = 200;

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: it needs root");
    }
    is_root
}

fn status_of(pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pairs = text.lines().filter_map(|line| line.split_once(":\t"));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// A proxy of an earlier version, as far as its successor sees it: it serves as root, and says on its control socket
/// what that version said.
struct Older {
    serving: JoinHandle<()>,
    control: std::thread::JoinHandle<Vec<Value>>,
}

impl Older {
    async fn start(host: &TestHost, table: &Table) -> Self {
        let addr = table.listeners[0].addr;
        let listener = TcpListener::bind(addr).await.unwrap();
        let dir = host.proxy_dir();
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("table.json"), serde_json::to_vec(table).unwrap()).unwrap();
        // Its path is too long for a socket's address.
        let folder = std::fs::File::open(&dir).unwrap();
        let socket =
            UnixListener::bind(format!("/proc/self/fd/{}/proxy.0.sock", folder.as_raw_fd())).unwrap();
        let descriptor = listener.as_raw_fd();
        let hand_over = json!({ "hand_over": { "table": table, "listeners": [["stream", addr]] } });
        let serving = tokio::spawn(serve(listener));
        let stop = serving.abort_handle();
        let control = std::thread::spawn(move || {
            let (mut stream, _) = socket.accept().unwrap();
            let asked = receive(&mut stream);
            send(&mut stream, &hand_over);
            // The listener that owns it lives until it is told to stop, below.
            let sent = [descriptor];
            let rights = [ControlMessage::ScmRights(&sent)];
            let count = [IoSlice::new(&[1])];
            sendmsg::<()>(stream.as_raw_fd(), &count, &rights, MsgFlags::empty(), None).unwrap();
            let told = receive(&mut stream);
            stop.abort();
            send(&mut stream, &json!("done"));
            vec![asked, told]
        });
        Self { serving, control }
    }
}

async fn serve(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut request = [0; 2048];
            while stream.read(&mut request).await.is_ok_and(|count| count > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nolder";
                stream.write_all(answer).await.unwrap();
            }
        });
    }
}

fn send(stream: &mut UnixStream, body: &Value) {
    let message = serde_json::to_vec(&json!({ "version": 1, "body": body })).unwrap();
    let length = u32::try_from(message.len()).unwrap();
    stream.write_all(&length.to_le_bytes()).unwrap();
    stream.write_all(&message).unwrap();
}

fn receive(stream: &mut UnixStream) -> Value {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut message = vec![0; usize::try_from(u32::from_le_bytes(length)).unwrap()];
    stream.read_exact(&mut message).unwrap();
    serde_json::from_slice::<Value>(&message).unwrap()["body"].clone()
}

async fn an_older_root_proxy_hands_port_80_over(host: Arc<TestHost>) {
    if !is_root() {
        return;
    }
    let backend = BackendProcess::anywhere();
    // An address of this test's own: the others are not in the way, whatever they serve.
    let [a, b] = u16::try_from(std::process::id() % 65_000).unwrap().to_be_bytes();
    let at = |port| SocketAddr::from(([127, 80, a, b.max(1)], port));
    let mut wanted = table(1, at(80), &[("a", backend.addr)]);
    let older = Older::start(&host, &wanted).await;
    let gets = Load::start(at(80), &Method::GET, "/", 8);
    gets.further(STEP_REQUESTS).await;
    let proxy = host.open("1").await;
    gets.further(STEP_REQUESTS).await;
    assert_eq!(gets.finish().await, BTreeMap::new());
    assert_eq!(
        older.control.join().unwrap(),
        [json!("hand_over"), json!("took_over")]
    );
    assert!(older.serving.await.unwrap_err().is_cancelled());
    assert_eq!(
        Client::new(at(80)).get("/").await.unwrap(),
        backend.pid().to_string()
    );
    // It can do little, and bind a port of root's nevertheless.
    let pid = proxy.pid().await.unwrap();
    let status = status_of(pid);
    let uid: u32 = status["Uid"].split('\t').next().unwrap().parse().unwrap();
    assert!(uid >= 0x7000_0000, "{}", status["Uid"]);
    assert_eq!(status["Uid"], vec![uid.to_string(); 4].join("\t"));
    assert_eq!(status["Groups"].trim(), "");
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(status[set], "0000000000000400", "{set}");
    }
    assert_eq!(
        (status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()),
        ("1", "2")
    );
    wanted.revision = 2;
    wanted
        .listeners
        .extend(table(2, at(81), &[("a", backend.addr)]).listeners);
    let applied = proxy.apply(wanted).await.unwrap();
    assert_eq!(applied.listeners, vec![(at(80), Ok(())), (at(81), Ok(()))]);
    assert_eq!(
        Client::new(at(81)).get("/").await.unwrap(),
        backend.pid().to_string()
    );
    // Its table lies in a folder that is its own, in one that is not.
    let owner = |name: &str| std::fs::metadata(host.proxy_dir().join(name)).unwrap().uid();
    assert_eq!(
        (owner("table/table.json"), owner("table"), owner("")),
        (uid, uid, 0)
    );
    assert!(!host.proxy_dir().join("table.json").exists());
}

async fn others_may_not_speak_with_it(host: Arc<TestHost>) {
    if !is_root() {
        return;
    }
    let backend = BackendProcess::anywhere();
    let addr = free_port();
    let proxy = host.open("1").await;
    proxy.apply(table(1, addr, &[("a", backend.addr)])).await.unwrap();
    // Somebody to whom the way to the socket was opened by mistake.
    let socket = host.proxy_dir().join("proxy.1.sock");
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    open(&socket);
    open(&host.proxy_dir());
    let folder = std::fs::File::open(host.proxy_dir()).unwrap();
    let answered = std::thread::spawn(move || {
        // This thread alone is somebody else from here on.
        let path = format!("/proc/self/fd/{}/proxy.1.sock", folder.as_raw_fd());
        let mut stream = as_nobody(|| UnixStream::connect(path)).unwrap();
        // It may be closed before or after this.
        let _ = stream
            .write_all(&[2, 0, 0, 0])
            .and_then(|()| stream.write_all(b"{}"));
        stream.read(&mut [0; 16]).unwrap_or(0)
    });
    assert_eq!(answered.join().unwrap(), 0, "nothing is said to it");
    assert_eq!(proxy.status().await.unwrap().revision, 1);
}

/// Does something with the rights of nobody, on a thread that ends soon.
pub fn as_nobody<T>(work: impl FnOnce() -> T) -> T {
    // Of the calling thread alone, unlike what the C library does.
    let nobody: nix::libc::c_long = 65_534;
    // SAFETY: no memory is passed.
    let changed = unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, -1, nobody, -1) };
    assert_eq!(changed, 0);
    work()
}

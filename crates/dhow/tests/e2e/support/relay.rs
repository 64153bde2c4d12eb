//! A way into a node that takes its time: what others send to its ports goes through here, and so does what it answers.
//! The kernel has nothing that delays packets everywhere, so this delays what connections carry.
//!
//! It lives in the node's network namespace, where the firewall hands it what comes in. Connections that the node itself
//! makes go through the relay of the other.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};

/// How often those who wait look whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Pieces on their way on one connection.
const PIECES_MAX: usize = 4_096;

/// The relay of one node: threads that carry the bytes of connections to its ports, each after the delay that the test
/// has set.
pub struct Relay {
    shared: Arc<RelaySwitches>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct RelaySwitches {
    delay_ms: AtomicU64,
    has_ended: AtomicBool,
}

impl Relay {
    /// Takes connections at the first of each pair of ports and makes them at the second of this address.
    pub fn new(namespace: &str, addr: &str, ports: &[(u16, u16)]) -> Self {
        let shared = Arc::new(RelaySwitches::default());
        let spawn = |&(from, to): &(u16, u16)| {
            let shared = Arc::clone(&shared);
            let file = format!("/run/netns/{namespace}");
            let target: SocketAddr = format!("{addr}:{to}").parse().unwrap();
            let (ready, is_ready) = sync_channel(1);
            let accepting = thread::spawn(move || {
                // Only this thread moves, and those that it starts.
                setns(File::open(file).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
                let listener = TcpListener::bind(("0.0.0.0", from)).unwrap();
                ready.send(()).unwrap();
                accept(&listener, target, &shared);
            });
            is_ready.recv().unwrap();
            accepting
        };
        let threads = ports.iter().map(spawn).collect();
        Self { shared, threads }
    }

    /// How long everything takes from now on, each way.
    pub fn delay(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap();
        self.shared.delay_ms.store(ms, Ordering::Relaxed);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        // A thread that failed has said so.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, shared: &Arc<RelaySwitches>) {
    listener.set_nonblocking(true).unwrap();
    let mut pumps: Vec<JoinHandle<()>> = Vec::new();
    while !shared.has_ended.load(Ordering::Relaxed) {
        pumps.retain(|pump| !pump.is_finished());
        match listener.accept() {
            Ok((outer, _)) => pumps.extend(join_up(outer, target, shared)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK_EVERY),
            Err(_) => break,
        }
    }
    pumps.into_iter().for_each(|pump| drop(pump.join()));
}

/// Two directions with two threads each. A node that does not listen is as if it refused.
fn join_up(outer: TcpStream, target: SocketAddr, shared: &Arc<RelaySwitches>) -> Vec<JoinHandle<()>> {
    let Ok(inner) = TcpStream::connect(target) else {
        return Vec::new();
    };
    for stream in [&outer, &inner] {
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LOOK_EVERY)).unwrap();
    }
    let ways = [
        (outer.try_clone().unwrap(), inner.try_clone().unwrap()),
        (inner, outer),
    ];
    let pumps = ways.into_iter().flat_map(|(from, to)| {
        let (pieces, arriving) = sync_channel(PIECES_MAX);
        let (taking, giving) = (Arc::clone(shared), Arc::clone(shared));
        [
            thread::spawn(move || take(from, &pieces, &taking)),
            thread::spawn(move || give(to, &arriving, &giving)),
        ]
    });
    pumps.collect()
}

type Piece = (Instant, Vec<u8>);

fn take(mut from: TcpStream, pieces: &SyncSender<Piece>, shared: &RelaySwitches) {
    let mut buffer = vec![0; 64 * 1024];
    while !shared.has_ended.load(Ordering::Relaxed) {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let delay = Duration::from_millis(shared.delay_ms.load(Ordering::Relaxed));
                let piece = (Instant::now() + delay, buffer[..count].to_vec());
                if pieces.send(piece).is_err() {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

fn give(mut to: TcpStream, pieces: &Receiver<Piece>, shared: &RelaySwitches) {
    while !shared.has_ended.load(Ordering::Relaxed) {
        match pieces.recv_timeout(LOOK_EVERY) {
            Ok((due, bytes)) => {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // The other end may have gone already.
    let _ = to.shutdown(Shutdown::Write);
}

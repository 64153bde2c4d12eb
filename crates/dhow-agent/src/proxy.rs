//! The node's load balancer: a process of its own that outlives the daemon, and the daemon's client for it.
//!
//! ```text
//!  daemon ── ProxyClient ──Unix socket──▶ proxy ──▶ replicas
//!                │                          ▲ clients
//!                └── shim (starts it, keeps its log and exit)
//! ```
//!
//! The daemon says what shall be served with one [`Table`], whole each time; the proxy changes what differs and keeps
//! the last one on disk. A proxy of another build takes the listeners over from the one that runs, without a connection
//! refused. The proxy must never decide who is healthy: for a moment it passes over a backend that refuses connections,
//! and all else it learns from the daemon.

mod access_log;
mod backend;
mod backends;
mod balancer;
mod bind;
mod buffers;
mod canary;
mod client;
mod connect;
mod control;
mod descriptors;
mod dns;
mod error;
mod http;
mod idle;
mod idle_clients;
mod judge;
mod kept_sockets;
mod limits;
mod listener;
mod log_queue;
mod mesh;
mod meters;
mod plain_path;
mod port_owner;
mod predecessor;
mod privileges;
mod process;
mod protocol;
mod proxy_header;
mod reach;
mod relay;
mod routes;
mod service_sockets;
mod shared_stream;
mod sock_diag;
mod socket;
mod store;
mod table;
mod tcp;
mod tls;
mod udp;
mod wants;

use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

use log_queue::LogQueue;

pub use client::{ProxyClient, ProxyConfig, Wanted};
pub use error::ProxyError;
pub use mesh::MeshIdentity;
pub use process::main;
pub use protocol::{Applied, BackendStatus, ListenerStatus, Status};
pub use store::load as saved_table;
pub(crate) use table::{ASLEEP_MAX, OnDemand, WantedService};
pub use table::{
    Allowed, Backend, Caller, Canary, Dns, EndpointRule, Expose, Listener, Mesh, MeshPeer, NamedEndpoint,
    NamedReplica, NamedService, Names, ProcessCaller, Protocol, RelayDuty, RelayedPeer, Route, Rule, Table,
    TableError, TicketKey, Transport, Trusted,
};
pub use tls::{GivenCertificates, RefusedCertificate};

pub(crate) use bind::taken_beside;
pub(crate) use http::BACKEND_WAIT;
pub(crate) use table::{Peer, REMOVED_MAX};

/// The thread that writes the proxy's log, once there may be threads.
static NOTES: OnceLock<LogQueue> = OnceLock::new();
/// How long a proxy that ends waits for its last lines.
const LAST_NOTES_TIMEOUT: Duration = Duration::from_secs(1);

/// A line in the proxy's log, which its shim keeps. A log that cannot be written must not end the proxy, and nobody who is
/// served waits for it.
fn note(text: &str) {
    match NOTES.get() {
        Some(notes) => notes.write(text.to_owned()),
        None => {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }
}

/// Has a thread write notes from now on. Before this the process has one thread, and nobody to keep waiting.
fn begin_notes() {
    if let Ok(notes) = LogQueue::start("proxy", std::io::stderr()) {
        // It is begun once.
        let _ = NOTES.set(notes);
    }
}

/// Has what was noted written, before the process ends.
fn end_notes() {
    if let Some(notes) = NOTES.get() {
        notes.flush(LAST_NOTES_TIMEOUT);
    }
}

#[cfg(test)]
mod tests;

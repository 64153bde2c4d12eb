//! Tunnels between the proxies of two and three nodes in one process, each with a certificate of a test's cluster.

mod datagrams;
mod hostile;
mod http;
pub(in crate::proxy) mod nodes;
mod refused;
mod relayed;
mod silence;
mod streams;

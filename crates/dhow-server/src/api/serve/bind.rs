//! Opens the listeners.

use super::error::BindError;
use super::unix_socket;
use super::{Bound, Listeners};
use crate::net::tcp;

/// Opens all or none.
pub async fn bind(listeners: &Listeners) -> Result<Bound, BindError> {
    let mut opened = Vec::with_capacity(listeners.tcp.len());
    for addr in &listeners.tcp {
        if listeners.tls.is_none() && !addr.ip().is_loopback() {
            return Err(BindError::NotLoopback { addr: *addr });
        }
        let bound = tcp::listen(*addr);
        opened.push(bound.map_err(|cause| BindError::Tcp { addr: *addr, cause })?);
    }
    let unix = match &listeners.socket {
        Some(path) => Some(unix_socket::bind(path, listeners.socket_group).await?),
        None => None,
    };
    let tls = listeners.tls.clone();
    Ok(Bound {
        unix,
        tcp: opened,
        tls,
        tunnels: None,
    })
}

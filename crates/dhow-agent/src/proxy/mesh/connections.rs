//! The open connections with one node, so that all of them can be cut at once and no node has more than its share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown, sockopt};
use tokio::net::TcpStream;

/// With one node in one direction: as many as one listener may have clients.
pub const CONNECTIONS_MAX: usize = crate::proxy::limits::LISTENER_CONNECTIONS_MAX;

/// The connections with one node in one direction.
#[derive(Default)]
pub struct Connections {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    sockets: HashMap<u64, Weak<TcpStream>>,
}

/// A connection's place among them, until it is dropped.
pub struct Registered {
    among: Arc<Connections>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.among.lock().sockets.remove(&self.number);
    }
}

impl Connections {
    /// `None` where there are too many.
    pub fn add(self: &Arc<Self>, socket: &Arc<TcpStream>) -> Option<Registered> {
        let mut open = self.lock();
        if open.sockets.len() >= CONNECTIONS_MAX {
            return None;
        }
        open.next += 1;
        let number = open.next;
        open.sockets.insert(number, Arc::downgrade(socket));
        drop(open);
        Some(Registered {
            among: Arc::clone(self),
            number,
        })
    }

    pub fn count(&self) -> usize {
        self.lock().sockets.len()
    }

    /// Ends all of them: whoever reads or writes one finds it broken.
    pub fn cut(&self) {
        let sockets: Vec<_> = self.lock().sockets.values().filter_map(Weak::upgrade).collect();
        for socket in sockets {
            // One that is closed already needs nothing.
            let _ = sockopt::set_socket_linger(&*socket, Some(Duration::ZERO));
            let _ = shutdown(&*socket, Shutdown::Both);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing that runs under the lock leaves the map half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What the daemon tells the service manager that started it, as systemd does: that it serves, how it is, that it lives
//! and that it ends. Where nobody asks (`NOTIFY_SOCKET` is not set) nothing is sent.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Where the service manager listens, as it says itself.
const ADDRESS_VARIABLE: &str = "NOTIFY_SOCKET";

/// For how many microseconds the service manager allows silence.
const SILENCE_VARIABLE: &str = "WATCHDOG_USEC";

/// Signs of life within the time that is allowed without one: a late one must not cost the daemon.
const SIGNS: u32 = 3;

/// The daemon serves; `status` is what `systemctl status` shows.
pub fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={status}\n"));
}

/// The daemon ends in order.
pub fn stopping() {
    tell("STOPPING=1\n");
}

/// Sends signs of life until `cancel`, where the unit asks for them. They come from a task among all others: a runtime that
/// is stuck sends none.
pub fn keep_alive(cancel: CancellationToken) {
    let Some(allowed_us) = env::var(SILENCE_VARIABLE).ok().and_then(|text| text.parse().ok()) else {
        return;
    };
    let period = sign_every(Duration::from_micros(allowed_us));
    tokio::spawn(async move {
        loop {
            tell("WATCHDOG=1\n");
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(period) => {}
            }
        }
    });
}

fn sign_every(allowed: Duration) -> Duration {
    (allowed / SIGNS).max(Duration::from_millis(1))
}

/// Never waits: what a manager that does not read has no room for is left out.
fn tell(message: &str) {
    let Some(address) = env::var_os(ADDRESS_VARIABLE) else {
        return;
    };
    if let Err(error) = send(address.as_bytes(), message) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// An address that begins with `@` is a name without a file.
fn send(address: &[u8], message: &str) -> io::Result<()> {
    let address = match address.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(address))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_leave_room_for_late_ones() {
        assert_eq!(sign_every(Duration::from_secs(60)), Duration::from_secs(20));
        assert!(!sign_every(Duration::ZERO).is_zero(), "no loop without a pause");
    }
    #[test]
    fn a_manager_that_does_not_read_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify.sock");
        let manager = UnixDatagram::bind(&path).unwrap();
        let address = path.as_os_str().as_bytes();
        send(address, "READY=1\n").unwrap();
        let full = (0..100_000).find_map(|_| send(address, "WATCHDOG=1\n").err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
        let mut heard = [0; 64];
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1\n");
    }

    #[test]
    fn a_name_without_a_file_is_reached() {
        let name = format!("dhow-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(format!("@{name}").as_bytes(), "STOPPING=1\n").unwrap();
        let mut heard = [0; 64];
        assert_eq!(manager.recv(&mut heard).unwrap(), b"STOPPING=1\n".len());
    }
}

//! The ports of the bridge, and the hardware address that each may send with. It follows from the port's number, and is
//! written into the bridge's table of addresses. The bridge learns nothing from what containers send, and sends to a
//! container only what is addressed to it: nobody can draw another's traffic to itself.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};

use super::Addresses;
use super::bridge::Settings;
use super::mac::Mac;
use super::netlink::{Link, Netlink};

/// The address of a port that does not follow from its number: an earlier version made the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlierPort {
    pub number: u32,
    pub mac: Mac,
}

/// Gives every port that is there its one entry in the bridge's table, and gives those that an earlier version made. A
/// port without an entry says itself what it has, for the last time: from then on the entry says it. Blocks.
pub(super) fn settle(
    settings: &Settings,
    pins: &Path,
    addresses: &Addresses,
) -> Result<Vec<EarlierPort>, String> {
    let failed = |doing: &str, error: &dyn fmt::Display| format!("{doing}: {error}");
    let mut netlink = Netlink::open().map_err(|error| failed("opening a netlink socket", &error))?;
    let links = netlink
        .links()
        .map_err(|error| failed("listing network devices", &error))?;
    let entries = netlink
        .static_entries()
        .map_err(|error| failed("listing the bridge's addresses", &error))?;
    let taken = addresses
        .taken()
        .map_err(|error| failed("listing addresses", &error))?;
    let mut known: Vec<EarlierPort> = Vec::new();
    let mut unknown: Vec<(u32, u32, PathBuf)> = Vec::new();
    for link in &links {
        let Some(number) = settings.device_number(&link.name) else {
            continue;
        };
        if let Some((_, mac)) = entries.iter().find(|(index, _)| *index == link.index) {
            known.push(EarlierPort { number, mac: *mac });
        } else if let Some((_, owner)) = taken.iter().find(|(found, _)| *found == number) {
            unknown.push((number, link.index, pins.join(owner)));
        }
    }
    if !unknown.is_empty() {
        let said = said_inside(unknown.iter().map(|(_, _, pin)| pin.clone()).collect());
        for ((number, index, _), mac) in unknown.into_iter().zip(said) {
            let usual = settings.mac(number);
            // One that is somebody else's is nobody's here: the port then has what follows from its number.
            let is_anothers = |mac: Mac| {
                settings.is_ours(mac)
                    || links.iter().any(|link| link.mac == Some(mac))
                    || known.iter().any(|port| port.mac == mac)
            };
            let mac = mac.filter(|mac| !is_anothers(*mac)).unwrap_or(usual);
            // One that is gone by now needs nothing.
            if netlink.settle_port(index, mac, None).is_ok() {
                known.push(EarlierPort { number, mac });
            }
        }
    }
    known.retain(|port| port.mac != settings.mac(port.number));
    Ok(known)
}

/// What the devices in these namespaces say that their address is, on a thread of its own, which goes there.
fn said_inside(pins: Vec<PathBuf>) -> Vec<Option<Mac>> {
    let count = pins.len();
    let look = |pin: &PathBuf| -> io::Result<Option<Mac>> {
        setns(File::open(pin)?, CloneFlags::CLONE_NEWNET)?;
        let links: Vec<Link> = Netlink::open()?.links()?;
        let inside = links.into_iter().find(|link| link.name == "eth0");
        Ok(inside.and_then(|link| link.mac))
    };
    let thread = std::thread::Builder::new().name("dhow-netns".into());
    let work = move || pins.iter().map(|pin| look(pin).ok().flatten()).collect();
    let said = thread.spawn(work).map(std::thread::JoinHandle::join);
    match said {
        Ok(Ok(said)) => said,
        Ok(Err(_)) | Err(_) => vec![None; count],
    }
}

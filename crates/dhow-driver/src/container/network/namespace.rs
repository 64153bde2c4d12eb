//! A replica's network namespace, kept alive by a mount of it at a file. Made on a thread of its own, which
//! moves into it and ends: no other thread of the daemon ever changes its namespace.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::Subnet;
use super::mac::Mac;
use super::netlink::{Netlink, Veth};

/// What a replica's network is made of, or the proxy's.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub veth: String,
    pub bridge: u32,
    /// Of the device inside.
    pub mac: Mac,
    pub address: Ipv4Addr,
    pub prefix_length: u8,
    pub mtu: Option<u32>,
    pub ways: Ways,
}

/// Where what is sent inside goes.
#[derive(Clone, Debug)]
pub(super) enum Ways {
    /// To the host and by it to everywhere; to services by the proxy, where there is one. Other replicas are then out
    /// of reach but by the proxy.
    Replica {
        gateway: Ipv4Addr,
        services: Option<(Subnet, Ipv4Addr)>,
    },
    /// Nowhere but to the bridge, and every address of the range is here.
    Proxy { range: Subnet },
}

/// A step that failed, in words, and why.
pub(super) type Failed = (&'static str, io::Error);

/// The loopback device has number 1 in every namespace.
const LOOPBACK: u32 = 1;

/// Makes the namespace at `pin` with its device, address and route. Blocks. On failure the caller removes what
/// is there.
pub(super) fn make(pin: &Path, plan: &Plan) -> Result<(), Failed> {
    let work = || {
        let mut host = Netlink::open().map_err(|error| ("opening a netlink socket", error))?;
        File::create(pin).map_err(|error| ("making the file of its namespace", error))?;
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| ("making a network namespace", errno.into()))?;
        let own = "/proc/thread-self/ns/net";
        mount(Some(own), pin, None::<&Path>, MsFlags::MS_BIND, None::<&Path>)
            .map_err(|errno| ("mounting its network namespace", errno.into()))?;
        let namespace = File::open(own).map_err(|error| ("opening its network namespace", error))?;
        let mut inside =
            Netlink::open().map_err(|error| ("opening a netlink socket in its namespace", error))?;
        let veth = Veth {
            name: &plan.veth,
            bridge: plan.bridge,
            namespace: namespace.as_raw_fd(),
            mac: plan.mac,
            mtu: plan.mtu,
        };
        host.add_veth(&veth)
            .map_err(|error| ("making its network device", error))?;
        // Nothing runs inside yet.
        settle(&mut host, plan).map_err(|error| ("keeping it apart from other replicas", error))?;
        inside
            .set_up(LOOPBACK)
            .map_err(|error| ("switching its loopback device on", error))?;
        let device = inside
            .find_link("eth0")
            .and_then(|found| found.ok_or_else(|| io::ErrorKind::NotFound.into()));
        let device = device.map_err(|error| ("finding its network device", error))?;
        inside
            .set_up(device)
            .map_err(|error| ("switching its network device on", error))?;
        inside
            .add_address(device, plan.address, plan.prefix_length)
            .map_err(|error| ("giving it its address", error))?;
        match &plan.ways {
            Ways::Replica { gateway, services } => {
                inside
                    .add_default_route(*gateway)
                    .map_err(|error| ("giving it a route to the host", error))?;
                let Some((range, proxy)) = services else {
                    return Ok(());
                };
                inside
                    .add_route(*range, *proxy)
                    .map_err(|error| ("giving it a route to services", error))
            }
            Ways::Proxy { range } => {
                open_ports();
                inside
                    .add_local_range(*range, LOOPBACK)
                    .map_err(|error| ("giving it the addresses of services", error))
            }
        }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("dhow-netns".into());
        let thread = thread
            .spawn_scoped(scope, work)
            .map_err(|error| ("starting a thread", error))?;
        let panicked = |_| ("a thread", io::Error::other("it panicked"));
        thread.join().map_err(panicked)?
    })
}

/// Fixes who is behind its port; replicas that reach services by the proxy reach nobody else.
fn settle(host: &mut Netlink, plan: &Plan) -> io::Result<()> {
    let port = host.find_link(&plan.veth)?.ok_or(io::ErrorKind::NotFound)?;
    let isolated = match &plan.ways {
        Ways::Replica { services, .. } => services.is_some(),
        Ways::Proxy { .. } => false,
    };
    host.settle_port(port, plan.mac, Some(isolated))
}

/// Lets whoever is inside listen on every port, for this thread's namespace. Where that cannot be written, the proxy
/// needs the right to.
fn open_ports() {
    let _ = fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

/// Lets the namespace go. Not being there is fine.
pub(super) fn remove(pin: &Path) -> io::Result<()> {
    // Mounted more than once only if somebody else did.
    while umount2(pin, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW).is_ok() {}
    match fs::remove_file(pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

//! The replicas' network: one bridge per data directory, a namespace and a pair of devices per replica.
//!
//! Used by the container driver alone. Nothing is kept in memory: the bridge's name and subnet are in the data
//! directory, who has which address is in a folder, and a device is named after its address, so that any
//! later daemon can clear up. It never touches a device, rule or address that it did not make, and holds no
//! lock over slow work.

mod addresses;
mod bridge;
mod guard;
mod keeper;
mod mac;
mod namespace;
mod netlink;
mod outgoing;
mod ports;
mod services;
mod subnet;

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::OnceCell;

use crate::driver::Cause;
use crate::shim::stop::blocking;

use addresses::Addresses;
use bridge::Bridge;
use keeper::{Keeper, Kept};
use netlink::Netlink;
pub use services::ServiceNetwork;
pub use subnet::{Subnet, SubnetError};

/// How replicas are connected. All of it may be left to be derived from the data directory.
#[derive(Clone, Debug, Default)]
pub struct BridgeConfig {
    /// At most 15 characters; derived from the data directory by default.
    pub name: Option<String>,
    /// Chosen among `10.88.0.0/14` by default, where the host has no network yet, and kept from then on.
    pub subnet: Option<Subnet>,
    /// Of every device; the kernel's 1500 by default.
    pub mtu: Option<u32>,
    /// The addresses of services, which containers reach by the proxy. Without it they have no names, and containers
    /// reach each other by their own addresses.
    pub services: Option<Subnet>,
    /// The user that the proxy is: beside root, it alone of this host's users calls containers by their own addresses.
    pub proxy_user: Option<u32>,
}

impl BridgeConfig {
    /// The users of this host who may call containers by their own addresses.
    fn callers(&self) -> Vec<u32> {
        let mut callers = vec![0, nix::unistd::geteuid().as_raw()];
        callers.extend(self.proxy_user);
        callers.sort_unstable();
        callers.dedup();
        callers
    }
}

/// The network of one driver.
#[derive(Debug)]
pub(super) struct Network {
    config: BridgeConfig,
    data_dir: PathBuf,
    /// Where namespaces are mounted.
    pins: PathBuf,
    addresses: Addresses,
    bridge: OnceCell<Bridge>,
    /// Made with the bridge; or why services are not reached by name.
    services: OnceCell<Result<ServiceNetwork, String>>,
    /// The proxy's port, once rules say who may send with which address.
    guarded: Arc<OnceLock<u32>>,
    /// Looks after the rules, from the bridge on.
    keeper: Mutex<Option<Keeper>>,
}

/// The number that a replica has on the bridge, and the address that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplicaAddress {
    pub number: u32,
    pub address: Ipv4Addr,
}

impl Network {
    pub fn open(config: BridgeConfig, data_dir: &Path, volatile: &Path) -> Result<Self, Cause> {
        let pins = volatile.join("netns");
        std::fs::create_dir_all(&pins).map_err(Cause::file("making", &pins))?;
        Ok(Self {
            config,
            data_dir: data_dir.to_owned(),
            pins,
            addresses: Addresses::open(volatile.join("addresses"))?,
            bridge: OnceCell::new(),
            services: OnceCell::new(),
            guarded: Arc::default(),
            keeper: Mutex::default(),
        })
    }

    /// The way to services, made at the first call, after the bridge; or why this host has none. `None` where nobody
    /// asked for one.
    pub async fn services(&self) -> Result<Option<&Result<ServiceNetwork, String>>, Cause> {
        let Some(range) = self.config.services else {
            return Ok(None);
        };
        let bridge = self.bridge().await?;
        let make = || async {
            let (bridge, mtu) = (bridge.clone(), self.config.mtu);
            let (pins, addresses) = (self.pins.clone(), self.addresses.clone());
            let guarded = Arc::clone(&self.guarded);
            blocking(move || Ok(services::make(&bridge, range, &pins, &addresses, mtu, &guarded))).await
        };
        self.services.get_or_try_init(make).await.map(Some)
    }

    /// The same for who has waited for it before.
    pub fn ready_services(&self) -> Option<&ServiceNetwork> {
        self.services.get()?.as_ref().ok()
    }

    /// The bridge, made at the first call.
    pub async fn bridge(&self) -> Result<&Bridge, Cause> {
        let make = || async {
            let (config, data_dir) = (self.config.clone(), self.data_dir.clone());
            let bridge = blocking(move || Bridge::make(&config, &data_dir)).await?;
            if bridge.by_nft {
                self.keep(&bridge);
            }
            Ok(bridge)
        };
        self.bridge.get_or_try_init(make).await
    }

    /// Has the rules looked after from now on.
    fn keep(&self, bridge: &Bridge) {
        let kept = Kept {
            settings: bridge.settings().clone(),
            callers: self.config.callers(),
            pins: self.pins.clone(),
            addresses: self.addresses.clone(),
            proxy: Arc::clone(&self.guarded),
        };
        match Keeper::start(kept) {
            Ok(keeper) => *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeper),
            Err(error) => tracing::warn!(%error, "nobody looks after the rules of the containers' bridge"),
        }
    }

    /// The same for who has waited for it before.
    pub fn ready_bridge(&self) -> Result<&Bridge, Cause> {
        self.bridge
            .get()
            .ok_or_else(|| failed("finding the bridge")(io::ErrorKind::NotFound.into()))
    }

    pub fn pin(&self, id: &str) -> PathBuf {
        self.pins.join(id)
    }

    /// Gives a replica its place: an address, a namespace, a device. Blocks. On failure nothing is left.
    pub fn connect(&self, bridge: &Bridge, id: &str) -> Result<ReplicaAddress, Cause> {
        let number = self.addresses.take(id, bridge.subnet())?;
        let made = self.make(bridge, id, number);
        if made.is_err() {
            // The first failure is the one to tell.
            let _ = self.disconnect(id);
        }
        made
    }

    fn make(&self, bridge: &Bridge, id: &str, number: u32) -> Result<ReplicaAddress, Cause> {
        let address = bridge.subnet().address(number);
        let address = address.ok_or_else(|| no_address(bridge.subnet()))?;
        let plan = namespace::Plan {
            veth: bridge.device_name(number),
            bridge: bridge.index()?,
            mac: bridge.settings().mac(number),
            address,
            prefix_length: bridge.subnet().prefix_length(),
            mtu: self.config.mtu,
            ways: namespace::Ways::Replica {
                gateway: bridge.subnet().gateway(),
                services: self.ready_services().map(|found| (found.range, found.address)),
            },
        };
        let pin = self.pin(id);
        match namespace::make(&pin, &plan) {
            Ok(()) => Ok(ReplicaAddress { number, address }),
            Err((doing, source)) => Err(Cause::Network {
                doing: doing.to_owned(),
                source,
            }),
        }
    }

    /// Takes a replica's place away again; none is fine. Blocks.
    pub fn disconnect(&self, id: &str) -> Result<(), Cause> {
        let numbers = self.addresses.of(id)?;
        if let Some(settings) = bridge::settings(&self.config, &self.data_dir)?
            && !numbers.is_empty()
        {
            let mut netlink = Netlink::open().map_err(failed("opening a netlink socket"))?;
            for number in &numbers {
                let name = settings.device_name(*number);
                netlink
                    .delete_link(&name)
                    .map_err(failed("removing its network device"))?;
            }
        }
        namespace::remove(&self.pin(id)).map_err(Cause::file("removing", self.pin(id)))?;
        numbers
            .into_iter()
            .try_for_each(|number| self.addresses.give_back(number))
    }

    /// The address that a replica has.
    pub fn address(&self, id: &str) -> Result<Option<Ipv4Addr>, Cause> {
        let Some(settings) = bridge::settings(&self.config, &self.data_dir)? else {
            return Ok(None);
        };
        let number = match self.addresses.usual(id, settings.subnet) {
            Some(number) => Some(number),
            None => self.addresses.of(id)?.first().copied(),
        };
        Ok(number.and_then(|number| settings.subnet.address(number)))
    }

    /// The ids of all that has a place, whole or in part.
    pub fn ids(&self) -> Result<Vec<String>, Cause> {
        let pins = std::fs::read_dir(&self.pins).map_err(Cause::file("listing", &self.pins))?;
        let mut ids: Vec<String> = pins
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        ids.extend(self.addresses.taken()?.into_iter().map(|(_, owner)| owner));
        // The proxy's place is no replica's.
        ids.retain(|id| id != services::OWNER);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Devices on our bridge whose address nobody has. Blocks.
    pub fn clear_devices(&self) -> Result<(), Cause> {
        match bridge::settings(&self.config, &self.data_dir)? {
            Some(settings) => self.clear_devices_of(&settings),
            None => Ok(()),
        }
    }

    fn clear_devices_of(&self, settings: &bridge::Settings) -> Result<(), Cause> {
        let mut netlink = Netlink::open().map_err(failed("opening a netlink socket"))?;
        let links = netlink.links().map_err(failed("listing network devices"))?;
        let taken = self.addresses.taken()?;
        for link in links {
            let number = settings.device_number(&link.name);
            if number.is_some_and(|number| taken.iter().all(|(found, _)| *found != number)) {
                netlink
                    .delete_link(&link.name)
                    .map_err(failed("removing a network device"))?;
            }
        }
        Ok(())
    }

    /// Removes the bridge and its rules, for the end of all use; where the record has gone with its directory, the one
    /// that was made here. Blocks.
    pub fn remove(&self) -> Result<(), Cause> {
        let made = || self.bridge.get().map(|bridge| bridge.settings().clone());
        let Some(settings) = bridge::settings(&self.config, &self.data_dir)?.or_else(made) else {
            return Ok(());
        };
        drop(self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.disconnect(services::OWNER)?;
        self.clear_devices_of(&settings)?;
        bridge::remove(&settings, &self.data_dir)
    }
}

fn no_address(subnet: Subnet) -> Cause {
    Cause::NoAddress {
        subnet: subnet.to_string(),
        count: subnet.count(),
    }
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> Cause {
    move |source| Cause::Network {
        doing: doing.to_owned(),
        source,
    }
}

/// Fixed for ever, unlike the standard library's: what it gave names devices and addresses. FNV-1a.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

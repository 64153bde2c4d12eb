//! The bridge: its name and subnet, chosen once per data directory, and the device itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::driver::Cause;
use crate::shim::record::{RECORD_VERSION, Record, read_record, write_record};

use super::mac::Mac;
use super::netlink::Netlink;
use super::{BridgeConfig, Subnet, failed, guard, hash, outgoing};

const RECORD_FILE: &str = "network.json";
/// A device's name has 15 characters: 8 for the bridge's own, a dot and up to 5 digits behind them fit.
const DEVICE_PREFIX: &str = "dh";
/// The first byte of an address that no maker of hardware gives out.
const LOCAL_MAC: u8 = 0x02;
/// `10.88.0.0/14` has 256 subnets of 22 bits; a bridge of Linux has 1,023 ports, so that none is larger.
const POOL: u32 = 0x0a58_0000;
const POOL_SUBNETS: u32 = 256;
const POOL_LENGTH: u8 = 22;

/// What was chosen, in the data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::container) struct Settings {
    version: u32,
    pub name: String,
    pub subnet: Subnet,
}

impl Record for Settings {
    fn version(&self) -> u32 {
        self.version
    }
}

/// A bridge that is there and up.
#[derive(Clone, Debug)]
pub(in crate::container) struct Bridge {
    settings: Settings,
    /// What does not work, in words for the operator.
    pub notices: Vec<String>,
    /// Whether nft has its rules.
    pub by_nft: bool,
}

impl Bridge {
    /// Chooses or reads the settings, makes the device. Blocks.
    pub fn make(config: &BridgeConfig, data_dir: &Path) -> Result<Self, Cause> {
        let mut netlink = Netlink::open().map_err(failed("opening a netlink socket"))?;
        let settings = match settings(config, data_dir)? {
            Some(settings) => settings,
            None => choose(&mut netlink, config, data_dir)?,
        };
        ensure(&mut netlink, &settings)?;
        let allowed = outgoing::allow(&settings, &config.callers());
        Ok(Self {
            settings,
            notices: allowed.notices,
            by_nft: allowed.by_nft,
        })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn subnet(&self) -> Subnet {
        self.settings.subnet
    }

    /// The device's number; made anew where somebody removed it.
    pub fn index(&self) -> Result<u32, Cause> {
        let mut netlink = Netlink::open().map_err(failed("opening a netlink socket"))?;
        match netlink
            .find_link(&self.settings.name)
            .map_err(failed("finding the bridge"))?
        {
            Some(index) => Ok(index),
            None => ensure(&mut netlink, &self.settings),
        }
    }

    pub fn device_name(&self, number: u32) -> String {
        self.settings.device_name(number)
    }
}

impl Settings {
    /// The host's end of the device of this number.
    pub fn device_name(&self, number: u32) -> String {
        format!("{}{number}", self.device_prefix())
    }

    /// How the names of all devices of this bridge begin.
    pub fn device_prefix(&self) -> String {
        format!("{}{:06x}.", DEVICE_PREFIX, hash(&self.name) & 0xff_ffff)
    }

    /// The hardware address of whoever is behind the port of this number. A subnet has less than 2^16 numbers.
    pub(super) fn mac(&self, number: u32) -> Mac {
        let [_, _, high, low] = number.to_be_bytes();
        let [a, b, c] = self.mac_prefix();
        Mac([LOCAL_MAC, a, b, c, high, low])
    }

    /// The bridge's own: the last number, which no port has.
    pub(super) fn gateway_mac(&self) -> Mac {
        self.mac(u32::MAX)
    }

    /// Whether an address is one of this bridge's kind.
    pub(super) fn is_ours(&self, mac: Mac) -> bool {
        let [a, b, c] = self.mac_prefix();
        mac.0.starts_with(&[LOCAL_MAC, a, b, c])
    }

    fn mac_prefix(&self) -> [u8; 3] {
        let [.., a, b, c] = hash(&self.name).to_be_bytes();
        [a, b, c]
    }

    #[cfg(test)]
    pub(super) fn of(name: &str, subnet: Subnet) -> Self {
        Self {
            version: RECORD_VERSION,
            name: name.to_owned(),
            subnet,
        }
    }

    /// The number in the name of a device of ours.
    pub fn device_number(&self, device: &str) -> Option<u32> {
        let number = device.rsplit_once('.')?.1.parse().ok()?;
        (self.device_name(number) == device).then_some(number)
    }
}

fn record_path(data_dir: &Path) -> PathBuf {
    data_dir.join(RECORD_FILE)
}

/// What was chosen earlier, unless the configuration says otherwise by now.
pub(super) fn settings(config: &BridgeConfig, data_dir: &Path) -> Result<Option<Settings>, Cause> {
    let path = record_path(data_dir);
    let found: Option<Settings> = read_record(&path).map_err(Cause::file("reading", path))?;
    Ok(found.filter(|settings| {
        config.name.as_ref().is_none_or(|name| *name == settings.name)
            && config.subnet.is_none_or(|subnet| subnet == settings.subnet)
    }))
}

fn choose(netlink: &mut Netlink, config: &BridgeConfig, data_dir: &Path) -> Result<Settings, Cause> {
    let seed = hash(&data_dir.display().to_string());
    let name = config
        .name
        .clone()
        .unwrap_or_else(|| format!("dhow-{:08x}", seed >> 32));
    let subnet = match config.subnet {
        Some(subnet) => subnet,
        None => free_subnet(netlink, seed)?,
    };
    let settings = Settings {
        version: RECORD_VERSION,
        name,
        subnet,
    };
    let path = record_path(data_dir);
    fs::create_dir_all(data_dir).map_err(Cause::file("making", data_dir))?;
    write_record(&path, &settings).map_err(Cause::file("writing", path))?;
    Ok(settings)
}

/// One of the pool that no device of this host is in.
fn free_subnet(netlink: &mut Netlink, seed: u64) -> Result<Subnet, Cause> {
    let used = netlink.addresses().map_err(failed("listing addresses"))?;
    let first = u32::try_from(seed % u64::from(POOL_SUBNETS)).unwrap_or(0);
    let size = 1 << (32 - POOL_LENGTH);
    let candidates = (0..POOL_SUBNETS).filter_map(|step| {
        let base = POOL + (first + step) % POOL_SUBNETS * size;
        Subnet::new(std::net::Ipv4Addr::from_bits(base), POOL_LENGTH)
    });
    let is_free = |subnet: &Subnet| {
        !used
            .iter()
            .any(|found| subnet.overlaps(found.address, found.prefix_length))
    };
    candidates
        .into_iter()
        .find(is_free)
        .ok_or_else(|| Cause::Network {
            doing: "finding a subnet in 10.88.0.0/14 that this host does not use: configure one".to_owned(),
            source: io::ErrorKind::AddrInUse.into(),
        })
}

/// Makes the device if it is not there, gives it its address and switches it on.
fn ensure(netlink: &mut Netlink, settings: &Settings) -> Result<u32, Cause> {
    let exists = |error: &io::Error| error.raw_os_error() == Some(nix::libc::EEXIST);
    let mac = settings.gateway_mac();
    match netlink.add_bridge(&settings.name, mac) {
        Err(error) if !exists(&error) => return Err(failed("making the bridge")(error)),
        Ok(()) | Err(_) => {}
    }
    let found = netlink
        .link(&settings.name)
        .map_err(failed("finding the bridge"))?;
    let found = found.ok_or_else(|| failed("finding the bridge")(io::ErrorKind::NotFound.into()))?;
    let index = found.index;
    if found.mac != Some(mac) {
        // Of an earlier version: it has that of one of its ports, which goes on being answered as long as the port is.
        netlink
            .set_mac(index, mac)
            .map_err(failed("giving the bridge its hardware address"))?;
    }
    netlink.set_up(index).map_err(failed("switching the bridge on"))?;
    let (gateway, length) = (settings.subnet.gateway(), settings.subnet.prefix_length());
    match netlink.add_address(index, gateway, length) {
        Err(error) if !exists(&error) => Err(failed("giving the bridge its address")(error)),
        Ok(()) | Err(_) => Ok(index),
    }
}

/// Removes the device, its rules and the record.
pub(super) fn remove(settings: &Settings, data_dir: &Path) -> Result<(), Cause> {
    let mut netlink = Netlink::open().map_err(failed("opening a netlink socket"))?;
    // Before its rules: who looks after them writes none for a bridge that is not there.
    netlink
        .delete_link(&settings.name)
        .map_err(failed("removing the bridge"))?;
    outgoing::forbid(settings);
    guard::unwatch(&settings.name);
    let path = record_path(data_dir);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Cause::file("removing", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_after_their_numbers() {
        let settings = Settings::of("dhow-0123abcd", "10.88.4.0/22".parse().unwrap());
        let name = settings.device_name(65533);
        assert!(name.len() <= 15, "{name}");
        assert_eq!(settings.device_number(&name), Some(65533));
        assert_eq!(
            settings.mac(258).to_string(),
            format!("{}01:02", &settings.mac(0).to_string()[..12])
        );
        assert_eq!(settings.mac(0).0[0], LOCAL_MAC);
        assert!(settings.is_ours(settings.gateway_mac()) && !settings.is_ours(Mac([0x02; 6])));
        for other in ["eth0", "dh000000.1", "dhow-0123abcd", &name[..name.len() - 5]] {
            assert_eq!(settings.device_number(other), None, "{other}");
        }
    }
}

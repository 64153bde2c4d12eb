//! The node's address book: which number stands for which service on this node. A number is kept as long as the node
//! knows the service, and rests for a day once it does not: whoever still has the address must not reach another service.
//!
//! Two ranges have the same numbers: containers use one that their proxy serves, host programs one on the loopback. The
//! first half of the numbers stands for services, the second for single replicas, which containers alone call by name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use dhow_core::ids::{DeploymentName, ServiceKey, ServiceName};
use dhow_disk::{Outlives, read_or_set_aside};
use serde::{Deserialize, Serialize};

/// Numbers below are the network's own: the name server is 1.
const FIRST: u32 = 16;
/// How long a number is given to nobody else.
const REST_SECS: i64 = 24 * 60 * 60;
/// The last byte of an address of the loopback range is none of these.
const LOOPBACK_SIZE: u32 = 1 << 16;

/// A service's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    deployment: DeploymentName,
    service: ServiceName,
    number: u32,
    /// When the node ceased to know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    freed_unix_secs: Option<i64>,
    /// By endpoint: the port on the loopback where the endpoint's own cannot be had.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ports: BTreeMap<String, u16>,
}

/// A replica's number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReplicaEntry {
    deployment: DeploymentName,
    /// Its id, such as `db-default-0`: the next generation of it has the same number.
    replica: String,
    number: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    freed_unix_secs: Option<i64>,
}

/// What stands in the file.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    entries: Vec<Entry>,
    #[serde(default)]
    replicas: Vec<ReplicaEntry>,
}

/// A replica by its id inside its deployment.
pub type ReplicaKey = (DeploymentName, String);

const VERSION: u32 = 1;

/// Numbers and ports by service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressBook {
    entries: BTreeMap<ServiceKey, Entry>,
    replicas: BTreeMap<ReplicaKey, ReplicaEntry>,
}

impl AddressBook {
    /// Reads the book of a folder. One that is damaged is put aside: services get new numbers then.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let path = file(dir);
        let kept = read_or_set_aside(&path, |bytes| {
            let written: Written = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
            match written.version {
                VERSION => Ok((written.entries, written.replicas)),
                other => Err(format!("it has form {other}, this version knows form {VERSION}")),
            }
        })?;
        let entries = kept.or_tell(|aside, why| {
            tracing::error!(aside = %aside.display(), why, "the addresses of services cannot be read; they get new ones");
        });
        let (entries, replicas) = entries.unwrap_or_default();
        let replicas = replicas
            .into_iter()
            .map(|entry| ((entry.deployment.clone(), entry.replica.clone()), entry));
        let entries = entries.into_iter().map(|entry| {
            let key = ServiceKey {
                deployment: entry.deployment.clone(),
                service: entry.service.clone(),
            };
            (key, entry)
        });
        Ok(Self {
            entries: entries.collect(),
            replicas: replicas.collect(),
        })
    }

    /// Once this returns, the numbers outlive a power cut. Blocks.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let written = Written {
            version: VERSION,
            entries: self.entries.values().cloned().collect(),
            replicas: self.replicas.values().cloned().collect(),
        };
        let bytes = serde_json::to_vec(&written).map_err(io::Error::other)?;
        std::fs::create_dir_all(dir)?;
        dhow_disk::replace(&file(dir), &bytes, Outlives::PowerCut)
    }

    /// Gives a number to each of these services and lets those of others rest. Numbers are below `size`. Whether
    /// something is to be written.
    pub fn keep(&mut self, services: &BTreeSet<ServiceKey>, size: u32, now_unix_secs: i64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|key, entry| {
            let rested = entry
                .freed_unix_secs
                .is_some_and(|freed| now_unix_secs.saturating_sub(freed) >= REST_SECS);
            // One beyond the range was given when the range was larger.
            entry.number < size && (!rested || services.contains(key))
        });
        let mut changed = before != self.entries.len();
        for (key, entry) in &mut self.entries {
            let freed = match (services.contains(key), entry.freed_unix_secs) {
                (true, _) => None,
                (false, None) => Some(now_unix_secs),
                (false, freed) => freed,
            };
            changed |= std::mem::replace(&mut entry.freed_unix_secs, freed) != freed;
        }
        let mut taken: BTreeSet<u32> = self.entries.values().map(|entry| entry.number).collect();
        let new: Vec<&ServiceKey> = services
            .iter()
            .filter(|key| !self.entries.contains_key(*key))
            .collect();
        let mut free = FIRST..size.min(LOOPBACK_SIZE).saturating_sub(1);
        for key in new {
            let Some(number) = free.find(|number| !taken.contains(number)) else {
                tracing::error!(service = %key, "no address is left for it on this node: it has no name here");
                continue;
            };
            taken.insert(number);
            let entry = Entry {
                deployment: key.deployment.clone(),
                service: key.service.clone(),
                number,
                freed_unix_secs: None,
                ports: BTreeMap::new(),
            };
            self.entries.insert(key.clone(), entry);
            changed = true;
        }
        changed
    }

    /// Gives a number of these to each of these replicas and lets those of others rest: for a day, or until there is no
    /// other. Whether something is to be written.
    pub fn keep_replicas(
        &mut self,
        replicas: &BTreeSet<ReplicaKey>,
        numbers: Range<u32>,
        now_unix_secs: i64,
    ) -> bool {
        let before = self.replicas.len();
        self.replicas.retain(|_, entry| numbers.contains(&entry.number));
        let mut changed = before != self.replicas.len();
        for (key, entry) in &mut self.replicas {
            let freed = match (replicas.contains(key), entry.freed_unix_secs) {
                (true, _) => None,
                (false, None) => Some(now_unix_secs),
                (false, freed) => freed,
            };
            changed |= std::mem::replace(&mut entry.freed_unix_secs, freed) != freed;
        }
        let is_new = |key: &&ReplicaKey| !self.replicas.contains_key(*key);
        let new: Vec<&ReplicaKey> = replicas.iter().filter(is_new).collect();
        if new.is_empty() {
            return changed;
        }
        let rested = |entry: &ReplicaEntry| {
            let freed = entry.freed_unix_secs;
            freed.is_some_and(|freed| now_unix_secs.saturating_sub(freed) >= REST_SECS)
        };
        self.replicas.retain(|_, entry| !rested(entry));
        let taken: BTreeSet<u32> = self.replicas.values().map(|entry| entry.number).collect();
        let mut free = numbers.filter(|number| !taken.contains(number));
        for key in new {
            let Some(number) = free.next().or_else(|| self.longest_at_rest()) else {
                tracing::error!(replica = %format!("{}/{}", key.0, key.1), "no address is left for it on this node: it has no name of its own here");
                break;
            };
            let (deployment, replica) = key.clone();
            let entry = ReplicaEntry {
                deployment,
                replica,
                number,
                freed_unix_secs: None,
            };
            self.replicas.insert(key.clone(), entry);
            changed = true;
        }
        changed
    }

    /// Forgets the replica that has rested longest, for its number.
    fn longest_at_rest(&mut self) -> Option<u32> {
        let resting = self.replicas.iter();
        let resting = resting.filter_map(|(key, entry)| Some((entry.freed_unix_secs?, key)));
        let (_, key) = resting.min()?;
        let key = key.clone();
        self.replicas.remove(&key).map(|entry| entry.number)
    }

    pub fn replica_number(&self, replica: &ReplicaKey) -> Option<u32> {
        let entry = self.replicas.get(replica)?;
        entry.freed_unix_secs.is_none().then_some(entry.number)
    }

    pub fn number(&self, service: &ServiceKey) -> Option<u32> {
        let entry = self.entries.get(service)?;
        entry.freed_unix_secs.is_none().then_some(entry.number)
    }

    /// The address for host programs.
    pub fn loopback(&self, service: &ServiceKey) -> Option<Ipv4Addr> {
        let number = self.number(service)?;
        Some(Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 87, 0, 0)) + number))
    }

    /// The port on the loopback that stands in for an endpoint's own.
    pub fn port(&self, service: &ServiceKey, endpoint: &str) -> Option<u16> {
        self.entries.get(service)?.ports.get(endpoint).copied()
    }

    /// Another port stands in for an endpoint's own from now on.
    pub fn set_port(&mut self, service: &ServiceKey, endpoint: &str, port: u16) {
        if let Some(entry) = self.entries.get_mut(service) {
            entry.ports.insert(endpoint.to_owned(), port);
        }
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("addresses.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;
    const SIZE: u32 = 1 << 16;

    fn key(name: &str) -> ServiceKey {
        ServiceKey {
            deployment: DeploymentName::new("shop").unwrap(),
            service: ServiceName::new(name).unwrap(),
        }
    }

    fn keys(names: &[&str]) -> BTreeSet<ServiceKey> {
        names.iter().map(|name| key(name)).collect()
    }

    #[test]
    fn a_number_stays_and_rests_for_a_day() {
        let mut book = AddressBook::default();
        assert!(book.keep(&keys(&["db", "web"]), SIZE, NOW));
        assert!(!book.keep(&keys(&["db", "web"]), SIZE, NOW + 5), "nothing new");
        let db = book.number(&key("db")).unwrap();
        assert!(db >= FIRST && book.number(&key("web")).unwrap() != db);
        assert!(book.keep(&keys(&["web"]), SIZE, NOW + 10));
        assert_eq!(book.number(&key("db")), None);
        book.keep(&keys(&["web", "cache"]), SIZE, NOW + 20);
        assert_ne!(book.number(&key("cache")), Some(db), "it rests");
        let mut back = book.clone();
        back.keep(&keys(&["web", "cache", "db"]), SIZE, NOW + 30);
        assert_eq!(back.number(&key("db")), Some(db), "its own again");
        book.keep(&keys(&["web", "cache", "new"]), SIZE, NOW + 10 + REST_SECS);
        assert_eq!(book.number(&key("new")), Some(db), "after a day");
    }

    #[test]
    fn a_full_range_gives_no_number_and_keeps_those_that_it_gave() {
        let mut book = AddressBook::default();
        let names: Vec<String> = (0..20).map(|n| format!("s{n:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        book.keep(&keys(&names), FIRST + 8, NOW);
        let given = names.iter().filter(|name| book.number(&key(name)).is_some());
        assert_eq!(given.count(), 7, "the last address of a network is nobody's");
    }

    #[test]
    fn a_smaller_range_gives_new_numbers_to_those_beyond_it() {
        let mut book = AddressBook::default();
        book.keep(&keys(&["a", "b", "c"]), SIZE, NOW);
        book.keep(&keys(&["c"]), SIZE, NOW);
        assert_eq!(book.number(&key("c")), Some(FIRST + 2));
        assert!(book.keep(&keys(&["c"]), FIRST + 2, NOW));
        assert_eq!(
            book.number(&key("c")),
            None,
            "two numbers rest, and there are no others"
        );
        book.keep(&keys(&["c"]), FIRST + 2, NOW + REST_SECS);
        assert_eq!(book.number(&key("c")), Some(FIRST));
    }

    #[test]
    fn a_replica_keeps_its_number_over_generations_and_full_ranges() {
        let replicas = |names: &[&str]| -> BTreeSet<ReplicaKey> {
            let shop = || DeploymentName::new("shop").unwrap();
            names.iter().map(|name| (shop(), (*name).to_owned())).collect()
        };
        let one = |name: &str| replicas(&[name]).pop_first().unwrap();
        let mut book = AddressBook::default();
        assert!(book.keep_replicas(&replicas(&["db-default-0", "db-default-1"]), 100..103, NOW));
        assert!(!book.keep_replicas(&replicas(&["db-default-0", "db-default-1"]), 100..103, NOW + 1));
        assert_eq!(book.replica_number(&one("db-default-1")), Some(101));
        assert!(book.keep_replicas(&replicas(&["db-default-0"]), 100..103, NOW + 2));
        assert_eq!(book.replica_number(&one("db-default-1")), None);
        let more = ["db-default-0", "web-default-0"];
        book.keep_replicas(&replicas(&more), 100..103, NOW + 3);
        assert_eq!(book.replica_number(&one("web-default-0")), Some(102), "101 rests");
        let all = ["db-default-0", "web-default-0", "web-default-1", "web-default-2"];
        book.keep_replicas(&replicas(&all), 100..103, NOW + 4);
        assert_eq!(
            book.replica_number(&one("web-default-1")),
            Some(101),
            "none but it"
        );
        assert_eq!(book.replica_number(&one("web-default-2")), None);
        assert_eq!(
            book.replica_number(&one("db-default-0")),
            Some(100),
            "its own still"
        );
    }

    #[test]
    fn the_book_is_read_back_and_a_damaged_one_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("network");
        assert_eq!(AddressBook::read(&dir).unwrap(), AddressBook::default());
        let mut book = AddressBook::default();
        book.keep(&keys(&["db"]), SIZE, NOW);
        book.set_port(&key("db"), "pg", 40_000);
        book.keep_replicas(&[(key("db").deployment, "db-default-0".into())].into(), 7..9, NOW);
        book.write(&dir).unwrap();
        let read = AddressBook::read(&dir).unwrap();
        assert_eq!(read, book);
        assert_eq!(read.port(&key("db"), "pg"), Some(40_000));
        assert_eq!(read.loopback(&key("db")), Some(Ipv4Addr::new(127, 87, 0, 16)));
        std::fs::write(file(&dir), "{").unwrap();
        assert_eq!(AddressBook::read(&dir).unwrap(), AddressBook::default());
        assert!(dir.join("addresses.json.unreadable-1").exists());
    }
}

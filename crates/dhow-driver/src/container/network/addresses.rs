//! Who has which address: a link per address in a folder, named by its number and pointing at its owner.
//!
//! Making a link either succeeds or finds another one: starts share the folder without a lock, and what a
//! killed daemon took is seen and cleared by the next.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::driver::Cause;

use super::subnet::Subnet;

/// The folder that says which replica has which address of the bridge.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    dir: PathBuf,
}

impl Addresses {
    pub fn open(dir: PathBuf) -> Result<Self, Cause> {
        fs::create_dir_all(&dir).map_err(Cause::file("making", &dir))?;
        Ok(Self { dir })
    }

    /// Takes a free number for an owner. Starts at a place that the owner's name gives, so that most find
    /// theirs at the first try.
    pub fn take(&self, owner: &str, subnet: Subnet) -> Result<u32, Cause> {
        let count = subnet.count();
        let first = first(owner, count);
        for step in 0..count {
            let number = (first + step) % count;
            let path = self.dir.join(number.to_string());
            match symlink(owner, &path) {
                Ok(()) => return Ok(number),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Cause::file("writing", path)(error)),
            }
        }
        Err(Cause::NoAddress {
            subnet: subnet.to_string(),
            count,
        })
    }

    pub fn give_back(&self, number: u32) -> Result<(), Cause> {
        let path = self.dir.join(number.to_string());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Cause::file("removing", path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Every address that is taken, with its owner.
    pub fn taken(&self) -> Result<Vec<(u32, String)>, Cause> {
        let entries = fs::read_dir(&self.dir).map_err(Cause::file("listing", &self.dir))?;
        let taken = entries.flatten().filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let owner = fs::read_link(entry.path())
                .ok()?
                .into_os_string()
                .into_string()
                .ok()?;
            Some((number, owner))
        });
        Ok(taken.collect())
    }

    /// The first number that an owner would be given, where the owner has it.
    pub fn usual(&self, owner: &str, subnet: Subnet) -> Option<u32> {
        let number = first(owner, subnet.count());
        let found = fs::read_link(self.dir.join(number.to_string())).ok()?;
        (found.as_os_str() == owner).then_some(number)
    }

    /// The numbers of one owner: one, unless a start was cut off.
    pub fn of(&self, owner: &str) -> Result<Vec<u32>, Cause> {
        let taken = self.taken()?.into_iter();
        Ok(taken
            .filter(|(_, found)| found == owner)
            .map(|(number, _)| number)
            .collect())
    }
}

/// Where the search for an owner's number begins.
fn first(owner: &str, count: u32) -> u32 {
    u32::try_from(super::hash(owner) % u64::from(count)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owner_has_its_own_and_the_last_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let addresses = Addresses::open(dir.path().join("a")).unwrap();
        let subnet: Subnet = "10.0.0.0/29".parse().unwrap();
        let mut numbers: Vec<u32> = (0..subnet.count())
            .map(|n| addresses.take(&format!("r{n}"), subnet).unwrap())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert!(matches!(
            addresses.take("more", subnet),
            Err(Cause::NoAddress { count: 5, .. })
        ));
        let [number] = addresses.of("r3").unwrap()[..] else {
            panic!("one address each")
        };
        addresses.give_back(number).unwrap();
        addresses.give_back(number).unwrap();
        assert_eq!(addresses.take("more", subnet).unwrap(), number);
        assert_eq!(addresses.taken().unwrap().len(), 5);
    }
}

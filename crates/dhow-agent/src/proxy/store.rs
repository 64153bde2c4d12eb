//! The last table on disk, so that a proxy that was killed comes up with it. It lies in a folder of its own, which
//! belongs to the proxy's user and which the proxy holds open: no path leads there for it any more.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use dhow_disk::{Dir, Outlives};
use rustix::fs::{AtFlags, Gid, OFlags, Uid};

use super::mesh::{IDENTITY_MAX_BYTES, MeshIdentity};
use super::protocol::MESSAGE_MAX_BYTES;
use super::table::Table;
use super::tls::{CERTIFICATES_MAX, GivenCertificates};

const FOLDER: &str = "table";
const TABLE_FILE: &str = "table.json";
/// Key and certificates, readable for the proxy's user alone.
const IDENTITY_FILE: &str = "mesh.json";
/// The same for what clients are shown.
const CERTIFICATES_FILE: &str = "certificates.json";
/// As many as a proxy takes, of some 10 KiB each.
const CERTIFICATES_MAX_BYTES: usize = CERTIFICATES_MAX * (10 << 10);

/// The folder, held open.
#[derive(Debug)]
pub struct Store {
    folder: Dir,
}

impl Store {
    /// Makes the folder below the proxy's, and takes what earlier versions left beside it. Blocks.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let above = Dir::open(dir)?;
        let folder = above.make_dir(FOLDER)?;
        match rustix::fs::renameat(&above, TABLE_FILE, &folder, TABLE_FILE) {
            Err(rustix::io::Errno::NOENT) | Ok(()) => Ok(Self { folder }),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands it to the user that the proxy becomes. Blocks.
    pub fn give_to(&self, id: u32) -> io::Result<()> {
        let (user, group) = (Some(Uid::from_raw(id)), Some(Gid::from_raw(id)));
        rustix::fs::fchown(&self.folder, user, group)?;
        for file in [TABLE_FILE, IDENTITY_FILE, CERTIFICATES_FILE] {
            match rustix::fs::chownat(&self.folder, file, user, group, AtFlags::SYMLINK_NOFOLLOW) {
                Err(rustix::io::Errno::NOENT) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Replaces the file in one step: a reader sees the old or the new one, never half. Blocks.
    pub fn save(&self, table: &Table) -> io::Result<()> {
        let bytes = serde_json::to_vec(table)?;
        self.folder.replace(TABLE_FILE, &bytes, Outlives::PowerCut)
    }

    /// Replaces what is shown to other nodes. Blocks.
    pub fn save_identity(&self, identity: &MeshIdentity) -> io::Result<()> {
        let bytes = serde_json::to_vec(identity)?;
        self.folder.replace(IDENTITY_FILE, &bytes, Outlives::PowerCut)
    }

    /// Replaces what is shown to clients. Blocks.
    pub fn save_certificates(&self, certificates: &GivenCertificates) -> io::Result<()> {
        let bytes = serde_json::to_vec(certificates)?;
        self.folder.replace(CERTIFICATES_FILE, &bytes, Outlives::PowerCut)
    }

    /// What is shown to clients; nothing where the daemon has given nothing yet. Blocks.
    pub fn load_certificates(&self) -> io::Result<GivenCertificates> {
        let Some(bytes) = read_plain(&self.folder, CERTIFICATES_FILE, CERTIFICATES_MAX_BYTES)? else {
            return Ok(GivenCertificates::default());
        };
        // Its words would be a key's.
        let read = serde_json::from_slice(&bytes).map_err(|_| io::ErrorKind::InvalidData);
        Ok(read?)
    }

    /// What is shown to other nodes; `None` where the daemon has given nothing yet. Blocks.
    pub fn load_identity(&self) -> io::Result<Option<MeshIdentity>> {
        let Some(bytes) = read_plain(&self.folder, IDENTITY_FILE, IDENTITY_MAX_BYTES)? else {
            return Ok(None);
        };
        // Its words would be a key's.
        let read = serde_json::from_slice(&bytes).map_err(|_| io::ErrorKind::InvalidData);
        Ok(Some(read?))
    }

    /// The saved table; `None` where there is none. One that cannot be carried out is an error. Blocks.
    pub fn load(&self) -> io::Result<Option<Table>> {
        load_from(&self.folder)
    }
}

/// The saved table of a proxy, for its daemon. Blocks.
pub fn load(dir: &Path) -> io::Result<Option<Table>> {
    // Beside the folder lies that of an earlier version's proxy, which then is the one that serves.
    for folder in [dir.to_owned(), dir.join(FOLDER)] {
        let folder = match Dir::open(&folder) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Some(table) = load_from(&folder)? {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

fn load_from(folder: &Dir) -> io::Result<Option<Table>> {
    let Some(bytes) = read_plain(folder, TABLE_FILE, MESSAGE_MAX_BYTES)? else {
        return Ok(None);
    };
    let table: Table = serde_json::from_slice(&bytes)?;
    table.check().map_err(io::Error::other)?;
    Ok(Some(table))
}

/// Nothing but a plain file of no more than its size: the proxy's user may have put anything there.
fn read_plain(folder: &Dir, name: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match folder.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

pub fn remove(dir: &Path) -> io::Result<()> {
    let fine = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    };
    fine(fs::remove_file(dir.join(TABLE_FILE)))?;
    fine(fs::remove_dir_all(dir.join(FOLDER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_where_it_is_now_and_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(dir.path()).unwrap(), None);
        let table = |revision| Table {
            revision,
            ..Table::empty()
        };
        let earlier = dir.path().join(TABLE_FILE);
        fs::write(&earlier, serde_json::to_vec(&table(1)).unwrap()).unwrap();
        assert_eq!(load(dir.path()).unwrap(), Some(table(1)));
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.load().unwrap(), Some(table(1)));
        store.save(&table(2)).unwrap();
        assert_eq!(load(dir.path()).unwrap(), Some(table(2)));
        assert!(!earlier.exists());
        remove(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_plain_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let secret = dir.path().join("secret");
        fs::write(&secret, serde_json::to_vec(&Table::empty()).unwrap()).unwrap();
        std::os::unix::fs::symlink(&secret, dir.path().join("table/table.json")).unwrap();
        assert!(store.load().is_err() && load(dir.path()).is_err());
    }
}

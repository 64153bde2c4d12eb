//! The directory of all state: its owner's, passable for the group `dhow` where the host has one so that it reaches the
//! socket, closed to everybody else, and held by one daemon at a time.

mod closing;
mod lock;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dhow_server::api::socket_group;
use dhow_server::plane::storage::Storage;
use tokio_util::sync::CancellationToken;

/// Of the directory: for its owner alone, and where the group is to get through to the socket.
const OWN_MODE: u32 = 0o700;
const SHARED_MODE: u32 = 0o710;

/// Of what the process makes from then on, wherever nobody says otherwise: nothing for others. Replicas have their own.
const MASK: u32 = 0o077;

/// So many names of what was closed stand in the log.
const NAMED_MAX: usize = 5;

/// Held for as long as the daemon lives; the kernel lets go of it when the process ends, however it does.
pub struct DataDir {
    path: PathBuf,
    lock: Arc<File>,
}

/// What the path of a directory that was taken leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadsTo {
    /// The directory that was taken.
    Own,
    Nothing,
    /// A directory that was made since: another daemon may have it.
    Another,
}

/// Whoever holds this has the directory.
const LOCK_FILE: &str = "daemon.lock";

/// How often it is looked whether the directory is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl DataDir {
    /// Takes the directory. `socket` is the one file in it that others may see.
    pub fn open(dir: &Path, socket: Option<&Path>) -> anyhow::Result<Self> {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(MASK));
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(OWN_MODE);
        builder
            .create(dir)
            .with_context(|| format!("the data directory {} cannot be made", dir.display()))?;
        secure(dir, socket_group())?;
        let path = dir.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut lock = options
            .open(&path)
            .with_context(|| format!("the lock file {} cannot be opened", path.display()))?;
        if let Err(other) = lock::take(&mut lock) {
            let other = other.map_or_else(String::new, |pid| format!(" (process {pid})"));
            anyhow::bail!(
                "another daemon{other} runs on {}: stop it, or give --data-dir to use another directory",
                dir.display()
            );
        }
        // Only for the message above.
        let _ = lock.set_len(0);
        let _ = lock.rewind();
        let _ = writeln!(lock, "{}", std::process::id());
        let closed = closing::close(dir, socket, rustix::process::geteuid().as_raw())?;
        if !closed.is_empty() {
            let named: Vec<_> = closed
                .iter()
                .take(NAMED_MAX)
                .map(|name| name.display().to_string())
                .collect();
            tracing::warn!(
                dir = %dir.display(),
                entries = closed.len(),
                among_them = named.join(", "),
                "these could be reached by others and are closed to them"
            );
        }
        Ok(Self {
            path: dir.to_owned(),
            lock: Arc::new(lock),
        })
    }

    /// What its path leads to now.
    pub fn leads_to(&self) -> LeadsTo {
        match is_at(&self.lock, &self.path.join(LOCK_FILE)) {
            true => LeadsTo::Own,
            false if fs::symlink_metadata(&self.path).is_ok() => LeadsTo::Another,
            false => LeadsTo::Nothing,
        }
    }

    /// Looks again and again, until `cancel`, whether the path still leads to the directory that was opened, and says
    /// so.
    pub fn watch(&self, storage: Storage, cancel: CancellationToken) {
        let (lock, path) = (Arc::clone(&self.lock), self.path.join(LOCK_FILE));
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = cancel.cancelled() => return,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
                let (lock, looked_at) = (Arc::clone(&lock), path.clone());
                let looked = tokio::task::spawn_blocking(move || is_at(&lock, &looked_at)).await;
                let is_gone = !looked.unwrap_or(true);
                if !storage.set_gone(is_gone) {
                    continue;
                }
                let dir = path.parent().unwrap_or(&path).display();
                match is_gone {
                    true => tracing::error!(
                        %dir,
                        "the data directory was removed or moved: nothing can be kept, and no change is taken. What \
                         runs goes on; put the directory back, or restart the daemon to begin anew"
                    ),
                    false => tracing::warn!(%dir, "the data directory is back: changes are taken again"),
                }
            }
        });
    }
}

/// Sees that the directory is this user's, and that nobody else gets in.
fn secure(dir: &Path, group: Option<u32>) -> anyhow::Result<()> {
    let shown = dir.display();
    let found = fs::metadata(dir).with_context(|| format!("{shown} cannot be looked at"))?;
    let own = rustix::process::geteuid().as_raw();
    anyhow::ensure!(
        found.is_dir(),
        "{shown} is no directory; give --data-dir to use another one"
    );
    anyhow::ensure!(
        found.uid() == own,
        "the data directory {shown} belongs to user {}, and this daemon runs as user {own}: whoever owns it could change \
         everything; give it to this user with `chown {own} {shown}`, or give --data-dir to use another one",
        found.uid()
    );
    let mode = match group {
        Some(_) => SHARED_MODE,
        None => OWN_MODE,
    };
    let failed = || format!("the data directory {shown} cannot be closed to others");
    if let Some(group) = group.filter(|group| found.gid() != *group) {
        std::os::unix::fs::chown(dir, None, Some(group)).with_context(failed)?;
    }
    let had = found.mode() & 0o7777;
    if had != mode {
        fs::set_permissions(dir, Permissions::from_mode(mode)).with_context(failed)?;
    }
    if had & !mode != 0 {
        let (had, now) = (format!("{had:04o}"), format!("{mode:04o}"));
        tracing::warn!(dir = %shown, had, now, "the data directory was open to others and is closed to them");
    }
    Ok(())
}

/// Whether the path leads to the open file. A path that cannot be looked at for another reason is given time.
fn is_at(lock: &File, path: &Path) -> bool {
    match (lock.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(found)) => (open.dev(), open.ino()) == (found.dev(), found.ino()),
        (Ok(_), Err(error)) => error.kind() != std::io::ErrorKind::NotFound,
        (Err(_), _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_that_was_taken_is_told_from_one_in_its_place() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let taken = DataDir::open(&dir, None).unwrap();
        assert_eq!(taken.leads_to(), LeadsTo::Own);
        let moved = parent.path().join("moved");
        fs::rename(&dir, &moved).unwrap();
        assert_eq!(taken.leads_to(), LeadsTo::Nothing);
        // Also before another daemon has taken it.
        fs::create_dir(&dir).unwrap();
        assert_eq!(taken.leads_to(), LeadsTo::Another);
        let another = DataDir::open(&dir, None).unwrap();
        assert_eq!(
            (taken.leads_to(), another.leads_to()),
            (LeadsTo::Another, LeadsTo::Own)
        );
        drop(another);
        fs::remove_dir_all(&dir).unwrap();
        fs::rename(&moved, &dir).unwrap();
        assert_eq!(taken.leads_to(), LeadsTo::Own);
    }

    #[test]
    fn everything_below_it_is_closed_to_others() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let (folder, deep) = (dir.join("raft"), dir.join("raft/old/segment"));
        let (volume, layer) = (dir.join("volumes/shop/data"), dir.join("images/layers/x"));
        let shown = dir.join("files/shop.web.default.0.g1/0");
        for made in [&volume, &layer, &shown, &dir.join("raft/old")] {
            fs::create_dir_all(made).unwrap();
            set_mode(made, 0o755);
        }
        set_mode(&dir, 0o777);
        set_mode(&folder, 0o2755);
        fs::write(&deep, "x").unwrap();
        set_mode(&deep, 0o664);
        std::os::unix::fs::symlink("raft", dir.join("log")).unwrap();
        let socket = dir.join("dhow.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        set_mode(&socket, 0o660);
        let opened = DataDir::open(&dir, Some(&socket)).unwrap();
        let expected = match socket_group() {
            Some(_) => SHARED_MODE,
            None => OWN_MODE,
        };
        assert_eq!(mode(&dir), expected);
        assert_eq!((mode(&folder), mode(&deep)), (0o2700, 0o600));
        assert_eq!(mode(&dir.join("volumes")), 0o700);
        assert_eq!(
            (mode(&volume), mode(&layer), mode(&shown)),
            (0o755, 0o755, 0o755),
            "replicas need these"
        );
        assert_eq!(mode(&socket), 0o660);
        // What is made from now on is closed at once.
        let (file, next) = (folder.join("next"), dir.join("events/next"));
        fs::write(&file, "x").unwrap();
        fs::create_dir_all(&next).unwrap();
        assert_eq!((mode(&file), mode(&next)), (0o600, 0o700));
        let own = rustix::process::geteuid().as_raw();
        let again = closing::close(&dir, Some(&socket), own).unwrap();
        assert!(again.is_empty(), "once is enough: {again:?}");
        drop(opened);
    }

    #[test]
    fn what_leads_out_or_belongs_to_somebody_else_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let outside = parent.path().join("outside");
        fs::create_dir_all(dir.join("agent")).unwrap();
        fs::create_dir(&outside).unwrap();
        let open = || match DataDir::open(&dir, None) {
            Ok(_) => None,
            Err(refused) => Some(refused.to_string()),
        };
        for target in [outside.as_path(), Path::new("/nowhere"), Path::new("../outside")] {
            let link = dir.join("log");
            std::os::unix::fs::symlink(target, &link).unwrap();
            let refused = open().unwrap();
            assert!(
                refused.contains("leads out") && refused.contains("log"),
                "{refused}"
            );
            fs::remove_file(&link).unwrap();
        }
        assert_eq!(open(), None);
        let somebody = rustix::process::geteuid().as_raw() + 1;
        let foreign = closing::close(&dir, None, somebody).unwrap_err().to_string();
        assert!(
            foreign.contains("chown -hR") && foreign.contains("belongs to user"),
            "{foreign}"
        );
    }

    #[test]
    fn the_group_gets_through_to_the_socket_and_no_further() {
        let dir = tempfile::tempdir().unwrap();
        // A group that this user is in, whoever that is.
        let group = rustix::process::getegid().as_raw();
        secure(dir.path(), Some(group)).unwrap();
        assert_eq!(mode(dir.path()), SHARED_MODE);
        assert_eq!(fs::metadata(dir.path()).unwrap().gid(), group);
        secure(dir.path(), None).unwrap();
        assert_eq!(mode(dir.path()), OWN_MODE, "the host has that group no more");
    }

    #[test]
    fn somebody_elses_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let somebody = rustix::process::geteuid().as_raw() + 1;
        let path = match std::os::unix::fs::chown(dir.path(), Some(somebody), None) {
            Ok(()) => dir.path(),
            // Only root can give away what it has; there is always something of root's.
            Err(_) => Path::new("/"),
        };
        let refused = match DataDir::open(path, None) {
            Ok(_) => panic!("it was opened"),
            Err(refused) => refused.to_string(),
        };
        assert!(
            refused.contains("belongs to user") && refused.contains("chown"),
            "{refused}"
        );
        assert!(!path.join("daemon.lock").exists());
    }

    #[test]
    fn a_directory_that_was_taken_away_or_replaced_is_noticed() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("data");
        let held = DataDir::open(&dir, None).unwrap();
        let lock = dir.join(LOCK_FILE);
        assert!(is_at(&held.lock, &lock));
        let moved = base.path().join("moved");
        fs::rename(&dir, &moved).unwrap();
        assert!(!is_at(&held.lock, &lock), "it was moved");
        fs::rename(&moved, &dir).unwrap();
        assert!(is_at(&held.lock, &lock), "it is back");
        fs::remove_dir_all(&dir).unwrap();
        assert!(!is_at(&held.lock, &lock), "it was removed");
        let other = DataDir::open(&dir, None).unwrap();
        assert!(!is_at(&held.lock, &lock), "another one stands there");
        assert!(is_at(&other.lock, &lock));
    }
}

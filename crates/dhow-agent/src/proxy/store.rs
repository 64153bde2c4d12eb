//! The last table on disk, so that a proxy that was killed comes up with it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::table::Table;

pub const TABLE_FILE: &str = "table.json";
const TEMPORARY_FILE: &str = "table.json.tmp";

/// Replaces the file in one step: a reader sees the old or the new one, never half. Blocks.
pub fn save(dir: &Path, table: &Table) -> io::Result<()> {
    let temporary = dir.join(TEMPORARY_FILE);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(&serde_json::to_vec(table)?)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(TABLE_FILE))?;
    File::open(dir)?.sync_all()
}

/// The saved table; `None` where there is none. One that cannot be carried out is an error. Blocks.
pub fn load(dir: &Path) -> io::Result<Option<Table>> {
    let bytes = match fs::read(dir.join(TABLE_FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let table: Table = serde_json::from_slice(&bytes)?;
    table.check().map_err(io::Error::other)?;
    Ok(Some(table))
}

pub fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_file(dir.join(TABLE_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

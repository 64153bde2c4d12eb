//! The last table on disk, so that a proxy that was killed comes up with it.

use std::fs;
use std::io;
use std::path::Path;

use dhow_disk::Outlives;

use super::table::Table;

pub const TABLE_FILE: &str = "table.json";

/// Replaces the file in one step: a reader sees the old or the new one, never half. Blocks.
pub fn save(dir: &Path, table: &Table) -> io::Result<()> {
    dhow_disk::replace(
        &dir.join(TABLE_FILE),
        &serde_json::to_vec(table)?,
        Outlives::PowerCut,
    )
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

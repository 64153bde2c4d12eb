//! Names that are too long for the header of an entry, or that a newer form of tar writes before it.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tar::{Entry, EntryType};

use super::CarryError;

/// No path that a kernel takes is longer than 4 KiB; the rest is for what else a writer notes.
const BYTES_MAX: u64 = 64 * 1024;

/// What was read before an entry and belongs to it.
#[derive(Default)]
pub struct LongNames {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

/// The names of an entry, wherever they stood.
pub struct EntryNames {
    pub path: PathBuf,
    pub link: Option<PathBuf>,
}

impl LongNames {
    /// Takes what only says something of the next entry. Whether it was that.
    pub fn take(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<bool, CarryError> {
        match entry.header().entry_type() {
            EntryType::GNULongName => self.path = Some(name_in(entry)?),
            EntryType::GNULongLink => self.link = Some(name_in(entry)?),
            EntryType::XHeader => self.take_records(&read(entry)?)?,
            EntryType::XGlobalHeader => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Records `LENGTH KEY=VALUE`, each with a line end.
    fn take_records(&mut self, mut bytes: &[u8]) -> Result<(), CarryError> {
        let malformed = || CarryError::Stream(io::Error::other("a record of names is malformed"));
        while !bytes.is_empty() {
            let space = bytes
                .iter()
                .position(|byte| *byte == b' ')
                .ok_or_else(malformed)?;
            let (digits, _) = bytes.split_at(space);
            let length = std::str::from_utf8(digits)
                .ok()
                .and_then(|text| text.parse::<usize>().ok());
            let length = length
                .filter(|length| *length > space + 1)
                .ok_or_else(malformed)?;
            let (record, rest) = bytes.split_at_checked(length).ok_or_else(malformed)?;
            let record = record
                .get(space + 1..)
                .and_then(|record| record.strip_suffix(b"\n"));
            let record = record.ok_or_else(malformed)?;
            let equals = record
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or_else(malformed)?;
            let (key, value) = record.split_at(equals);
            let value = value.get(1..).unwrap_or_default().to_vec();
            match key {
                b"path" => self.path = Some(value),
                b"linkpath" => self.link = Some(value),
                b"size" => {
                    let why = "a file of more than 8 GiB in this form of tar cannot be read; GNU tar writes another one";
                    return Err(CarryError::Stream(io::Error::other(why)));
                }
                // Times, owners and what else there may be do not count.
                _ => {}
            }
            bytes = rest;
        }
        Ok(())
    }

    /// With those of the entry's own header for what was not read before.
    pub fn with(self, entry: &Entry<'_, impl Read>) -> EntryNames {
        let header = entry.header();
        let path = self.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = self
            .link
            .or_else(|| header.link_name_bytes().map(|name| name.into_owned()));
        EntryNames {
            path: OsString::from_vec(path).into(),
            link: link.map(|link| OsString::from_vec(link).into()),
        }
    }
}

fn name_in(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, CarryError> {
    let mut name = read(entry)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.truncate(end);
    Ok(name)
}

fn read(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, CarryError> {
    let mut bytes = Vec::new();
    entry
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(CarryError::Stream)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(CarryError::Stream(io::Error::other(
            "a name is longer than any path can be",
        ))),
        false => Ok(bytes),
    }
}

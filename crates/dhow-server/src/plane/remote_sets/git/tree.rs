//! The files of one folder of a commit, within the limits of a set.

use std::collections::BTreeMap;

use dhow_wire::manifest::{
    FILE_BYTES_MAX, FILES_MAX, INDEX_BYTES_MAX, INDEX_NAME, ReceivedSet, SET_BYTES_MAX, SIGNATURE_NAME,
    SIGNATURE_TEXT_BYTES_MAX,
};

use super::object::{ID_BYTES, Kind, ObjectId};
use super::pack::Pack;
use crate::plane::remote_sets::error::{RemoteError, one_line};
use crate::plane::remote_sets::limits::DEPTH_MAX;

/// The files by their paths below the folder.
#[derive(Debug, Default)]
pub(super) struct Files(BTreeMap<String, ObjectId>);

/// One line of a folder.
struct Entry<'a> {
    mode: &'a [u8],
    name: &'a [u8],
    id: ObjectId,
}

/// Finds the files of a folder, given by its path, at a commit.
pub(super) fn files_of(pack: &Pack, commit: ObjectId, path: &str) -> Result<Files, RemoteError> {
    let missing = || RemoteError::Malformed("a commit that is not there".into());
    let object = pack.get(&commit).ok_or_else(missing)?;
    let (mut folder, _) = object.commit().ok_or_else(missing)?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let found = entries(pack, folder)?
            .into_iter()
            .find(|entry| entry.name == part.as_bytes() && is_folder(entry));
        folder = found
            .map(|entry| entry.id)
            .ok_or_else(|| RemoteError::NoFolder(path.to_owned()))?;
    }
    let mut files = Files::default();
    let mut folders = vec![(folder, String::new(), 0)];
    // The same folder may stand in a repository any number of times.
    let mut looked_at = 0;
    while let Some((folder, prefix, depth)) = folders.pop() {
        looked_at += 1;
        if looked_at > FILES_MAX {
            return Err(RemoteError::SetTooLarge);
        }
        for entry in entries(pack, folder)? {
            // It belongs to the tools that brought the set, as in a directory.
            if entry.name.starts_with(b".") {
                continue;
            }
            let name = format!("{prefix}{}", one_line(entry.name));
            match entry.mode {
                b"40000" | b"040000" if depth == DEPTH_MAX => return Err(RemoteError::TooDeep(name)),
                b"40000" | b"040000" => folders.push((entry.id, format!("{name}/"), depth + 1)),
                b"100644" | b"100755" | b"100664" => drop(files.0.insert(name, entry.id)),
                _ => return Err(RemoteError::NotAFile(name)),
            }
        }
        if files.0.len() > FILES_MAX + 2 {
            return Err(RemoteError::SetTooLarge);
        }
    }
    Ok(files)
}

fn is_folder(entry: &Entry<'_>) -> bool {
    matches!(entry.mode, b"40000" | b"040000")
}

fn entries(pack: &Pack, folder: ObjectId) -> Result<Vec<Entry<'_>>, RemoteError> {
    let malformed = || RemoteError::Malformed("a folder that is not there, or is none".into());
    let object = pack.get(&folder).filter(|object| object.kind == Kind::Tree);
    let mut rest = object.ok_or_else(malformed)?.bytes.as_slice();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (entry, after) = entry(rest).ok_or_else(malformed)?;
        found.push(entry);
        rest = after;
    }
    Ok(found)
}

/// `MODE NAME\0` and the id.
fn entry(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let (mode, rest) = (&bytes[..space], &bytes[space + 1..]);
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (name, rest) = (&rest[..end], &rest[end + 1..]);
    let (id, after) = rest.split_at_checked(ID_BYTES)?;
    let id = ObjectId::from_bytes(id)?;
    Some((Entry { mode, name, id }, after))
}

impl Files {
    /// What the pack does not have yet.
    pub fn missing(&self, pack: &Pack) -> Vec<ObjectId> {
        let mut missing: Vec<ObjectId> = self
            .0
            .values()
            .copied()
            .filter(|id| pack.get(id).is_none())
            .collect();
        missing.sort();
        missing.dedup();
        missing
    }

    /// The set, with at most a byte more than may be of each file, so that the judgement names what is too large.
    pub fn read(&self, pack: &Pack) -> Result<ReceivedSet, RemoteError> {
        let mut set = ReceivedSet::default();
        let mut all_bytes = 0;
        for (path, id) in &self.0 {
            let object = pack.get(id).filter(|object| object.kind == Kind::Blob);
            let object = object.ok_or_else(|| RemoteError::Malformed(format!("{path} is not there")))?;
            let cut = |max: usize| object.bytes.get(..max + 1).unwrap_or(&object.bytes).to_vec();
            match path.as_str() {
                INDEX_NAME => set.index = cut(INDEX_BYTES_MAX),
                SIGNATURE_NAME => set.signature = cut(SIGNATURE_TEXT_BYTES_MAX),
                _ => {
                    let bytes = cut(usize::try_from(FILE_BYTES_MAX).unwrap_or(usize::MAX - 1));
                    all_bytes += bytes.len() as u64;
                    set.files.insert(path.clone(), bytes);
                }
            }
            if all_bytes > SET_BYTES_MAX {
                return Err(RemoteError::SetTooLarge);
            }
        }
        match set.index.is_empty() {
            true => Err(RemoteError::NoIndex),
            false => Ok(set),
        }
    }
}

//! Paths inside a layer, checked before anything is done with them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::EntryRefusal;
use super::limits::{MAX_DEPTH, MAX_NAME_BYTES, MAX_PATH_BYTES};

/// A relative path without `.`, `..` or empty parts. Empty for the root itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TarPath(Vec<u8>);

impl TarPath {
    pub fn parse(raw: &[u8]) -> Result<Self, EntryRefusal> {
        if raw.contains(&0) {
            return Err(EntryRefusal::NulByte);
        }
        // Some builders write the root's own entry as `/`.
        if raw.first() == Some(&b'/') && raw.iter().any(|byte| *byte != b'/') {
            return Err(EntryRefusal::AbsolutePath);
        }
        let mut path = Vec::with_capacity(raw.len());
        for part in raw.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => continue,
                b".." => return Err(EntryRefusal::ParentComponent),
                part if part.len() > MAX_NAME_BYTES => return Err(EntryRefusal::PathTooLong),
                part => {
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(part);
                }
            }
        }
        if path.len() > MAX_PATH_BYTES || path.iter().filter(|byte| **byte == b'/').count() >= MAX_DEPTH {
            return Err(EntryRefusal::PathTooLong);
        }
        Ok(Self(path))
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }

    /// The parent and the last part; none for the root.
    pub fn split(&self) -> Option<(TarPath, &OsStr)> {
        if self.is_root() {
            return None;
        }
        let cut = self.0.iter().rposition(|byte| *byte == b'/');
        let parent = cut.map_or(Vec::new(), |cut| self.0[..cut].to_vec());
        let name = &self.0[cut.map_or(0, |cut| cut + 1)..];
        Some((Self(parent), OsStr::from_bytes(name)))
    }

    /// The path and all its parents below the root, shortest first.
    pub fn prefixes(&self) -> Vec<TarPath> {
        let ends = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at);
        let mut prefixes: Vec<_> = ends.map(|end| Self(self.0[..end].to_vec())).collect();
        if !self.is_root() {
            prefixes.push(self.clone());
        }
        prefixes
    }

    /// For system calls: the root is `.`.
    pub fn as_path(&self) -> &Path {
        if self.is_root() {
            Path::new(".")
        } else {
            Path::new(OsStr::from_bytes(&self.0))
        }
    }

    /// As text, where it is valid; for records.
    pub fn to_text(&self) -> Option<String> {
        String::from_utf8(self.0.clone()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_or_refused() {
        let good = [
            ("./a//b/.", "a/b"),
            ("a", "a"),
            ("./", "."),
            ("/", "."),
            ("", "."),
            ("..a/b..", "..a/b.."),
        ];
        for (raw, path) in good {
            assert_eq!(
                TarPath::parse(raw.as_bytes()).unwrap().as_path(),
                Path::new(path),
                "{raw}"
            );
        }
        let long = "a/".repeat(3_000);
        let deep = "a/".repeat(257);
        let wide = "a".repeat(256);
        let bad = [
            ("/etc/passwd", EntryRefusal::AbsolutePath),
            ("../x", EntryRefusal::ParentComponent),
            ("a/../../x", EntryRefusal::ParentComponent),
            ("a/..", EntryRefusal::ParentComponent),
            ("a\0b", EntryRefusal::NulByte),
            (&long, EntryRefusal::PathTooLong),
            (&deep, EntryRefusal::PathTooLong),
            (&wide, EntryRefusal::PathTooLong),
        ];
        for (raw, why) in bad {
            assert_eq!(TarPath::parse(raw.as_bytes()).unwrap_err(), why, "{raw}");
        }
    }

    #[test]
    fn parts() {
        let path = TarPath::parse(b"a/b/c").unwrap();
        let (parent, name) = path.split().unwrap();
        assert_eq!((parent.as_path(), name), (Path::new("a/b"), OsStr::new("c")));
        let prefixes = path.prefixes();
        let texts: Vec<_> = prefixes.iter().filter_map(TarPath::to_text).collect();
        assert_eq!(texts, ["a", "a/b", "a/b/c"]);
        assert!(TarPath::parse(b".").unwrap().split().is_none());
    }
}

//! Directories whose attributes the stack would show wrongly.
//!
//! A layer may hold `tmp/x` without an entry for `tmp`. Its directory then has plain attributes, and as the
//! upper one of two it would hide that `tmp` below is writable for all. Layers are unpacked once for all images
//! that share them, so this is put right per image: the replica's own layer gets such directories with the
//! attributes they should have. The same holds for the root.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::super::store::{DirFix, Failing, ImageRecord, Store, StoreError};
use super::super::unpack::{DirAttributes, LayerMeta, is_opaque};

const PLAIN: DirAttributes = DirAttributes {
    mode: 0o755,
    uid: 0,
    gid: 0,
};

/// One layer as the search sees it.
struct Layer {
    fs: PathBuf,
    meta: LayerMeta,
    implied: BTreeSet<PathBuf>,
}

/// What a layer has at a path.
enum Seen {
    /// Nothing; the layers below decide.
    Absent,
    /// Something that ends the search: a file, a deletion, or nothing in a directory that hides what is below.
    End,
    Implied {
        opaque: bool,
    },
    Explicit(DirAttributes),
}

/// What has to be made for an image; sorted by path, parents first.
pub(crate) fn fixes(store: &Store, record: &ImageRecord) -> Result<Vec<DirFix>, StoreError> {
    let mut layers = Vec::new();
    for diff_id in record.stack() {
        let meta = store.layer_meta(&diff_id)?.unwrap_or_default();
        let implied = meta.implied_dirs.iter().map(PathBuf::from).collect();
        layers.push(Layer {
            fs: store.layer_fs(&diff_id),
            meta,
            implied,
        });
    }
    let mut fixes = BTreeMap::new();
    if let Some(root) = layers
        .iter()
        .find_map(|layer| layer.meta.root)
        .filter(|root| *root != PLAIN)
    {
        fixes.insert(PathBuf::new(), root);
    }
    let implied: BTreeSet<_> = layers
        .iter()
        .flat_map(|layer| layer.implied.iter().cloned())
        .collect();
    for path in implied {
        if let Some(attributes) = corrected(&layers, &path)? {
            add_parents(&layers, &path, &mut fixes)?;
            fixes.insert(path, attributes);
        }
    }
    let fix = |(path, attributes): (PathBuf, DirAttributes)| {
        path.into_os_string()
            .into_string()
            .ok()
            .map(|path| DirFix { path, attributes })
    };
    Ok(fixes.into_iter().filter_map(fix).collect())
}

/// The attributes of a directory that the topmost layer which has it only implies; none where all is well.
fn corrected(layers: &[Layer], path: &Path) -> Result<Option<DirAttributes>, StoreError> {
    let mut implied = false;
    for layer in layers {
        match layer.see(path)? {
            Seen::Absent => {}
            Seen::End | Seen::Implied { opaque: true } => return Ok(None),
            Seen::Implied { opaque: false } => implied = true,
            Seen::Explicit(attributes) => {
                return Ok((implied && attributes != PLAIN).then_some(attributes));
            }
        }
    }
    Ok(None)
}

/// Directories above a corrected one have to be in the replica's layer too, with the attributes they have.
fn add_parents(
    layers: &[Layer],
    path: &Path,
    fixes: &mut BTreeMap<PathBuf, DirAttributes>,
) -> Result<(), StoreError> {
    for parent in path
        .ancestors()
        .skip(1)
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        if fixes.contains_key(parent) {
            continue;
        }
        let mut found = PLAIN;
        for layer in layers {
            match layer.see(parent)? {
                Seen::Absent | Seen::Implied { opaque: false } => {}
                Seen::End | Seen::Implied { opaque: true } => break,
                Seen::Explicit(attributes) => {
                    found = attributes;
                    break;
                }
            }
        }
        fixes.insert(parent.to_owned(), found);
    }
    Ok(())
}

impl Layer {
    fn see(&self, path: &Path) -> Result<Seen, StoreError> {
        let mut at = self.fs.clone();
        let mut opaque = false;
        let mut attributes = PLAIN;
        for part in path.components() {
            let Component::Normal(part) = part else {
                return Ok(Seen::End);
            };
            at.push(part);
            let meta = match fs::symlink_metadata(&at) {
                Ok(meta) => meta,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(if opaque { Seen::End } else { Seen::Absent });
                }
                Err(error) => return Err(error).failing("look at", &at),
            };
            if !meta.is_dir() {
                return Ok(Seen::End);
            }
            opaque |= is_opaque(&at);
            attributes = DirAttributes {
                mode: meta.mode() & 0o7777,
                uid: meta.uid(),
                gid: meta.gid(),
            };
        }
        if self.implied.contains(path) {
            return Ok(Seen::Implied { opaque });
        }
        Ok(Seen::Explicit(attributes))
    }
}

//! The side of whoever publishes deployment files: makes a key, and signs a directory. No daemon is needed.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use dhow_server::plane::runtime::read_manifest_files;
use dhow_wire::manifest::{
    INDEX_NAME, ManifestError, ManifestIndex, ManifestSigner, ReceivedSet, SIGNATURE_NAME, parse_manifest,
};

use crate::exit::Exit;
use crate::output;

/// A key file is one short line.
const KEY_FILE_BYTES_MAX: u64 = 256;

/// Make a key to sign with; the public half is printed for `trusted_keys` and `--key`
#[derive(clap::Args)]
pub struct KeygenArgs {
    /// Where the secret half goes; the file must not be there yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Sign a directory of deployment files
///
/// Writes `index.json` and `index.json.sig` into it. Every file below the directory belongs to the set, but for those
/// whose name begins with a dot. All of them are checked first.
#[derive(clap::Args)]
// `--version` is the set's here, not the program's.
#[command(disable_version_flag = true)]
pub struct SignArgs {
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The file that `dhow source keygen` made
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// The version of the set, above that of the one before. By default the time in seconds, or one more than the
    /// last version where that is higher
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

pub fn keygen(args: &KeygenArgs) -> anyhow::Result<Exit> {
    let key = ManifestSigner::from_seed(rand::random());
    dhow_disk::create(&args.file, key.text().as_bytes())
        .with_context(|| format!("{} cannot be made", args.file.display()))?;
    output::data(&format!("{}\n", key.public()))?;
    Ok(Exit::Done)
}

pub fn sign(args: &SignArgs) -> anyhow::Result<Exit> {
    let key = match read_key(&args.key_file) {
        Ok(key) => key,
        Err(error) => {
            output::error(&error);
            return Ok(Exit::BadInput);
        }
    };
    let files = match read_manifest_files(&args.dir) {
        Ok(files) => files,
        Err(error) => {
            output::error(&error.into());
            return Ok(Exit::BadInput);
        }
    };
    let now_unix_secs = output::now_unix_secs();
    let version = args
        .version
        .unwrap_or_else(|| next_version(&args.dir, now_unix_secs));
    let count = files.len();
    let signed = signed(&key, version, now_unix_secs, files);
    let set = match signed {
        Ok(set) => set,
        Err(error) => {
            output::error(&error.into());
            return Ok(Exit::BadInput);
        }
    };
    write_set(&args.dir, &set)?;
    let files = if count == 1 { "file" } else { "files" };
    output::note(&format!(
        "{} is signed: version {version}, {count} {files}, by {}",
        args.dir.display(),
        key.public()
    ));
    Ok(Exit::Done)
}

/// As a server will look at it: what it would refuse is not signed.
fn signed(
    key: &ManifestSigner,
    version: u64,
    now_unix_secs: i64,
    files: BTreeMap<String, Vec<u8>>,
) -> Result<ReceivedSet, ManifestError> {
    let set = key.sign(version, now_unix_secs, files)?;
    let keys: Vec<_> = key.public().verifying().into_iter().collect();
    set.verify(&keys, None, now_unix_secs, 0, &parse_manifest)?;
    Ok(set)
}

fn read_key(path: &Path) -> anyhow::Result<ManifestSigner> {
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    file.take(KEY_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    ManifestSigner::from_text(&text).with_context(|| {
        format!(
            "{} holds no key: `dhow source keygen FILE` makes one",
            path.display()
        )
    })
}

/// Above the version that lies there, if any: a set that is not newer is refused.
fn next_version(dir: &Path, now_unix_secs: i64) -> u64 {
    let now = u64::try_from(now_unix_secs).unwrap_or(0);
    let index = std::fs::read(dir.join(INDEX_NAME)).ok();
    let known: Option<ManifestIndex> = index.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    known.map_or(now, |known| now.max(known.version.saturating_add(1)))
}

/// Both files are written beside their places first, so that what a server reads is whole; between the two it finds
/// an index without its signature, refuses that and looks again. Others than their owner read them.
fn write_set(dir: &Path, set: &ReceivedSet) -> anyhow::Result<()> {
    let parts = [(SIGNATURE_NAME, &set.signature), (INDEX_NAME, &set.index)];
    for (name, bytes) in parts {
        let path = dir.join(format!(".{name}.new"));
        let write = || {
            let mut file = std::fs::File::create(&path)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let folder = dhow_disk::Dir::open(dir).with_context(|| format!("{} cannot be opened", dir.display()))?;
    for (name, _) in parts {
        let named = folder.rename(format!(".{name}.new"), name);
        named.with_context(|| format!("{} cannot be written", dir.join(name).display()))?;
    }
    Ok(())
}

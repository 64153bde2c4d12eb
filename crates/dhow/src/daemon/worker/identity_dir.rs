//! Where a worker keeps who it is: `key.pem`, `cert.pem` and `ca.pem`, for its owner alone. Each file is replaced as a
//! whole, and `cert.pem` comes last, so that whatever cuts a write off the worker is either still the old one or the
//! new one. The key is on disk before it is ever used: should the answer to the first request be lost, the next one is
//! known by the same key and costs no further use of the token.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

use anyhow::Context;
use dhow_disk::Outlives;
use dhow_server::net::keys::{WorkerIdentity, WorkerKey};

const KEY: &str = "key.pem";
const CERT: &str = "cert.pem";
const CA: &str = "ca.pem";
/// The id of the token that the worker joined with, as `dhow token ls` shows it.
const TOKEN_ID: &str = "token.id";

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// The directory in which a worker keeps its key, its certificate and the CA of its cluster. Joining and renewal write
/// it, and the daemon reads it at its start. Its methods block for the moment that small files take.
#[derive(Clone, Debug)]
pub struct IdentityDir {
    dir: PathBuf,
}

impl IdentityDir {
    pub fn open(dir: PathBuf) -> anyhow::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(&dir)
            .and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)))
            .with_context(|| format!("the worker's identity cannot be kept in {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// Who this worker is; none where it has not joined.
    pub fn read(&self) -> anyhow::Result<Option<WorkerIdentity>> {
        let Some(cert) = self.text(CERT)? else {
            return Ok(None);
        };
        let ca = self.text(CA)?.unwrap_or_default();
        let key = self.key_file()?.with_context(|| {
            let dir = self.dir.display();
            format!(
                "{dir} has a certificate and no key: put {KEY} back, or remove {CERT} and join with a new token"
            )
        })?;
        let identity = WorkerIdentity::new(key, &format!("{cert}\n{ca}"));
        let identity = identity.with_context(|| {
            let dir = self.dir.display();
            format!(
                "the worker's identity in {dir} cannot be used; remove {CERT} there and join with a new token"
            )
        })?;
        Ok(Some(identity))
    }

    /// The key to join with, made where there is none.
    pub fn key(&self) -> anyhow::Result<WorkerKey> {
        if let Some(key) = self.key_file()? {
            return Ok(key);
        }
        let key = WorkerKey::generate().context("a key cannot be made")?;
        self.write(KEY, key.reveal_pem().as_bytes())?;
        Ok(key)
    }

    /// Keeps what the cluster answered: the leaf first, then the CAs.
    pub fn keep(&self, chain_pem: &str) -> anyhow::Result<()> {
        let next = chain_pem.match_indices(BEGIN).nth(1).map(|(at, _)| at);
        let (leaf, others) = chain_pem.split_at(next.unwrap_or(chain_pem.len()));
        self.write(CA, others.as_bytes())?;
        self.write(CERT, leaf.as_bytes())
    }

    /// The id of the token that it joined with.
    pub fn token_id(&self) -> anyhow::Result<Option<String>> {
        self.text(TOKEN_ID)
    }

    pub fn keep_token_id(&self, id: &str) -> anyhow::Result<()> {
        self.write(TOKEN_ID, id.as_bytes())
    }

    /// The cluster does not know this worker any more: whoever joins next is another one.
    pub fn forget(&self) -> anyhow::Result<()> {
        for name in [CERT, KEY] {
            let path = self.dir.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("{} cannot be removed", path.display()));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn key_file(&self) -> anyhow::Result<Option<WorkerKey>> {
        let Some(pem) = self.text(KEY)? else {
            return Ok(None);
        };
        let path = self.dir.join(KEY);
        let mode = fs::metadata(&path).map(|found| found.permissions().mode());
        anyhow::ensure!(
            mode.is_ok_and(|mode| mode & 0o077 == 0),
            "others than its owner may read the worker's key; run `chmod 600 {}`",
            path.display()
        );
        let key = WorkerKey::from_pem(&pem);
        let key = key.with_context(|| format!("{} is no key of a worker", path.display()))?;
        Ok(Some(key))
    }

    fn text(&self, name: &str) -> anyhow::Result<Option<String>> {
        let path = self.dir.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let path = self.dir.join(name);
        let written = dhow_disk::replace(&path, content, Outlives::PowerCut);
        written.with_context(|| format!("{} cannot be written", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_stays_and_only_its_owner_reads_it() {
        let dir = std::env::temp_dir().join(format!("dhow-identity-{}", std::process::id()));
        let identity = IdentityDir::open(dir.clone()).unwrap();
        let first = identity.key().unwrap().csr_pem().unwrap();
        assert_eq!(identity.key().unwrap().csr_pem().unwrap(), first);
        let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode(KEY)), (0o700, 0o600));
        assert!(identity.read().unwrap().is_none(), "it has not joined");
        identity
            .keep(&format!("{BEGIN}\na\n{BEGIN}\nb\n{BEGIN}\nc\n"))
            .unwrap();
        assert_eq!(
            fs::read_to_string(dir.join(CERT)).unwrap(),
            format!("{BEGIN}\na\n")
        );
        let others = fs::read_to_string(dir.join(CA)).unwrap();
        assert_eq!(others, format!("{BEGIN}\nb\n{BEGIN}\nc\n"));
        assert_eq!((mode(CERT), mode(CA)), (0o600, 0o600));
        let error = identity.read().unwrap_err();
        assert!(error.to_string().contains("join with a new token"), "{error}");
        fs::set_permissions(dir.join(KEY), fs::Permissions::from_mode(0o644)).unwrap();
        let error = identity.key().unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        identity.forget().unwrap();
        assert_ne!(identity.key().unwrap().csr_pem().unwrap(), first);
        fs::remove_dir_all(dir).unwrap();
    }
}

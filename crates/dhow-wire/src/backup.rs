//! A backup of a cluster: its whole state in one file, with a checksum over all of it.
//!
//! Written by the leader for `dhow cluster backup`, read by `dhow cluster restore`. Secrets are in it as they are
//! stored, sealed: whoever restores needs the key of the cluster as well.

use dhow_core::state::State;

use crate::log_form::{LogFormError, decode_snapshot, encode_snapshot};

/// The first bytes of every backup, with the version of the form.
const MAGIC: &[u8; 16] = b"dhow-backup-v1\n\0";
const HASH_BYTES: usize = 32;

/// Why a file cannot be restored from.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("this is no backup of Dhow: it does not begin like one")]
    NoBackup,
    #[error("the backup is damaged or not whole: its checksum does not fit; take another one")]
    Damaged,
    #[error("the state cannot be read or written")]
    State(#[from] LogFormError),
}

/// The bytes of a backup.
pub fn write_backup(state: &State) -> Result<Vec<u8>, BackupError> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&[0; HASH_BYTES]);
    encode_snapshot(state, &mut bytes)?;
    let hash = blake3::hash(&bytes[MAGIC.len() + HASH_BYTES..]);
    bytes[MAGIC.len()..MAGIC.len() + HASH_BYTES].copy_from_slice(hash.as_bytes());
    Ok(bytes)
}

/// The state in a backup.
pub fn read_backup(bytes: &[u8]) -> Result<State, BackupError> {
    let rest = bytes
        .strip_prefix(MAGIC.as_slice())
        .ok_or(BackupError::NoBackup)?;
    let (hash, state) = rest
        .split_first_chunk::<HASH_BYTES>()
        .ok_or(BackupError::Damaged)?;
    if blake3::hash(state) != *hash {
        return Err(BackupError::Damaged);
    }
    Ok(decode_snapshot(state)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let state = State {
            cluster_id: Some("c".into()),
            ..State::default()
        };
        let bytes = write_backup(&state).unwrap();
        assert_eq!(read_backup(&bytes).unwrap(), state);
    }

    #[test]
    fn a_change_of_any_byte_and_every_cut_are_noticed() {
        let bytes = write_backup(&State::default()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read_backup(&changed).is_err(), "byte {at}");
            assert!(read_backup(&bytes[..at]).is_err(), "cut at {at}");
        }
        assert!(matches!(read_backup(b""), Err(BackupError::NoBackup)));
    }
}

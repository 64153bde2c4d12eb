//! Keys on disk, and values that only their own name opens.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use dhow_core::state::{Secret, State};
use tempfile::TempDir;

use super::*;
use crate::net::keys::ClusterKey;

#[test]
fn a_value_is_opened_by_its_key_and_its_name_alone() {
    let dir = TempDir::new().unwrap();
    let secrets = SecretBox::open(dir.path()).unwrap();
    let sealed = secrets.seal("db-password", b"hunter2").unwrap();
    assert_ne!(
        sealed,
        secrets.seal("db-password", b"hunter2").unwrap(),
        "no nonce twice"
    );
    assert!(!sealed.windows(7).any(|bytes| bytes == b"hunter2"));
    let again = SecretBox::open(dir.path()).unwrap();
    assert_eq!(again.unseal("db-password", &sealed).unwrap(), b"hunter2");
    assert_eq!(again.unseal("other", &sealed), Err(SealError::Unseal));
    for place in 0..sealed.len() {
        let mut broken = sealed.clone();
        broken[place] ^= 1;
        assert!(again.unseal("db-password", &broken).is_err(), "byte {place}");
        assert!(
            again.unseal("db-password", &sealed[..place]).is_err(),
            "cut at {place}"
        );
    }
    let stranger = SecretBox::open(TempDir::new().unwrap().path()).unwrap();
    assert_eq!(stranger.unseal("db-password", &sealed), Err(SealError::Unseal));
    assert_eq!(secrets.fingerprint(b"a"), again.fingerprint(b"a"));
    assert_ne!(secrets.fingerprint(b"a"), stranger.fingerprint(b"a"));
}

#[test]
fn the_key_is_its_owners_alone() {
    let dir = TempDir::new().unwrap();
    SecretBox::open(dir.path()).unwrap();
    let path = dir.path().join("secrets.key");
    let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(
        SecretBox::open(dir.path()),
        Err(KeyFileError::Open { .. })
    ));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, [7; 33]).unwrap();
    assert!(matches!(
        SecretBox::open(dir.path()),
        Err(KeyFileError::Size { found: 33, .. })
    ));
}

#[test]
fn what_a_spec_names_is_unsealed_or_told() {
    let dir = TempDir::new().unwrap();
    let secrets = SecretBox::open(dir.path()).unwrap();
    let mut state = State::default();
    let sealed = |name, value: &[u8]| {
        Arc::new(Secret {
            sealed: secrets.seal(name, value).unwrap().into(),
            version: 1,
            earlier: Default::default(),
        })
    };
    state.secrets.insert("a".into(), sealed("a", b"one"));
    state.secrets.insert("b".into(), sealed("a", b"moved"));
    let found = unseal_all(&secrets, &state, ["a"]).unwrap();
    assert_eq!(found.0["a"], b"one");
    assert_eq!(format!("{found:?}"), "{\"a\"}");
    assert_eq!(
        unseal_all(&secrets, &state, ["a", "c"]),
        Err(UnsealError::Missing("c".into()))
    );
    assert!(matches!(
        unseal_all(&secrets, &state, ["b"]),
        Err(UnsealError::Sealed { .. })
    ));
}

#[test]
fn all_servers_open_the_same_secrets() {
    let line = ClusterKey::generate().unwrap().reveal();
    let of = |line: &str| SecretBox::from_cluster_key(&ClusterKey::parse(line).unwrap());
    let sealed = of(&line).seal("db", b"hunter2").unwrap();
    assert_eq!(of(&line).unseal("db", &sealed).unwrap(), b"hunter2");
    let other = ClusterKey::generate().unwrap().reveal();
    assert!(of(&other).unseal("db", &sealed).is_err());
}

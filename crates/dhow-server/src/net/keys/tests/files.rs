//! The key and its file.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::net::keys::{ClusterKey, ClusterKeyError};

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_key_is_one_line_and_reads_back() {
    let key = ClusterKey::generate().unwrap();
    let line = key.reveal();
    assert!(
        line.starts_with("dhowkey1.") && line.len() == 9 + 43,
        "{}",
        line.len()
    );
    let is_url_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    assert!(line.bytes().all(is_url_safe));
    assert_eq!(ClusterKey::parse(&line).unwrap().reveal(), line);
    assert_eq!(
        ClusterKey::parse(&format!(" {}\r\n", *line)).unwrap().reveal(),
        line
    );
    assert_ne!(ClusterKey::generate().unwrap().reveal(), line);
    assert_eq!(format!("{key:?}"), "ClusterKey");
}

#[test]
fn what_is_no_key_is_told() {
    let line = ClusterKey::generate().unwrap().reveal();
    let refused = |text: &str| ClusterKey::parse(text).unwrap_err();
    assert!(matches!(refused(" \n"), ClusterKeyError::Empty));
    assert!(matches!(refused("hello"), ClusterKeyError::Form));
    assert!(matches!(refused(&line[9..]), ClusterKeyError::Form));
    assert!(matches!(
        refused(&line[..line.len() - 1]),
        ClusterKeyError::Damaged
    ));
    assert!(matches!(
        refused(&format!("{}A", *line)),
        ClusterKeyError::Damaged
    ));
    assert!(matches!(
        refused(&format!("{}\n{}", *line, *line)),
        ClusterKeyError::Damaged
    ));
    for error in [refused("hello"), refused(&line[..20])] {
        assert!(!format!("{error} {error:?}").contains(&line[9..20]));
    }
}

#[test]
fn the_file_is_its_owners_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("cluster.key");
    let error = ClusterKey::read_file(&path).unwrap_err();
    assert!(matches!(error, ClusterKeyError::Missing { .. }));
    assert!(error.to_string().contains("dhow cluster keygen"), "{error}");
    let line = ClusterKey::generate().unwrap().reveal();
    write(&path, &format!("{}\n", *line), 0o600);
    assert_eq!(ClusterKey::read_file(&path).unwrap().reveal(), line);
    for mode in [0o640, 0o604, 0o644, 0o660] {
        write(&path, &line, mode);
        let error = ClusterKey::read_file(&path).unwrap_err();
        assert!(matches!(error, ClusterKeyError::Open { .. }), "{mode:o}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    write(&path, "not a key", 0o600);
    assert!(matches!(
        ClusterKey::read_file(&path).unwrap_err(),
        ClusterKeyError::File { .. }
    ));
    assert!(matches!(
        ClusterKey::read_file(dir.path()).unwrap_err(),
        ClusterKeyError::Io { .. } | ClusterKeyError::Open { .. }
    ));
}

#[test]
fn every_use_has_its_own_key() {
    let key = ClusterKey::generate().unwrap();
    let token_key = key.worker_token_key().to_bytes();
    let all = [
        *key.cluster_ca_seed(),
        *key.worker_ca_seed(1),
        *key.worker_ca_seed(2),
        *key.secrets_key(),
        token_key,
    ];
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

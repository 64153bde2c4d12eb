//! Every refusal, and that an honest set passes.

use std::collections::BTreeMap;

use dhow_core::ids::DeploymentName;
use dhow_core::spec::{DeploymentSpec, SpecVersion};
use dhow_core::state::ManifestVersion;
use ed25519_dalek::SigningKey;

use super::sign::sign_set;
use super::*;
use crate::signing::Domain;

const NOW: i64 = 1_800_000_000;
const SKEW_SECS: u32 = 60;

fn key() -> SigningKey {
    SigningKey::from_bytes(&[5; 32])
}

/// Stands for the reader of deployment files: a file is the name of its deployment.
fn parse(_path: &str, text: &str) -> Result<DeploymentSpec, String> {
    let deployment = DeploymentName::new(text.trim()).map_err(|error| error.to_string())?;
    Ok(DeploymentSpec {
        version: SpecVersion::V1,
        deployment,
        services: BTreeMap::new(),
        scaled: Default::default(),
        configs: Default::default(),
    })
}

fn files(list: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    list.iter()
        .map(|(path, text)| ((*path).into(), text.as_bytes().to_vec()))
        .collect()
}

fn set(version: u64) -> ReceivedSet {
    let files = files(&[("shop.yaml", "shop\n"), ("team-a/blog.yaml", "blog\n")]);
    sign_set(&key(), version, NOW, files).unwrap()
}

fn verify_after(set: &ReceivedSet, previous: Option<&ManifestVersion>) -> Result<Verdict, ManifestError> {
    set.verify(&[key().verifying_key()], previous, NOW, SKEW_SECS, &parse)
}

fn refused(set: &ReceivedSet) -> ManifestError {
    verify_after(set, None).unwrap_err()
}

fn newer(verdict: Verdict) -> VerifiedSet {
    match verdict {
        Verdict::Newer(set) => set,
        Verdict::Unchanged => panic!("the set is new"),
    }
}

/// A set with this index, signed as it is.
fn with_index(index: &[u8], files: BTreeMap<String, Vec<u8>>) -> ReceivedSet {
    let signature = Domain::ManifestIndex.sign(&key(), &[index]);
    ReceivedSet {
        index: index.to_vec(),
        signature: crate::hex::encode(&signature).into_bytes(),
        files,
    }
}

fn index_of(paths: &[&str]) -> Vec<u8> {
    let files = paths.iter().map(|path| ManifestFile {
        path: (*path).into(),
        blake3: FileHash::of(b"shop\n"),
        size_bytes: 5,
    });
    serde_json::to_vec(&ManifestIndex {
        version: 1,
        created_unix_secs: NOW,
        files: files.collect(),
    })
    .unwrap()
}

#[test]
fn an_honest_set_passes() {
    let verified = newer(verify_after(&set(7), None).unwrap());
    assert_eq!(verified.version().version, 7);
    let names: Vec<&str> = verified
        .deployments()
        .keys()
        .map(DeploymentName::as_str)
        .collect();
    assert_eq!(names, ["blog", "shop"]);
    let empty = sign_set(&key(), 1, NOW, BTreeMap::new()).unwrap();
    assert_eq!(newer(verify_after(&empty, None).unwrap()).deployments().len(), 0);
}

#[test]
fn the_index_and_its_signature_have_fixed_bytes() {
    let set = sign_set(&key(), 3, NOW, files(&[("shop.yaml", "shop\n")])).unwrap();
    let hash = FileHash::of(b"shop\n");
    assert_eq!(
        str::from_utf8(&set.index).unwrap(),
        format!(
            "{{\n  \"version\": 3,\n  \"created_unix_secs\": 1800000000,\n  \"files\": [\n    {{\n      \
             \"path\": \"shop.yaml\",\n      \"blake3\": \"{hash}\",\n      \"size_bytes\": 5\n    }}\n  ]\n}}"
        )
    );
    assert_eq!(set.signature.len(), 129);
    assert_eq!(SIGNATURE_TEXT_BYTES_MAX, 130);
}

#[test]
fn a_tampered_index_or_signature_is_refused() {
    let set = set(1);
    for bit in 0..set.index.len() * 8 {
        let mut changed = set.clone();
        changed.index[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(refused(&changed), ManifestError::BadSignature);
    }
    for bit in 0..set.signature.len() * 8 {
        let mut changed = set.clone();
        changed.signature[bit / 8] ^= 1 << (bit % 8);
        let error = refused(&changed);
        assert!(
            matches!(
                error,
                ManifestError::BadSignature | ManifestError::MalformedSignature
            ),
            "{error:?}"
        );
    }
    let mut longer = set.clone();
    longer.index.push(b'\n');
    assert_eq!(refused(&longer), ManifestError::BadSignature);
    for signature in [&b""[..], b"00", &[0; 64], &[b'0'; 129], "é".as_bytes()] {
        let mut changed = set.clone();
        changed.signature = signature.to_vec();
        assert_eq!(refused(&changed), ManifestError::MalformedSignature);
    }
    let stranger = SigningKey::from_bytes(&[6; 32]).verifying_key();
    assert_eq!(
        set.verify(&[stranger], None, NOW, SKEW_SECS, &parse),
        Err(ManifestError::BadSignature)
    );
    // A signature for another purpose over the same bytes.
    let mut other = set.clone();
    let signature = Domain::WorkerBootstrapToken.sign(&key(), &[&set.index]);
    other.signature = crate::hex::encode(&signature).into_bytes();
    assert_eq!(refused(&other), ManifestError::BadSignature);
}

#[test]
fn tampered_swapped_missing_and_extra_files_are_refused() {
    let path = || "shop.yaml".to_owned();
    let mut tampered = set(1);
    tampered.files.insert(path(), b"shap\n".to_vec());
    assert_eq!(refused(&tampered), ManifestError::WrongHash { path: path() });

    let mut swapped = set(1);
    swapped.files.insert(path(), b"blog\n".to_vec());
    swapped
        .files
        .insert("team-a/blog.yaml".into(), b"shop\n".to_vec());
    assert_eq!(refused(&swapped), ManifestError::WrongHash { path: path() });

    let mut longer = set(1);
    longer.files.insert(path(), b"shop\n\n".to_vec());
    assert_eq!(
        refused(&longer),
        ManifestError::WrongSize {
            path: path(),
            expected: 5,
            found: 6
        }
    );

    let mut missing = set(1);
    missing.files.remove("shop.yaml");
    assert_eq!(refused(&missing), ManifestError::MissingFile { path: path() });

    let mut extra = set(1);
    extra.files.insert("../../etc/x".into(), Vec::new());
    assert_eq!(
        refused(&extra),
        ManifestError::ExtraFile {
            path: "../../etc/x".into()
        }
    );
}

#[test]
fn versions_only_go_up() {
    let in_force = newer(verify_after(&set(5), None).unwrap()).version();
    let after = |set: &ReceivedSet| verify_after(set, Some(&in_force));
    assert_eq!(after(&set(5)), Ok(Verdict::Unchanged));
    assert_eq!(newer(after(&set(6)).unwrap()).version().version, 6);
    assert_eq!(newer(after(&set(u64::MAX)).unwrap()).version().version, u64::MAX);
    for version in [0, 4] {
        assert_eq!(
            after(&set(version)),
            Err(ManifestError::Older {
                found: version,
                previous: 5
            })
        );
    }
    let other = sign_set(&key(), 5, NOW, files(&[("shop.yaml", "other\n")])).unwrap();
    assert_eq!(
        after(&other),
        Err(ManifestError::SameVersionOtherContent { version: 5 })
    );
    // An unchanged set is still refused where its signature is not good.
    let mut forged = set(5);
    forged.signature = vec![b'0'; 128];
    assert_eq!(after(&forged), Err(ManifestError::BadSignature));
}

#[test]
fn dates_may_differ_by_the_skew_only() {
    let dated = |version, at| sign_set(&key(), version, at, BTreeMap::new()).unwrap();
    assert!(verify_after(&dated(1, NOW + 60), None).is_ok());
    assert_eq!(
        refused(&dated(1, NOW + 61)),
        ManifestError::FutureDated {
            ahead_secs: 61,
            allowed_secs: 60
        }
    );
    assert!(matches!(
        refused(&dated(1, i64::MAX)),
        ManifestError::FutureDated { .. }
    ));
    assert!(
        verify_after(&dated(1, i64::MIN), None).is_ok(),
        "an old set is no threat where none is in force"
    );

    let in_force = newer(verify_after(&dated(5, NOW), None).unwrap()).version();
    assert!(verify_after(&dated(6, NOW - 60), Some(&in_force)).is_ok());
    assert_eq!(
        verify_after(&dated(6, NOW - 61), Some(&in_force)),
        Err(ManifestError::BackDated {
            found: 6,
            previous: 5,
            behind_secs: 61,
            allowed_secs: 60
        })
    );
    assert!(matches!(
        verify_after(&dated(6, i64::MIN), Some(&in_force)),
        Err(ManifestError::BackDated { .. })
    ));
}

#[test]
fn paths_are_plain() {
    for path in [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../x.yaml",
        "a/../b.yaml",
        "a/./b.yaml",
        "a//b.yaml",
        "a/",
        ".hidden",
        "a/.git/config",
        "a\\b.yaml",
        "C:x.yaml",
        "a b.yaml",
        "é.yaml",
        "a\0b",
        "a\nb",
        "~/x",
        &"a".repeat(256),
    ] {
        let set = with_index(&index_of(&[path]), files(&[(path, "shop\n")]));
        assert!(
            matches!(refused(&set), ManifestError::BadPath { .. }),
            "{path:?} passed"
        );
        assert!(
            sign_set(&key(), 1, NOW, files(&[(path, "shop\n")])).is_err(),
            "{path:?} was signed"
        );
    }
    for path in ["index.json", "index.json.sig"] {
        let set = with_index(&index_of(&[path]), files(&[(path, "shop\n")]));
        assert_eq!(refused(&set), ManifestError::ReservedPath { path: path.into() });
    }
    for path in ["a.yaml", "A/b-c_d.0.yml", "index.json.d/x", &"a".repeat(255)] {
        let set = with_index(&index_of(&[path]), files(&[(path, "shop\n")]));
        verify_after(&set, None).unwrap();
    }
    let twice = with_index(&index_of(&["a.yaml", "a.yaml"]), files(&[("a.yaml", "shop\n")]));
    assert_eq!(
        refused(&twice),
        ManifestError::DuplicatePath {
            path: "a.yaml".into()
        }
    );
}

#[test]
fn a_signed_index_must_still_be_one() {
    let valid = index_of(&[]);
    let text = str::from_utf8(&valid).unwrap();
    let unknown = text.replacen('{', "{\"run\":1,", 1);
    let duplicate = text.replacen('{', "{\"version\":9,", 1);
    for index in ["", "{}", "null", "[]", &unknown, &duplicate, &format!("{text}x")] {
        let set = with_index(index.as_bytes(), BTreeMap::new());
        assert!(
            matches!(refused(&set), ManifestError::MalformedIndex { .. }),
            "{index} passed"
        );
    }
    let upper = str::from_utf8(&index_of(&["a.yaml"]))
        .unwrap()
        .replace("\"blake3\":\"", "\"blake3\":\"AA");
    let set = with_index(upper.as_bytes(), files(&[("a.yaml", "shop\n")]));
    assert!(matches!(refused(&set), ManifestError::MalformedIndex { .. }));
}

#[test]
fn what_is_too_large_is_refused_before_anything_else() {
    let huge_index = ReceivedSet {
        index: vec![b' '; INDEX_BYTES_MAX + 1],
        ..ReceivedSet::default()
    };
    assert!(matches!(
        refused(&huge_index),
        ManifestError::IndexTooLarge { .. }
    ));
    let many = |count: usize| (0..count).map(|n| (n.to_string(), Vec::new())).collect();
    let many_files = ReceivedSet {
        files: many(FILES_MAX + 1),
        ..ReceivedSet::default()
    };
    assert_eq!(refused(&many_files), ManifestError::TooManyFiles { found: 1_001 });
    let large = |count: usize, bytes: u64| -> BTreeMap<String, Vec<u8>> {
        (0..count)
            .map(|n| (n.to_string(), vec![0; bytes as usize]))
            .collect()
    };
    let large_file = ReceivedSet {
        files: large(1, FILE_BYTES_MAX + 1),
        ..ReceivedSet::default()
    };
    assert!(matches!(refused(&large_file), ManifestError::FileTooLarge { .. }));
    let large_set = ReceivedSet {
        files: large(65, FILE_BYTES_MAX),
        ..ReceivedSet::default()
    };
    assert!(matches!(refused(&large_set), ManifestError::SetTooLarge { .. }));
    assert!(sign_set(&key(), 1, NOW, large_set.files).is_err());
    // An index may claim more files than it brings.
    let paths: Vec<String> = (0..=FILES_MAX).map(|n| format!("{n}.yaml")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let claims = with_index(&index_of(&paths), BTreeMap::new());
    assert_eq!(refused(&claims), ManifestError::TooManyFiles { found: 1_001 });
    // And the largest set that is allowed has an index within its limit.
    let full: Vec<String> = (0..FILES_MAX).map(|n| format!("{n:0255}")).collect();
    let files = full
        .iter()
        .map(|path| (path.clone(), b"shop\n".to_vec()))
        .collect();
    assert!(sign_set(&key(), 1, NOW, files).is_ok());
}

#[test]
fn deployments_are_read_strictly_and_once() {
    let signed = |list: &[(&str, &str)]| sign_set(&key(), 1, NOW, files(list)).unwrap();
    assert!(matches!(
        refused(&signed(&[("a.yaml", "NOT A NAME")])),
        ManifestError::InvalidDeployment { path, .. } if path == "a.yaml"
    ));
    assert_eq!(
        refused(&signed(&[("a.yaml", "shop"), ("b.yaml", "shop")])),
        ManifestError::DuplicateDeployment {
            deployment: "shop".into(),
            path: "b.yaml".into(),
            other: "a.yaml".into()
        }
    );
    let binary = BTreeMap::from([("a.yaml".to_owned(), vec![0xff])]);
    let binary = sign_set(&key(), 1, NOW, binary).unwrap();
    assert_eq!(
        refused(&binary),
        ManifestError::NotText {
            path: "a.yaml".into()
        }
    );
}

/// With the reader that the cluster uses.
#[test]
fn real_deployment_files() {
    let verify = |text: &str| {
        let set = sign_set(&key(), 1, NOW, files(&[("shop.yaml", text)])).unwrap();
        set.verify(&[key().verifying_key()], None, NOW, SKEW_SECS, &parse_manifest)
    };
    let text = "version: v1\ndeployment: shop\nservices:\n  web:\n    image: nginx:1.27\n";
    let verified = newer(verify(text).unwrap());
    assert_eq!(verified.deployments()["shop"].services.len(), 1);
    let wrong = verify(&text.replace("image", "imagge")).unwrap_err();
    assert!(
        wrong
            .to_string()
            .starts_with("shop.yaml is not a valid deployment file:\n"),
        "{wrong}"
    );
    assert!(wrong.to_string().contains("imagge"), "{wrong}");
    // A signed set means the same everywhere: no host's environment has a say in it.
    let borrowed = verify(&format!("{text}    env: {{ A: \"$E:PATH\" }}\n")).unwrap_err();
    assert!(borrowed.to_string().contains("PATH"), "{borrowed}");
}

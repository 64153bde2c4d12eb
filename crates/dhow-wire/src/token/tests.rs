//! Every refusal, and that nothing but the issued bytes is accepted.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::ids::NodeId;
use proptest::prelude::*;

use super::*;
use crate::testing::config;

const NOW: i64 = 1_800_000_000;

fn key() -> SigningKey {
    SigningKey::from_bytes(&[42; 32])
}

fn claims() -> TokenClaims {
    TokenClaims {
        cluster_id: "c-1".into(),
        issued_unix_secs: NOW,
        expires_unix_secs: NOW + 3_600,
        uses: 2,
        nonce: TokenNonce([9; 16]),
        ca_fingerprint: CaFingerprint([0xab; 32]),
        allowed_labels: None,
        allowed_node_ids: BTreeSet::new(),
    }
}

fn line() -> String {
    WorkerBootstrapToken::issue(&key(), claims()).unwrap().reveal()
}

fn verify(text: &str) -> Result<VerifiedToken, TokenError> {
    WorkerBootstrapToken::parse(text)?.verify(&key().verifying_key(), "c-1", NOW)
}

fn malformed(text: &str) -> MalformedToken {
    match verify(text).unwrap_err() {
        TokenError::Malformed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_issued_token_is_one_line_and_verifies() {
    let line = line();
    assert!(
        line.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'),
        "{line}"
    );
    let token = verify(&line).unwrap();
    assert_eq!(token.claims, claims());
    assert_eq!(token.nonce(), TokenNonce([9; 16]));
    verify(&format!("  {line}\n")).unwrap();
    let carried = WorkerBootstrapToken::parse(&line).unwrap();
    assert_eq!(carried.cluster_id(), "c-1");
    assert_eq!(carried.ca_fingerprint().to_string(), "ab".repeat(32));
}

/// Tokens are in the field: a change of these bytes needs a new version.
#[test]
fn the_bytes_are_fixed() {
    let bytes = URL_SAFE_NO_PAD.decode(line()).unwrap();
    assert_eq!(bytes[0], 1);
    let body = str::from_utf8(&bytes[65..]).unwrap();
    assert_eq!(
        body,
        format!(
            "{{\"cluster_id\":\"c-1\",\"issued_unix_secs\":1800000000,\"expires_unix_secs\":1800003600,\"uses\":2,\
             \"nonce\":\"{}\",\"ca_fingerprint\":\"{}\"}}",
            "09".repeat(16),
            "ab".repeat(32)
        )
    );
    assert!(line().starts_with(GOLDEN_START), "{}", line());
}

/// The version and the signature, which is deterministic, and with it the domain that is signed.
const GOLDEN_START: &str =
    "Aa1yQ-vRgUBxQryWdHCcXNEW40h-N6KQNblsX96ckk5amOcvqz_vbHeM0ZFTmHDF-DGrctaj7mhsaUxmFCGD";

#[test]
fn every_flipped_bit_is_refused() {
    let line = line();
    let bytes = URL_SAFE_NO_PAD.decode(&line).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        verify(&URL_SAFE_NO_PAD.encode(&changed)).unwrap_err();
    }
    let mut refused = 0;
    for bit in 0..line.len() * 8 {
        let mut changed = line.clone().into_bytes();
        changed[bit / 8] ^= 1 << (bit % 8);
        // A bit that leaves no text never gets to be parsed.
        if let Ok(text) = str::from_utf8(&changed) {
            verify(text).unwrap_err();
            refused += 1;
        }
    }
    assert_eq!(refused, line.len() * 7, "one bit of each byte leaves ASCII");
}

#[test]
fn truncated_extended_and_padded_tokens_are_refused() {
    let line = line();
    for end in 0..line.len() {
        verify(&line[..end]).unwrap_err();
        verify(&line[end + 1..]).unwrap_err();
    }
    for tail in ["A", "AA", "AAAA", "=", "==", "\n\nA", " A", &line] {
        verify(&format!("{line}{tail}")).unwrap_err();
    }
    let bytes = URL_SAFE_NO_PAD.decode(&line).unwrap();
    for extra in [b' ', b'\n', 0, b'}'] {
        let mut longer = bytes.clone();
        longer.push(extra);
        verify(&URL_SAFE_NO_PAD.encode(&longer)).unwrap_err();
    }
    assert_eq!(malformed(&format!("{line}=")), MalformedToken::NotBase64);
}

#[test]
fn what_is_no_token_is_malformed() {
    assert_eq!(malformed(""), MalformedToken::Empty);
    assert_eq!(malformed(" \n"), MalformedToken::Empty);
    assert_eq!(malformed("not a token!"), MalformedToken::NotBase64);
    assert_eq!(malformed("AQ"), MalformedToken::Truncated);
    assert_eq!(malformed("AgAA"), MalformedToken::OtherVersion { found: 2 });
    assert_eq!(malformed(&"A".repeat(100_000_000)), MalformedToken::TooLong);
    let mut no_claims = vec![1];
    no_claims.extend([0; 64]);
    assert_eq!(
        malformed(&URL_SAFE_NO_PAD.encode(&no_claims)),
        MalformedToken::Claims
    );
    no_claims.extend(b"{}");
    assert_eq!(
        malformed(&URL_SAFE_NO_PAD.encode(&no_claims)),
        MalformedToken::Claims
    );
}

/// Signs a body of any form with the cluster's own key.
fn signed(body: &str) -> String {
    let signature = Domain::WorkerBootstrapToken.sign(&key(), &[&[VERSION], body.as_bytes()]);
    let bytes = [&[VERSION], signature.as_slice(), body.as_bytes()].concat();
    URL_SAFE_NO_PAD.encode(bytes)
}

#[test]
fn claims_that_this_version_does_not_know_are_refused() {
    let mut body = serde_json::to_value(claims()).unwrap();
    verify(&signed(&body.to_string())).unwrap();
    body["only_on_sundays"] = true.into();
    assert_eq!(malformed(&signed(&body.to_string())), MalformedToken::Claims);
    let mut long = claims();
    long.cluster_id = "x".repeat(129);
    let body = serde_json::to_string(&long).unwrap();
    assert_eq!(malformed(&signed(&body)), MalformedToken::Claims);
}

#[test]
fn each_refusal_has_its_own_error() {
    let token = || WorkerBootstrapToken::parse(&line()).unwrap();
    let own = key().verifying_key();
    let stranger = SigningKey::from_bytes(&[1; 32]);
    assert_eq!(
        token().verify(&stranger.verifying_key(), "c-1", NOW),
        Err(TokenError::BadSignature)
    );
    assert!(token().verify(&own, "c-1", NOW + 3_599).is_ok());
    assert_eq!(
        token().verify(&own, "c-1", NOW + 3_600),
        Err(TokenError::Expired { ago_secs: 0 })
    );
    assert_eq!(
        token().verify(&own, "c-1", i64::MAX),
        Err(TokenError::Expired {
            ago_secs: i64::MAX.abs_diff(NOW + 3_600)
        })
    );
    assert!(
        token().verify(&own, "c-1", i64::MIN).is_ok(),
        "a clock that is behind refuses nobody"
    );
    // Another cluster has another key too; its owner is told the real reason.
    let foreign = WorkerBootstrapToken::issue(
        &stranger,
        TokenClaims {
            cluster_id: "c-2".into(),
            ..claims()
        },
    );
    assert_eq!(
        foreign.unwrap().verify(&own, "c-1", NOW),
        Err(TokenError::AnotherCluster {
            of_token: "c-2".into(),
            own: "c-1".into()
        })
    );
}

#[test]
fn refusals_have_different_words_and_codes() {
    let errors = [
        TokenError::Malformed(MalformedToken::Empty),
        TokenError::BadSignature,
        TokenError::Expired { ago_secs: 5 },
        TokenError::UsedUp { uses: 1 },
        TokenError::AnotherCluster {
            of_token: "b".into(),
            own: "a".into(),
        },
        TokenError::LabelNotAllowed {
            key: "zone".into(),
            value: "b".into(),
        },
    ];
    let words: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
    let codes: BTreeSet<_> = errors.iter().map(TokenError::problem_code).collect();
    assert_eq!((words.len(), codes.len()), (errors.len(), errors.len()));
    for (error, word) in errors.iter().zip([
        "malformed",
        "bad signature",
        "expired",
        "used up",
        "another cluster",
        "zone=b",
    ]) {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn labels_are_checked_where_the_token_names_them() {
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    };
    let any = verify(&line()).unwrap();
    assert_eq!(any.check_labels(&labels(&[("zone", "a")])), Ok(()));
    // By this one a node is given keys: a token that does not name it does not allow it.
    let ingress = labels(&[("ingress", "true"), ("zone", "a")]);
    let refused = any.check_labels(&ingress).unwrap_err();
    assert!(refused.to_string().contains("ingress=true"), "{refused}");
    let named = TokenClaims {
        allowed_labels: Some(BTreeMap::from([
            ("ingress".to_owned(), BTreeSet::from(["true".to_owned()])),
            ("zone".to_owned(), BTreeSet::new()),
        ])),
        ..claims()
    };
    let named = WorkerBootstrapToken::issue(&key(), named).unwrap();
    let named = verify(&named.reveal()).unwrap();
    assert_eq!(named.check_labels(&ingress), Ok(()));
    let allowed = BTreeMap::from([
        (
            "zone".to_owned(),
            BTreeSet::from(["a".to_owned(), "b".to_owned()]),
        ),
        ("disk".to_owned(), BTreeSet::new()),
    ]);
    let token = WorkerBootstrapToken::issue(
        &key(),
        TokenClaims {
            allowed_labels: Some(allowed),
            ..claims()
        },
    );
    let token = verify(&token.unwrap().reveal()).unwrap();
    assert_eq!(token.check_labels(&labels(&[])), Ok(()));
    assert_eq!(
        token.check_labels(&labels(&[("zone", "b"), ("disk", "any")])),
        Ok(())
    );
    for (key, value) in [("zone", "c"), ("rack", "1"), ("zone", "")] {
        assert_eq!(
            token.check_labels(&labels(&[(key, value)])),
            Err(TokenError::LabelNotAllowed {
                key: key.into(),
                value: value.into()
            })
        );
    }
}

#[test]
fn node_ids_are_those_that_the_token_names() {
    let ids = |claims: TokenClaims, wish: Option<u64>| -> Vec<u64> {
        let token = WorkerBootstrapToken::issue(&key(), claims).unwrap();
        let token = verify(&token.reveal()).unwrap();
        token.node_ids(wish.map(NodeId)).map(|id| id.0).collect()
    };
    assert_eq!(
        ids(claims(), Some(40)),
        [0; 0],
        "a token that names none allows none"
    );
    let named = TokenClaims {
        allowed_node_ids: BTreeSet::from([40, 41]),
        ..claims()
    };
    assert_eq!(ids(named.clone(), Some(41)), [41]);
    assert_eq!(ids(named.clone(), Some(42)), [0; 0]);
    assert_eq!(ids(named, None), [40, 41]);
}

#[test]
fn a_useless_token_is_not_issued() {
    for wrong in [
        TokenClaims {
            allowed_node_ids: BTreeSet::from([0]),
            ..claims()
        },
        TokenClaims {
            allowed_node_ids: BTreeSet::from([NodeId::MAX.0 + 1]),
            ..claims()
        },
        TokenClaims { uses: 0, ..claims() },
        TokenClaims {
            expires_unix_secs: NOW,
            ..claims()
        },
        TokenClaims {
            cluster_id: String::new(),
            ..claims()
        },
        TokenClaims {
            cluster_id: "x".repeat(129),
            ..claims()
        },
    ] {
        assert!(matches!(
            WorkerBootstrapToken::issue(&key(), wrong),
            Err(TokenError::CannotIssue { .. })
        ));
    }
    let many = (0..1_000).map(|n| (n.to_string(), BTreeSet::new())).collect();
    let huge = TokenClaims {
        allowed_labels: Some(many),
        ..claims()
    };
    assert_eq!(
        WorkerBootstrapToken::issue(&key(), huge).unwrap_err(),
        TokenError::Malformed(MalformedToken::TooLong)
    );
}

#[test]
fn debug_never_prints_the_token() {
    let token = WorkerBootstrapToken::parse(&line()).unwrap();
    let printed = format!("{token:?} {token:#?}");
    let signature = &line()[2..88];
    assert!(
        !printed.contains(signature) && !printed.contains(&"09".repeat(16)),
        "{printed}"
    );
    assert!(printed.contains("c-1"));
}

proptest! {
    #![proptest_config(config())]

    /// Whatever is handed in gets an answer, and never a token.
    #[test]
    fn nothing_else_is_a_token(text in any::<String>(), bytes in any::<Vec<u8>>()) {
        prop_assert!(verify(&text).is_err());
        let whole = [&[VERSION][..], &bytes].concat();
        prop_assert!(verify(&URL_SAFE_NO_PAD.encode(whole)).is_err());
    }

    #[test]
    fn every_token_that_is_issued_verifies(
        (cluster_id, issued_unix_secs, ttl_secs, uses) in ("[a-z0-9-]{1,40}", -1_000_i64..1_000_000, 1..u32::MAX, 1..u32::MAX),
        (nonce, ca) in any::<([u8; 16], [u8; 32])>(),
        allowed_labels in proptest::option::of(proptest::collection::btree_map("[a-z]{1,9}", proptest::collection::btree_set("[a-z]{1,9}", 0..3), 0..4)),
        allowed_node_ids in proptest::collection::btree_set(1..=NodeId::MAX.0, 0..3),
        seed in any::<[u8; 32]>(),
    ) {
        let claims = TokenClaims {
            cluster_id,
            issued_unix_secs,
            expires_unix_secs: issued_unix_secs + i64::from(ttl_secs),
            uses,
            nonce: TokenNonce(nonce),
            ca_fingerprint: CaFingerprint(ca),
            allowed_labels,
            allowed_node_ids,
        };
        let key = SigningKey::from_bytes(&seed);
        let line = WorkerBootstrapToken::issue(&key, claims.clone()).unwrap().reveal();
        let verified = WorkerBootstrapToken::parse(&line).unwrap().verify(
            &key.verifying_key(),
            &claims.cluster_id,
            issued_unix_secs,
        );
        let verified = verified.unwrap();
        prop_assert_eq!(verified.claims, claims);
    }
}

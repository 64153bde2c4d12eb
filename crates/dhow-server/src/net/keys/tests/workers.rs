//! The worker's own key, and the renewal of its certificate.

use std::time::Duration;

use dhow_core::ids::NodeId;
use dhow_wire::token::CaFingerprint;

use crate::net::keys::{ClusterKey, IssueError, Validity, WorkerCa, WorkerKey};

const NOW: i64 = 1_800_000_000;
const DAY_SECS: i64 = 86_400;
const LIFE: Duration = Duration::from_secs(7 * 86_400);
const GRACE: Duration = Duration::from_secs(30 * 86_400);

fn issue(ca: &WorkerCa, key: &WorkerKey) -> String {
    ca.issue_worker(&key.csr_pem().unwrap(), NodeId(40), "c-1", NOW, LIFE)
        .unwrap()
}

#[test]
fn a_key_is_kept_in_its_file() {
    let key = WorkerKey::generate().unwrap();
    let again = WorkerKey::from_pem(&key.reveal_pem()).unwrap();
    assert_eq!(again.reveal_pem(), key.reveal_pem());
    assert_eq!(format!("{key:?}"), "WorkerKey");
    for text in [
        "",
        "hello",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ] {
        assert!(WorkerKey::from_pem(text).is_err());
    }
    let ca = WorkerCa::new(&ClusterKey::generate().unwrap(), 1).unwrap();
    let chain = issue(&ca, &key);
    let pinned = CaFingerprint([1; 32]);
    assert!(again.client_config(pinned, &chain).is_ok());
    let other = WorkerKey::generate().unwrap();
    assert!(
        other.client_config(pinned, &chain).is_err(),
        "the certificate of another key"
    );
    assert!(key.client_config(pinned, "").is_err());
}

#[test]
fn a_certificate_says_when_to_renew_it() {
    let ca = WorkerCa::new(&ClusterKey::generate().unwrap(), 1).unwrap();
    let validity = Validity::of_pem(&issue(&ca, &WorkerKey::generate().unwrap())).unwrap();
    assert_eq!(validity.not_after_unix_secs, NOW + 7 * DAY_SECS);
    assert!(validity.not_before_unix_secs < NOW);
    assert!((NOW + 4 * DAY_SECS..NOW + 5 * DAY_SECS).contains(&validity.renew_at_unix_secs()));
    assert!(Validity::of_pem("").is_err());
    assert!(Validity::of_pem(&"x".repeat(100_000)).is_err());
}

#[test]
fn a_worker_is_recognised_for_a_while_after_its_certificate_has_ended() {
    let ca = WorkerCa::new(&ClusterKey::generate().unwrap(), 1).unwrap();
    let key = WorkerKey::generate().unwrap();
    let (chain, csr) = (issue(&ca, &key), key.csr_pem().unwrap());
    let end = NOW + 7 * DAY_SECS;
    for at in [NOW, end - 1, end, end + 1, end + 30 * DAY_SECS] {
        assert_eq!(
            ca.recognise(&chain, &csr, "c-1", at, GRACE).unwrap(),
            NodeId(40),
            "{}",
            at - end
        );
    }
    let late = ca.recognise(&chain, &csr, "c-1", end + 30 * DAY_SECS + 1, GRACE);
    assert!(matches!(late, Err(IssueError::TooLate { .. })));
    let early = ca.recognise(&chain, &csr, "c-1", NOW - DAY_SECS, GRACE);
    assert!(matches!(early, Err(IssueError::NotOurs)), "it does not count yet");
}

#[test]
fn nobody_else_is_recognised() {
    let cluster = ClusterKey::generate().unwrap();
    let ca = WorkerCa::new(&cluster, 1).unwrap();
    let key = WorkerKey::generate().unwrap();
    let (chain, csr) = (issue(&ca, &key), key.csr_pem().unwrap());
    let refused = |ca: &WorkerCa, chain: &str, csr: &str, cluster: &str| {
        ca.recognise(chain, csr, cluster, NOW, GRACE).unwrap_err()
    };
    let other_key = WorkerKey::generate().unwrap().csr_pem().unwrap();
    assert!(matches!(
        refused(&ca, &chain, &other_key, "c-1"),
        IssueError::OtherKey
    ));
    assert!(matches!(refused(&ca, &chain, &csr, "c-2"), IssueError::NotOurs));
    let next = WorkerCa::new(&cluster, 2).unwrap();
    assert!(matches!(refused(&next, &chain, &csr, "c-1"), IssueError::NotOurs));
    let foreign = WorkerCa::new(&ClusterKey::generate().unwrap(), 1).unwrap();
    assert!(matches!(
        refused(&foreign, &chain, &csr, "c-1"),
        IssueError::NotOurs
    ));
    for text in ["", "hello", csr.as_str()] {
        assert!(matches!(
            refused(&ca, text, &csr, "c-1"),
            IssueError::Request { .. }
        ));
    }
    assert!(matches!(
        refused(&ca, &chain, &chain, "c-1"),
        IssueError::Request { .. }
    ));
}

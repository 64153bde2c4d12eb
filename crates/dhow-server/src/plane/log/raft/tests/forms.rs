//! What stands on disk and travels, byte for byte; and bytes that are nothing of the kind.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::EntryPayload;
use proptest::prelude::*;

use super::super::blob::Blob;
use super::super::entry_form::{FormError, encode, from_stored, to_stored};
use super::super::options::RaftPeerAddrs;
use super::super::snapshot_data::{read_preamble, write_preamble};
use super::super::types::{
    Batch, BatchTag, Membership, RaftEntry, StoredMembership, TypeConfig, Vote, log_id,
};
use super::super::vote_form::{VOTE_VERSION, VoteForm};
use super::super::wire::{
    Answer, Letter, Question, Reply, decode_letter, decode_reply, encode_letter, encode_reply,
};
use crate::plane::log::store::{Entry, LogPosition};

const AT: LogPosition = LogPosition { index: 300, term: 2 };

fn entry(payload: EntryPayload<TypeConfig>) -> RaftEntry {
    RaftEntry {
        log_id: log_id(AT),
        payload,
    }
}

fn members() -> Membership {
    let addrs = RaftPeerAddrs {
        raft_addr: "10.0.0.1:3668".parse().unwrap(),
        api_addr: "[::1]:3669".parse().unwrap(),
    };
    Membership::new(vec![BTreeSet::from([7])], BTreeMap::from([(7, addrs)]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn entries_on_disk_do_not_change_unnoticed() {
    let tag = BatchTag {
        node: 1,
        life: 2,
        number: 300,
    };
    let commands = vec![Blob(Bytes::from_static(b"ab")), Blob(Bytes::new())];
    let goldens = [
        (EntryPayload::Blank, "0100"),
        (
            EntryPayload::Membership(members()),
            "01010101070107000a000001d41c0100000000000000000000000000000001d51c",
        ),
        (
            EntryPayload::Normal(Batch { tag, commands }),
            "01020102ac020202616200",
        ),
    ];
    for (payload, golden) in goldens {
        let entry = entry(payload);
        let stored = to_stored(entry.clone());
        assert_eq!((stored.index, stored.term), (AT.index, AT.term));
        assert_eq!(hex(&stored.payload), golden);
        assert_eq!(from_stored(&stored).unwrap(), entry);
    }
    let vote = Vote::new_committed(3, 7);
    assert_eq!(hex(&encode(VOTE_VERSION, &VoteForm::of(&vote))), "0103010701");
}

#[test]
fn a_newer_form_and_a_longer_one_are_refused() {
    let stored = |payload: &'static [u8]| Entry {
        index: 1,
        term: 1,
        payload: Bytes::from_static(payload),
    };
    assert!(matches!(from_stored(&stored(b"")), Err(FormError::Empty { .. })));
    let newer = from_stored(&stored(&[2, 0]));
    assert!(matches!(
        newer,
        Err(FormError::Version {
            found: 2,
            known: 1,
            ..
        })
    ));
    assert!(matches!(
        from_stored(&stored(&[1, 0, 0])),
        Err(FormError::Malformed { .. })
    ));
    assert!(matches!(
        from_stored(&stored(&[1, 9])),
        Err(FormError::Malformed { .. })
    ));
}

#[test]
fn the_members_stand_in_front_of_the_state() {
    let members = StoredMembership::new(Some(log_id(AT)), members());
    let mut bytes = Vec::new();
    write_preamble(&mut bytes, &members).unwrap();
    bytes.extend_from_slice(b"state");
    let mut rest = &bytes[..];
    assert_eq!(read_preamble(&mut rest).unwrap(), members);
    assert_eq!(rest, b"state");
    assert!(read_preamble(&mut &b"\xff\xff\xff\xff"[..]).is_err(), "too long");
}

#[test]
fn messages_come_back_as_they_were() {
    let letter = Letter {
        from_store: [1; 16],
        to_store: Some([2; 16]),
        question: Question::PreVote {
            last: Some(AT.into()),
        },
    };
    assert_eq!(decode_letter(&encode_letter(&letter)).unwrap(), letter);
    let reply = Reply {
        store: [3; 16],
        answer: Answer::AppendedUpTo(None),
    };
    assert_eq!(decode_reply(&encode_reply(&reply)).unwrap(), reply);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut versioned = vec![1];
        versioned.extend_from_slice(&bytes);
        for bytes in [bytes, versioned] {
            let _ = decode_letter(&bytes);
            let _ = decode_reply(&bytes);
            let _ = read_preamble(&mut &bytes[..]);
            let _ = from_stored(&Entry { index: 0, term: 0, payload: Bytes::from(bytes) });
        }
    }
}

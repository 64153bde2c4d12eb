//! What is written is read back; what was not written is refused and never panics.

use std::io::{self, Write};

use dhow_core::command::{
    AgentCommand, AgentEvent, ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, Placement,
    PlanCommand, RequestId, ScaleChange,
};
use dhow_core::ids::{Generation, NodeId, Revision, ServiceId, ServiceName, Term};
use dhow_core::state::{Request, State};
use dhow_core::stored::Form;
use dhow_core::time::ClusterTime;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::samples;
use crate::log_form::snapshot::decode_limited;
use crate::log_form::{
    ENTRY_MAX_BYTES, LogFormError, decode_entry, decode_snapshot, encode_entry, encode_snapshot,
};

/// The number of the newest form.
const NEWEST: u8 = Form::NEWEST.number();

const TEXT: &str = "[ -~]{0,40}";

fn command() -> impl Strategy<Value = Command> {
    let samples = (0..samples::commands().len()).prop_map(|at| samples::commands()[at].clone());
    prop_oneof![
        samples,
        token(),
        secret(),
        label(),
        scale(),
        placement(),
        report()
    ]
}

fn token() -> impl Strategy<Value = Command> {
    (TEXT, any::<u32>(), any::<i64>()).prop_map(|(nonce, uses_allowed, expires_unix_secs)| {
        Command::Cluster(ClusterCommand::IssueToken {
            nonce: nonce.into(),
            uses_allowed,
            expires_unix_secs,
        })
    })
}

fn secret() -> impl Strategy<Value = Command> {
    (TEXT, vec(any::<u8>(), 0..300)).prop_map(|(name, sealed)| {
        Command::Cluster(ClusterCommand::SetSecret {
            name: name.into(),
            sealed: sealed.into(),
        })
    })
}

fn label() -> impl Strategy<Value = Command> {
    (any::<u64>(), btree_map(TEXT, TEXT, 0..5), vec(TEXT, 0..5)).prop_map(|(node, set, unset)| {
        Command::Node(NodeCommand::Label {
            node: NodeId(node),
            set,
            unset,
        })
    })
}

fn scale() -> impl Strategy<Value = Command> {
    let change = ("[a-z]{1,10}", any::<u32>()).prop_map(|(service, replicas)| ScaleChange {
        service: ServiceName::new(&service).unwrap(),
        role: None,
        replicas,
    });
    vec(change, 0..8).prop_map(|changes| {
        Command::Deployment(DeploymentCommand::Scale {
            deployment: samples::shop(),
            changes,
        })
    })
}

fn placement() -> impl Strategy<Value = Command> {
    let placement =
        (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(index, node, eligibility)| Placement {
            slot: samples::key(index).slot,
            node: NodeId(node),
            eligibility: Revision(eligibility),
        });
    (any::<u32>(), any::<u32>(), vec(placement, 0..20)).prop_map(|(service, generation, placements)| {
        Command::Plan(PlanCommand::Place {
            service: ServiceId(service),
            generation: Generation(generation),
            placements,
        })
    })
}

fn report() -> impl Strategy<Value = Command> {
    let event = (any::<u32>(), 0..samples::events().len()).prop_map(|(index, at)| AgentEvent {
        replica: samples::key(index),
        event: samples::events()[at].clone(),
    });
    (any::<u64>(), any::<u64>(), vec(event, 0..40)).prop_map(|(incarnation, first_seq, events)| {
        Command::Agent(AgentCommand::Report {
            node: NodeId(7),
            incarnation,
            first_seq,
            events,
        })
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    let request = proptest::option::of((".{0,30}", ".{0,30}", any::<[u8; 32]>()));
    (any::<u64>(), any::<u64>(), request, command()).prop_map(|(time, term, request, command)| Entry {
        time: ClusterTime(time),
        term: Term(term),
        request: request.map(|(principal, key, body_hash)| RequestId {
            request: Request {
                principal: principal.into(),
                key: key.into(),
            },
            body_hash,
        }),
        command,
    })
}

proptest! {
    #[test]
    fn an_entry_is_read_back_as_it_was(entry in entry()) {
        let bytes = encode_entry(&entry, State::FEATURE_LEVEL).unwrap();
        prop_assert_eq!(decode_entry(&bytes).unwrap(), entry);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..600), known: bool) {
        if known && let Some(version) = bytes.first_mut() {
            *version = NEWEST;
        }
        if let Ok(entry) = decode_entry(&bytes) {
            // Postcard takes a number in more than one way; the value is what counts.
            prop_assert_eq!(decode_entry(&encode_entry(&entry, State::FEATURE_LEVEL).unwrap()).unwrap(), entry);
        }
        let _ = decode_snapshot(bytes.as_slice());
    }

    #[test]
    fn a_damaged_entry_never_panics(at: prop::sample::Index, place: prop::sample::Index, byte: u8) {
        let command = at.get(&samples::commands()).clone();
        let mut bytes = encode_entry(&samples::entry(command), State::FEATURE_LEVEL).unwrap();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let _ = decode_entry(&bytes);
    }

    #[test]
    fn a_damaged_snapshot_never_panics(place: prop::sample::Index, byte: u8) {
        let mut bytes = Vec::new();
        encode_snapshot(&samples::state(), &mut bytes).unwrap();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let _ = decode_snapshot(bytes.as_slice());
    }
}

/// A length is believed only as far as there are bytes: no place for it makes room for 2^35 of anything.
#[test]
fn an_enormous_length_is_no_reason_to_make_room() {
    let enormous = [0xff, 0xff, 0xff, 0xff, 0x7f];
    let mut snapshot = Vec::new();
    encode_snapshot(&samples::state(), &mut snapshot).unwrap();
    for place in 1..snapshot.len() {
        let bytes = [&snapshot[..place], &enormous, &snapshot[place + 1..]].concat();
        let _ = decode_snapshot(bytes.as_slice());
    }
    for command in samples::commands() {
        let entry = encode_entry(&samples::entry(command), State::FEATURE_LEVEL).unwrap();
        for place in 1..entry.len() {
            let _ = decode_entry(&[&entry[..place], &enormous, &entry[place + 1..]].concat());
        }
    }
}

#[test]
fn a_cut_entry_is_refused_at_every_length() {
    for command in samples::commands() {
        let bytes = encode_entry(&samples::entry(command), State::FEATURE_LEVEL).unwrap();
        for length in 0..bytes.len() {
            assert!(decode_entry(&bytes[..length]).is_err(), "cut at {length}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    assert!(matches!(decode_entry(&[]), Err(LogFormError::Empty { .. })));
    let newer = decode_entry(&[NEWEST + 1, 0, 0]).unwrap_err();
    assert_eq!(
        newer.to_string(),
        "the log entry has form 9, this version reads up to form 8: start a version of Dhow that is at least as \
         new as the one that wrote it"
    );
    let newer = decode_snapshot([NEWEST + 1].as_slice()).unwrap_err();
    assert!(matches!(newer, LogFormError::UnknownVersion { found, .. } if found == NEWEST + 1));
    let mut long = encode_entry(&samples::entry_with_request(), State::FEATURE_LEVEL).unwrap();
    long.push(0);
    assert!(matches!(
        decode_entry(&long),
        Err(LogFormError::Trailing { rest_bytes: 1, .. })
    ));
    let huge = vec![NEWEST; ENTRY_MAX_BYTES + 1];
    assert!(matches!(decode_entry(&huge), Err(LogFormError::TooLarge { .. })));
}

#[test]
fn an_entry_above_the_limit_is_not_written() {
    let command = Command::Cluster(ClusterCommand::SetSecret {
        name: "large".into(),
        sealed: vec![0; ENTRY_MAX_BYTES].into(),
    });
    let error = encode_entry(&samples::entry(command), State::FEATURE_LEVEL).unwrap_err();
    assert!(matches!(error, LogFormError::TooLarge { .. }), "{error}");
}

#[test]
fn a_snapshot_above_the_limit_is_not_read() {
    let mut bytes = Vec::new();
    encode_snapshot(&State::default(), &mut bytes).unwrap();
    let size_bytes = bytes.len() as u64;
    assert!(decode_limited(bytes.as_slice(), size_bytes).is_ok());
    let error = decode_limited(bytes.as_slice(), size_bytes - 1).unwrap_err();
    assert!(matches!(error, LogFormError::TooLarge { .. }), "{error}");
}

#[test]
fn a_writer_that_fails_is_the_cause() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match bytes {
                [version] if *version == NEWEST => Ok(1),
                _ => Err(io::ErrorKind::StorageFull.into()),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = encode_snapshot(&samples::state(), Full).unwrap_err();
    assert!(matches!(error, LogFormError::Io { .. }), "{error}");
}

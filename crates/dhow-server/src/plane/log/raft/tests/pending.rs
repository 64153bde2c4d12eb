//! What is known about batches when a leader loses its place.

use super::super::pending::{Part, Pending};
use super::super::types::BatchTag;
use crate::plane::log::ProposalId;
use crate::plane::log::store::LogPosition;

fn part(id: u64) -> Vec<Part> {
    vec![Part {
        proposal: ProposalId(id),
        commands: 1,
    }]
}

fn at(term: u64, index: u64) -> LogPosition {
    LogPosition { index, term }
}

#[test]
fn a_batch_that_stands_in_the_log_is_committed_whoever_leads() {
    let pending = Pending::new(1, 2);
    let tag = pending.add(part(5));
    pending.appended(tag, at(3, 10));
    assert_eq!(pending.outrun(at(3, 9)), []);
    assert_eq!(pending.committed(tag), Some(part(5)));
    assert_eq!(pending.outrun(at(4, 11)), [], "it is told once");
}

#[test]
fn a_batch_is_out_once_a_later_term_is_applied_without_it() {
    let pending = Pending::new(1, 2);
    let tag = pending.add(part(5));
    assert_eq!(pending.outrun(at(9, 9)), [], "it may be appended later");
    pending.appended(tag, at(3, 10));
    assert_eq!(pending.outrun(at(2, 8)), []);
    assert_eq!(pending.outrun(at(4, 9)), part(5), "nothing of term 3 can follow");
    let tag = pending.add(part(6));
    pending.appended(tag, at(4, 12));
    assert_eq!(
        pending.outrun(at(4, 12)),
        part(6),
        "another entry stands in its place"
    );
}

#[test]
fn only_what_was_never_written_is_refused_at_once() {
    let pending = Pending::new(1, 2);
    let (first, second) = (pending.add(part(5)), pending.add(part(6)));
    pending.appended(first, at(3, 10));
    assert_eq!(pending.never_written(first), None);
    assert_eq!(pending.never_written(second), Some(part(6)));
    assert_eq!(pending.covered(at(9, 9)), []);
    assert_eq!(pending.covered(at(9, 10)), part(5));
    assert!(pending.is_empty());
}

#[test]
fn batches_of_other_lives_are_not_taken_for_own_ones() {
    let pending = Pending::new(1, 2);
    let tag = pending.add(part(5));
    let earlier = BatchTag { life: 1, ..tag };
    let elsewhere = BatchTag { node: 2, ..tag };
    assert_eq!(pending.committed(earlier), None);
    assert_eq!(pending.committed(elsewhere), None);
    pending.appended(earlier, at(1, 1));
    assert_eq!(pending.outrun(at(2, 2)), []);
    assert_eq!(pending.committed(tag), Some(part(5)));
}

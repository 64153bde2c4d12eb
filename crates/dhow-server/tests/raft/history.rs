//! Judges whether what clients of registers saw can be explained by one order of their operations: each takes effect
//! at one moment between its beginning and its end. A write of unknown outcome may take effect at any moment after its
//! beginning, or never.
//!
//! Registers are judged one by one. Every written value is written once, so that a search over the operations that
//! are open at a time, with the states that were tried remembered, is quick.

use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Write(u64),
    /// What was read; none where nothing was written yet.
    Read(Option<u64>),
}

/// One operation on a register. Times come from one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub op: Op,
    pub began: u64,
    /// None: nobody knows whether it took effect.
    pub ended: Option<u64>,
}

/// Whether the calls on one register can be put in order.
pub fn is_linearizable(calls: &[Call]) -> bool {
    let mut calls = calls.to_vec();
    // A read without an answer says nothing.
    calls.retain(|call| call.ended.is_some() || matches!(call.op, Op::Write(_)));
    calls.sort_by_key(|call| call.began);
    let mut search = Search {
        done: vec![false; calls.len()],
        calls,
        tried: HashSet::new(),
    };
    search.go(0, None)
}

struct Search {
    calls: Vec<Call>,
    done: Vec<bool>,
    /// The first call that is not done, those done after it, and the value: nothing comes of trying it again.
    tried: HashSet<(usize, Vec<usize>, Option<u64>)>,
}

impl Search {
    fn go(&mut self, first: usize, value: Option<u64>) -> bool {
        let first = (first..self.calls.len())
            .find(|at| !self.done[*at])
            .unwrap_or(self.calls.len());
        let is_settled = |search: &Self, at: usize| search.done[at] || search.calls[at].ended.is_none();
        if (first..self.calls.len()).all(|at| is_settled(self, at)) {
            return true;
        }
        // What begins after the earliest end of all that are left cannot be next.
        let left = (first..self.calls.len()).filter(|at| !self.done[*at]);
        let horizon = left
            .filter_map(|at| self.calls[at].ended)
            .min()
            .unwrap_or(u64::MAX);
        let ahead: Vec<usize> = (first..self.calls.len()).filter(|at| self.done[*at]).collect();
        if !self.tried.insert((first, ahead, value)) {
            return false;
        }
        for at in first..self.calls.len() {
            if self.calls[at].began > horizon {
                break;
            }
            if self.done[at] {
                continue;
            }
            let next = match self.calls[at].op {
                Op::Write(written) => Some(written),
                Op::Read(read) if read == value => value,
                Op::Read(_) => continue,
            };
            self.done[at] = true;
            if self.go(first, next) {
                return true;
            }
            self.done[at] = false;
        }
        false
    }
}

fn call(op: Op, began: u64, ended: impl Into<Option<u64>>) -> Call {
    let ended = ended.into();
    Call { op, began, ended }
}

#[test]
fn histories_that_can_be_explained() {
    use Op::{Read, Write};
    let good: [&[Call]; 6] = [
        &[],
        &[
            call(Read(None), 1, 2),
            call(Write(1), 3, 4),
            call(Read(Some(1)), 5, 6),
        ],
        // At the same time, either order.
        &[
            call(Write(1), 1, 4),
            call(Write(2), 2, 5),
            call(Read(Some(1)), 6, 7),
        ],
        &[
            call(Write(1), 1, 10),
            call(Read(None), 2, 3),
            call(Read(Some(1)), 4, 5),
        ],
        // Of unknown outcome, and seen late.
        &[
            call(Write(1), 1, None),
            call(Read(None), 2, 3),
            call(Read(Some(1)), 8, 9),
        ],
        // Of unknown outcome, and never seen.
        &[
            call(Write(1), 1, None),
            call(Write(2), 2, 3),
            call(Read(Some(2)), 8, 9),
        ],
    ];
    for history in good {
        assert!(is_linearizable(history), "{history:?}");
    }
}

#[test]
fn histories_that_cannot_be_explained() {
    use Op::{Read, Write};
    let bad: [&[Call]; 6] = [
        // A lost write.
        &[call(Write(1), 1, 2), call(Read(None), 3, 4)],
        // An old value.
        &[
            call(Write(1), 1, 2),
            call(Write(2), 3, 4),
            call(Read(Some(1)), 5, 6),
        ],
        // A value that was never written.
        &[call(Read(Some(1)), 1, 2)],
        // Back in time.
        &[
            call(Write(1), 1, 10),
            call(Read(Some(1)), 2, 3),
            call(Read(None), 4, 5),
        ],
        // Seen before it began.
        &[call(Read(Some(1)), 1, 2), call(Write(1), 3, None)],
        // Two orders at once.
        &[
            call(Write(1), 1, 10),
            call(Write(2), 1, 10),
            call(Read(Some(1)), 11, 12),
            call(Read(Some(2)), 13, 14),
        ],
    ];
    for history in bad {
        assert!(!is_linearizable(history), "{history:?}");
    }
}

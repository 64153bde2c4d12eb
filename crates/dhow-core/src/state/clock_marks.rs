//! What the wall clock said at moments of the cluster's time, so that people are shown dates which a restart does not
//! move. Cluster time stands still while no server leads; a mark at the beginning of each term bridges that.

use imbl::Vector;
use serde::{Deserialize, Serialize};

use crate::ids::Term;
use crate::time::ClusterTime;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockMark {
    pub term: Term,
    pub time: ClusterTime,
    pub wall_unix_ms: i64,
}

/// The marks in the order of the cluster's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClockMarks(Vector<ClockMark>);

impl ClockMarks {
    /// One a day for most of a year; at 24 bytes each, 6 KiB.
    const MARKS_MAX: usize = 256;

    /// Notes both clocks, once in a term.
    pub fn note(&mut self, mark: ClockMark) {
        if self.0.last().is_some_and(|last| last.term == mark.term) {
            return;
        }
        self.0.push_back(mark);
        if self.0.len() > Self::MARKS_MAX {
            self.forget_one();
        }
    }

    /// Forgets the mark of the shortest term: a daemon that is started again and again leaves many such, and hardly
    /// anything falls into them.
    fn forget_one(&mut self) {
        let lengths = self.0.iter().zip(self.0.iter().skip(1)).enumerate();
        let shortest = lengths
            .skip(1)
            .min_by_key(|(_, (mark, next))| next.time.since(mark.time));
        if let Some((place, _)) = shortest {
            self.0.remove(place);
        }
    }

    /// Whether a mark at or before that time says what the wall clock said. Before the first mark, time in which no server
    /// ran is not known.
    pub fn reaches(&self, then: ClusterTime) -> bool {
        self.0.front().is_some_and(|first| first.time <= then)
    }

    /// What the wall clock said then; none where nothing was ever noted.
    pub fn wall_unix_ms(&self, then: ClusterTime) -> Option<i64> {
        let before = self.0.iter().rev().find(|mark| mark.time <= then);
        let mark = before.or_else(|| self.0.front())?;
        let millis = |span: crate::spec::TimeSpan| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        let (after, ahead) = (millis(then.since(mark.time)), millis(mark.time.since(then)));
        Some(mark.wall_unix_ms.saturating_add(after).saturating_sub(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(term: u64, time: u64, wall_unix_ms: i64) -> ClockMark {
        ClockMark {
            term: Term(term),
            time: ClusterTime(time),
            wall_unix_ms,
        }
    }

    #[test]
    fn a_time_is_told_by_the_clock_of_its_term() {
        let mut marks = ClockMarks::default();
        assert_eq!(marks.wall_unix_ms(ClusterTime(5)), None);
        marks.note(mark(1, 100, 1_000_000));
        marks.note(mark(1, 150, 7));
        // An hour without a server, in which cluster time stood still.
        marks.note(mark(2, 200, 4_600_000));
        assert_eq!(
            marks.wall_unix_ms(ClusterTime(40)),
            Some(999_940),
            "before the first mark"
        );
        assert!(marks.reaches(ClusterTime(100)) && !marks.reaches(ClusterTime(99)));
        assert_eq!(marks.wall_unix_ms(ClusterTime(199)), Some(1_000_099));
        assert_eq!(marks.wall_unix_ms(ClusterTime(200)), Some(4_600_000));
        assert_eq!(marks.wall_unix_ms(ClusterTime(u64::MAX)), Some(i64::MAX));
    }

    #[test]
    fn short_terms_are_forgotten_first() {
        let mut marks = ClockMarks::default();
        marks.note(mark(0, 0, 10));
        for term in 1..=1_000 {
            // Term 500 is long, the others are over at once.
            let time = if term > 500 { 1_000_000 + term } else { term };
            marks.note(mark(term, time, i64::try_from(time).unwrap() * 2));
        }
        assert_eq!(marks.0.len(), ClockMarks::MARKS_MAX);
        assert_eq!(marks.wall_unix_ms(ClusterTime(0)), Some(10));
        assert_eq!(marks.wall_unix_ms(ClusterTime(600)), Some(1_100));
        assert_eq!(marks.wall_unix_ms(ClusterTime(1_001_000)), Some(2_002_000));
    }
}

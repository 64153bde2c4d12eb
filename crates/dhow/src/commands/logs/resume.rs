//! Which lines of a new connection were shown before: those of a replica up to the last one that was shown.

use std::collections::BTreeMap;

use dhow_wire::api::LogRecord;

/// The newest time of a replica's lines, and how many of its lines have just that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    time_unix_us: i64,
    lines: u32,
}

/// What was shown so far.
#[derive(Debug)]
pub struct Resume {
    connections: u32,
    /// Lines before this were left out by the first connection, and so are by every other.
    floor_unix_us: i64,
    is_floor_set: bool,
    shown: BTreeMap<String, Mark>,
    /// The marks when this connection began, with what of them is still to come again.
    to_skip: BTreeMap<String, Mark>,
    /// Lines of this connection, and whether any of them was shown before.
    count: u64,
    has_overlap: bool,
}

impl Resume {
    /// `tail`: how many lines the first connection asks for at most; `now`: when it begins.
    pub fn new(tail: Option<u64>, now_unix_secs: i64) -> Self {
        let floor_unix_us = match tail {
            None => i64::MIN,
            // Nothing older than now was asked for, or than the first line that comes.
            Some(_) => now_unix_secs.saturating_mul(1_000_000),
        };
        Self {
            connections: 0,
            floor_unix_us,
            is_floor_set: false,
            shown: BTreeMap::new(),
            to_skip: BTreeMap::new(),
            count: 0,
            has_overlap: false,
        }
    }

    pub fn has_connected(&self) -> bool {
        self.connections > 0
    }

    pub fn connect(&mut self) {
        self.connections = self.connections.saturating_add(1);
        self.to_skip = self.shown.clone();
        self.count = 0;
        self.has_overlap = false;
    }

    /// Whether the line is new. Lines of one replica come in the order of their times.
    pub fn take(&mut self, record: &LogRecord) -> bool {
        let time = record.time_unix_us;
        self.count += 1;
        if self.connections == 1 {
            // The tail comes first and in order: its first line is the oldest that belongs here.
            if !self.is_floor_set {
                self.floor_unix_us = time;
                self.is_floor_set = true;
            }
        } else if self.was_shown(&record.replica, time) {
            self.has_overlap = true;
            return false;
        }
        let mark = self.shown.entry(record.replica.clone()).or_insert(Mark {
            time_unix_us: time,
            lines: 0,
        });
        if time > mark.time_unix_us {
            *mark = Mark {
                time_unix_us: time,
                lines: 0,
            };
        }
        if time == mark.time_unix_us {
            mark.lines += 1;
        }
        true
    }

    fn was_shown(&mut self, replica: &str, time: i64) -> bool {
        let Some(mark) = self.to_skip.get_mut(replica) else {
            return time < self.floor_unix_us;
        };
        if time == mark.time_unix_us && mark.lines > 0 {
            mark.lines -= 1;
            return true;
        }
        time < mark.time_unix_us
    }

    /// Whether a new connection has just brought all that it was asked for and nothing of it was known: then there
    /// may be more between.
    pub fn may_have_missed(&self, asked: u64) -> bool {
        self.connections > 1 && !self.shown.is_empty() && !self.has_overlap && self.count == asked
    }
}

#[cfg(test)]
mod tests {
    use dhow_wire::api::LogStream;

    use super::*;

    fn line(replica: &str, time_unix_us: i64) -> LogRecord {
        LogRecord {
            deployment: "shop".into(),
            replica: replica.into(),
            node_id: 1,
            time_unix_us,
            stream: LogStream::Stdout,
            text: String::new(),
        }
    }

    fn taken(resume: &mut Resume, lines: &[(&str, i64)]) -> Vec<bool> {
        lines
            .iter()
            .map(|(replica, time)| resume.take(&line(replica, *time)))
            .collect()
    }

    #[test]
    fn a_new_connection_repeats_and_loses_nothing() {
        let mut resume = Resume::new(None, 0);
        resume.connect();
        assert_eq!(
            taken(&mut resume, &[("a", 1), ("a", 2), ("a", 2), ("b", 2)]),
            [true; 4]
        );
        resume.connect();
        // A third line of the same moment is new, and so is a replica that was not there before.
        let again = [
            ("a", 1),
            ("a", 2),
            ("a", 2),
            ("b", 2),
            ("a", 2),
            ("c", 1),
            ("b", 3),
            ("a", 4),
        ];
        assert_eq!(
            taken(&mut resume, &again),
            [false, false, false, false, true, true, true, true]
        );
        resume.connect();
        assert_eq!(
            taken(&mut resume, &[("a", 2), ("a", 4), ("a", 5), ("c", 1)]),
            [false, false, true, false]
        );
    }

    #[test]
    fn what_the_tail_left_out_stays_out() {
        let mut resume = Resume::new(Some(1), 100);
        resume.connect();
        assert_eq!(taken(&mut resume, &[("a", 50)]), [true]);
        resume.connect();
        assert_eq!(
            taken(&mut resume, &[("b", 49), ("a", 50), ("b", 51)]),
            [false, false, true]
        );

        let mut none = Resume::new(Some(0), 1);
        none.connect();
        none.connect();
        assert_eq!(
            taken(&mut none, &[("a", 999_999), ("a", 1_000_000)]),
            [false, true]
        );
    }

    #[test]
    fn a_gap_is_noticed_where_nothing_is_known() {
        let mut resume = Resume::new(None, 0);
        resume.connect();
        taken(&mut resume, &[("a", 1)]);
        assert!(!resume.may_have_missed(1));
        resume.connect();
        taken(&mut resume, &[("a", 2), ("a", 3)]);
        assert!(resume.may_have_missed(2));
        resume.connect();
        taken(&mut resume, &[("a", 3), ("a", 4)]);
        assert!(!resume.may_have_missed(2));
    }
}

//! The newest lines over several replicas, in the order of time.

use std::collections::BTreeMap;

use dhow_wire::api::LogRecord;

/// Keeps so many of what it is given.
pub(super) struct Tail {
    max: usize,
    /// By time, and in the order of their coming where that is the same.
    kept: BTreeMap<(i64, u64), LogRecord>,
    taken: u64,
}

impl Tail {
    pub fn new(max: usize) -> Self {
        Self {
            max,
            kept: BTreeMap::new(),
            taken: 0,
        }
    }

    pub fn add(&mut self, record: LogRecord) {
        self.taken += 1;
        self.kept.insert((record.time_unix_us, self.taken), record);
        if self.kept.len() > self.max {
            self.kept.pop_first();
        }
    }

    pub fn into_records(self) -> impl Iterator<Item = LogRecord> {
        self.kept.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_wire::api::LogStream;

    #[test]
    fn the_newest_are_kept_in_order() {
        let mut tail = Tail::new(3);
        for (time_unix_us, text) in [(5, "e"), (1, "a"), (4, "c"), (4, "d"), (2, "b")] {
            tail.add(LogRecord {
                deployment: "shop".into(),
                replica: "web-default-0".into(),
                node_id: 1,
                time_unix_us,
                stream: LogStream::Stdout,
                text: text.into(),
            });
        }
        let texts: Vec<String> = tail.into_records().map(|record| record.text).collect();
        assert_eq!(texts, ["c", "d", "e"]);
    }
}

//! Finds events: by words, by time, and only those that somebody asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::limits::{EVENTS_AT_ONCE, EVENTS_SHOWN};
use super::place::EventsQuery;
use crate::plane::runtime::{EventHub, EventId, EventReader, EventRecord};

/// What is looked for.
#[derive(Clone, Debug)]
pub(super) struct Search {
    words: Vec<String>,
    from_unix_ms: Option<i64>,
    to_unix_ms: Option<i64>,
    only_asked: bool,
    /// Whether authors are looked at: they are for administrators alone.
    sees_authors: bool,
}

/// What a field for a time holds, in UTC.
fn moment(text: &str) -> Option<i64> {
    let time: DateTime = text.parse().ok()?;
    let zoned = time.to_zoned(TimeZone::UTC).ok()?;
    Some(zoned.timestamp().as_millisecond())
}

impl Search {
    pub fn new(asked: &EventsQuery, sees_authors: bool) -> Self {
        let words = asked.search.split_whitespace().map(str::to_lowercase);
        Self {
            words: words.collect(),
            from_unix_ms: moment(&asked.from),
            to_unix_ms: moment(&asked.to),
            only_asked: asked.audit && sees_authors,
            sees_authors,
        }
    }

    pub fn fits(&self, record: &EventRecord) -> bool {
        let event = &record.event;
        if self.only_asked && event.author.is_none() {
            return false;
        }
        let at = record.wall_unix_ms;
        let is_in_time = self
            .from_unix_ms
            .is_none_or(|from| at.is_some_and(|at| at >= from))
            && self.to_unix_ms.is_none_or(|to| at.is_some_and(|at| at <= to));
        is_in_time && (self.words.is_empty() || self.says_all(record))
    }

    fn says_all(&self, record: &EventRecord) -> bool {
        let event = &record.event;
        let names = [
            event.deployment.as_ref().map(ToString::to_string),
            event.service.as_ref().map(ToString::to_string),
            event.replica.clone(),
            event.node_id.map(|node| format!("node {node}")),
            event.message.clone(),
            event.author.clone().filter(|_| self.sees_authors),
        ];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let text = format!("{} {}", super::events::word(record), names.join(" ")).to_lowercase();
        self.words.iter().all(|word| text.contains(word.as_str()))
    }
}

/// The newest in memory that fit, the newest first.
pub(super) fn in_memory(hub: &EventHub, search: &Search, max: usize) -> Vec<Arc<EventRecord>> {
    let all = hub.since(EventId::default(), usize::MAX);
    let all = all
        .or_else(|too_old| hub.since(too_old.up_to, usize::MAX))
        .unwrap_or_default();
    let newest = all.into_iter().rev();
    newest.filter(|record| search.fits(record)).take(max).collect()
}

/// Of all that are kept on disk. Blocks for as long as it takes to read some tens of megabytes.
pub(super) fn on_disk(reader: &EventReader, search: &Search) -> Vec<Arc<EventRecord>> {
    let mut found: VecDeque<Arc<EventRecord>> = VecDeque::new();
    let mut after = EventId::default();
    // An error is the end of what can be read.
    while let Ok(records) = reader.since(after, EVENTS_AT_ONCE) {
        let Some(last) = records.last() else { break };
        after = last.id();
        for record in records.into_iter().filter(|record| search.fits(record)) {
            found.push_front(Arc::new(record));
            found.truncate(EVENTS_SHOWN);
        }
    }
    found.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::runtime::{Event, EventKind};
    use dhow_core::ids::Revision;
    use dhow_core::time::ClusterTime;

    fn record(kind: EventKind, message: &str, author: Option<&str>, wall_unix_ms: i64) -> EventRecord {
        EventRecord {
            revision: Revision(1),
            part: 0,
            time_ms: ClusterTime(0),
            wall_unix_ms: Some(wall_unix_ms),
            event: Event {
                author: author.map(str::to_owned),
                ..Event::new(kind).with_message(message)
            },
        }
    }

    #[test]
    fn events_are_found_by_words_time_and_author() {
        let ended = record(EventKind::ReplicaEnded, "Exit 3", None, 1_800_000_000_000);
        let scaled = record(EventKind::Scaled, "web", Some("token ci (1f)"), 1_800_000_060_000);
        let found = |query: EventsQuery, sees: bool| {
            let search = Search::new(&query, sees);
            [&ended, &scaled].map(|record| search.fits(record))
        };
        let asked = |search: &str| EventsQuery {
            search: search.into(),
            ..EventsQuery::default()
        };
        assert_eq!(found(asked(""), true), [true, true]);
        assert_eq!(found(asked("ENDED exit"), true), [true, false]);
        assert_eq!(found(asked("ci"), true), [false, true]);
        assert_eq!(
            found(asked("ci"), false),
            [false, false],
            "who did it is not told to readers"
        );
        let audit = EventsQuery {
            audit: true,
            ..EventsQuery::default()
        };
        assert_eq!(found(audit, true), [false, true]);
        let late = EventsQuery {
            from: "2027-01-15T08:01".into(),
            ..EventsQuery::default()
        };
        assert_eq!(found(late, true), [false, true]);
        let early = EventsQuery {
            to: "2027-01-15T08:00".into(),
            ..EventsQuery::default()
        };
        assert_eq!(found(early, true), [true, false]);
    }
}

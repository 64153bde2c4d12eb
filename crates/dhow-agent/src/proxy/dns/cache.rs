//! Answers of the host's name servers, for as long as they say that they hold.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};

use super::packet::Request;

/// Of at most 4 KiB each, so that the whole has at most 16 MiB; usual are a few hundred bytes.
const ENTRIES_MAX: usize = 4096;
pub const ENTRY_MAX_BYTES: usize = 4096;
/// A server that changed its mind is heard again after this time, whatever it said.
const TTL_MAX_SECS: u32 = 300;
/// The same for names that it does not have.
const NEGATIVE_TTL_MAX_SECS: u32 = 30;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: Name,
    kind: RecordType,
    dnssec: bool,
    unchecked: bool,
}

struct Entry {
    answer: Message,
    since: Instant,
    until: Instant,
}

/// The remembered answers.
#[derive(Default)]
pub struct Cache {
    entries: Mutex<HashMap<Key, Entry>>,
}

impl Cache {
    /// An answer that still holds, as if it had just come.
    pub fn get(&self, request: &Request, now: Instant) -> Option<Message> {
        let entries = self.entries();
        let entry = entries.get(&key(request)).filter(|entry| now < entry.until)?;
        let age = u32::try_from(now.duration_since(entry.since).as_secs()).unwrap_or(u32::MAX);
        let mut answer = request.response(entry.answer.metadata.response_code);
        answer.metadata.authentic_data = entry.answer.metadata.authentic_data;
        for (mine, theirs) in [
            (&mut answer.answers, &entry.answer.answers),
            (&mut answer.authorities, &entry.answer.authorities),
            (&mut answer.additionals, &entry.answer.additionals),
        ] {
            mine.extend(theirs.iter().cloned());
            for record in mine {
                record.ttl = record.ttl.saturating_sub(age);
            }
        }
        Some(answer)
    }

    /// Remembers what may be remembered.
    pub fn put(&self, request: &Request, answer: Message, now: Instant) {
        let Some(seconds) = holds_secs(&answer) else {
            return;
        };
        let mut entries = self.entries();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, entry| now < entry.until);
        }
        if entries.len() >= ENTRIES_MAX {
            // Somebody asks for thousands of names: beginning anew costs one question each.
            entries.clear();
        }
        let until = now + Duration::from_secs(u64::from(seconds));
        let entry = Entry {
            answer,
            since: now,
            until,
        };
        entries.insert(key(request), entry);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        // Nothing that runs under the lock leaves the map half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(request: &Request) -> Key {
    Key {
        name: request.query.name().to_lowercase(),
        kind: request.query.query_type(),
        dnssec: request.wants_dnssec(),
        unchecked: request.metadata.checking_disabled,
    }
}

/// For how long an answer holds; `None` where it is not to be remembered.
fn holds_secs(answer: &Message) -> Option<u32> {
    let code = answer.metadata.response_code;
    if answer.metadata.truncation || (code != ResponseCode::NoError && code != ResponseCode::NXDomain) {
        return None;
    }
    let seconds = if answer.answers.is_empty() || code == ResponseCode::NXDomain {
        let negative = answer.authorities.iter().find_map(|record| match &record.data {
            RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
            _ => None,
        });
        negative?.min(NEGATIVE_TTL_MAX_SECS)
    } else {
        let shortest = answer.answers.iter().map(|record| record.ttl).min();
        shortest?.min(TTL_MAX_SECS)
    };
    (seconds > 0).then_some(seconds)
}

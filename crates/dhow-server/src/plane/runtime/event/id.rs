//! The place of a record, to go on after it.

use std::fmt;
use std::str::FromStr;

use dhow_core::ids::Revision;

/// A revision and the record's number in it; as text `17.2`. Plain `17` is the end of that revision, so that
/// whoever has only a revision goes on with the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    pub revision: Revision,
    pub part: u32,
}

/// The text names no place in the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a place in the event log is a revision like 17, or an event like 17.2")]
pub struct BadEventId;

impl EventId {
    /// The place behind all events of a revision.
    pub fn after(revision: Revision) -> Self {
        Self {
            revision,
            part: u32::MAX,
        }
    }

    /// A place behind the events of a revision's own entry, with room for notes after it. An entry has at most
    /// some ten thousand events.
    pub(in crate::plane::runtime) fn behind(revision: Revision) -> Self {
        Self {
            revision,
            part: 1 << 31,
        }
    }

    /// The next place in the same revision.
    pub fn next_part(self) -> Self {
        Self {
            part: self.part.saturating_add(1),
            ..self
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            u32::MAX => write!(f, "{}", self.revision),
            part => write!(f, "{}.{part}", self.revision),
        }
    }
}

impl FromStr for EventId {
    type Err = BadEventId;

    fn from_str(text: &str) -> Result<Self, BadEventId> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| BadEventId);
        match text.split_once('.') {
            None => Ok(Self::after(Revision(number(text)?))),
            Some((revision, part)) => Ok(Self {
                revision: Revision(number(revision)?),
                part: number(part)?.try_into().map_err(|_| BadEventId)?,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_places() {
        let id: EventId = "17.2".parse().unwrap();
        assert_eq!(id.to_string(), "17.2");
        let whole: EventId = "17".parse().unwrap();
        assert!(whole > id && whole < "18.0".parse().unwrap());
        assert_eq!(whole.to_string(), "17");
        for text in ["", ".", "17.", "x", "17.x", "-1", "17.2.3"] {
            assert_eq!(text.parse::<EventId>(), Err(BadEventId), "{text}");
        }
    }
}

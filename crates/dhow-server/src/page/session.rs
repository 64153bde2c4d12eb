//! Sessions: a browser shows a token once and from then on a word that is good for nothing but the page. They are kept in
//! memory, by the hash of the word, and end with the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::limits::{SESSION_SECS, SESSIONS_MAX, SESSIONS_OF_TOKEN_MAX};

/// What a session is kept by: the hash of its word.
pub(super) type SessionKey = [u8; 32];

#[derive(Clone, Debug)]
struct Session {
    token: Arc<str>,
    until_unix_secs: i64,
    /// Counts up: the lowest is the oldest.
    number: u64,
}

#[derive(Debug, Default)]
struct Table {
    by_key: BTreeMap<SessionKey, Session>,
    last_number: u64,
}

/// The sessions of this server.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    table: Mutex<Table>,
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Sessions are put in and taken out whole, so a holder that panicked left a table that can be read.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session of whoever has shown this token: its word.
    pub fn open(&self, token: Arc<str>, now_unix_secs: i64) -> String {
        let word = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
        let mut table = self.table();
        table
            .by_key
            .retain(|_, known| known.until_unix_secs > now_unix_secs);
        let of_token = |known: &Session| known.token == token;
        if table.by_key.values().filter(|known| of_token(known)).count() >= SESSIONS_OF_TOKEN_MAX {
            table.drop_oldest(of_token);
        }
        if table.by_key.len() >= SESSIONS_MAX {
            table.drop_oldest(|_| true);
        }
        table.last_number += 1;
        let session = Session {
            token,
            until_unix_secs: now_unix_secs.saturating_add(SESSION_SECS),
            number: table.last_number,
        };
        table.by_key.insert(key_of(&word), session);
        word
    }

    /// The session of a word and the token that it was opened with.
    pub fn find(&self, word: &str, now_unix_secs: i64) -> Option<(SessionKey, Arc<str>)> {
        let key = key_of(word);
        Some((key, self.token_of(&key, now_unix_secs)?))
    }

    /// The token of a session that is still open.
    pub fn token_of(&self, key: &SessionKey, now_unix_secs: i64) -> Option<Arc<str>> {
        let table = self.table();
        let known = table.by_key.get(key)?;
        (known.until_unix_secs > now_unix_secs).then(|| Arc::clone(&known.token))
    }

    pub fn close(&self, key: &SessionKey) {
        self.table().by_key.remove(key);
    }
}

impl Table {
    fn drop_oldest(&mut self, is_one: impl Fn(&Session) -> bool) {
        let all = self.by_key.iter().filter(|(_, session)| is_one(session));
        let oldest = all.min_by_key(|(_, session)| session.number).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.by_key.remove(&key);
        }
    }
}

fn key_of(word: &str) -> SessionKey {
    *blake3::hash(word.as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_by_its_word_and_for_its_time() {
        let sessions = Sessions::default();
        let word = sessions.open("a".into(), 100);
        let other = sessions.open("a".into(), 100);
        assert_ne!(word, other);
        let (key, token) = sessions.find(&word, 100).unwrap();
        assert_eq!(&*token, "a");
        assert!(!word.contains(&crate::page::format::hex(&key)), "kept as a hash");
        assert!(sessions.find("guess", 100).is_none());
        assert!(sessions.find(&word, 100 + SESSION_SECS - 1).is_some());
        assert!(sessions.find(&word, 100 + SESSION_SECS).is_none());
        sessions.close(&key);
        assert!(sessions.find(&word, 100).is_none());
        assert!(sessions.find(&other, 100).is_some(), "the other stays");
    }

    #[test]
    fn one_token_does_not_take_all_places() {
        let sessions = Sessions::default();
        let other = sessions.open("other".into(), 0);
        let words: Vec<String> = (0..=SESSIONS_OF_TOKEN_MAX)
            .map(|_| sessions.open("a".into(), 0))
            .collect();
        assert!(
            sessions.find(&words[0], 0).is_none(),
            "the oldest of its own went"
        );
        assert!(words[1..].iter().all(|word| sessions.find(word, 0).is_some()));
        assert!(sessions.find(&other, 0).is_some());
        for number in 0..SESSIONS_MAX {
            sessions.open(format!("token {number}").into(), 0);
        }
        assert_eq!(sessions.table().by_key.len(), SESSIONS_MAX);
        assert!(sessions.find(&other, 0).is_none(), "the oldest of all went");
    }
}

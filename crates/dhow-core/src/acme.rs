//! Certificates that the cluster orders itself: which hosts have one, under which names State keeps what belongs to them,
//! and when the next order is due. Pure; the task that speaks with an ACME server is the control plane's.
//!
//! All of it stands in State as sealed secrets of the cluster's own. Their names have a slash, which no name of a person's
//! secret has: nobody can set, name or remove one by mistake, and servers of an older version keep them like any other.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::state::State;

/// What the names of the cluster's own secrets begin with.
const OWN: &str = "acme/";
const CERTIFICATES: &str = "acme/cert/";
const FAILURES: &str = "acme/failed/";

/// The secret with the key of the cluster's account at the ACME server. Servers alone have it.
pub const ACCOUNT: &str = "acme/account";
/// The secret that says why there is no account.
pub const ACCOUNT_FAILURE: &str = "acme/failed-account";
/// The secret with the thumbprint of that key: all that a node needs to answer for the cluster's hosts.
pub const THUMBPRINT: &str = "acme/thumbprint";
/// The secret that says how many orders may still be begun: the account's, whoever leads.
pub const BUDGET: &str = "acme/budget";

/// A failed order is tried again after this time, then after three times as long each time. An ACME server of the public
/// lets a host fail five times an hour: at its soonest this tries it four times in the first.
const RETRY_FIRST_SECS: i64 = 120;
const RETRY_FACTOR: i64 = 3;
/// A host that nobody has mended for a day is asked for twice a day.
const RETRY_MAX_SECS: i64 = 12 * 3_600;
/// Whoever is told that it asks too often asks no sooner.
const RETRY_LIMITED_SECS: i64 = 3_600;
/// Of a certificate's life, in which it is tried more often than [`RETRY_MAX_SECS`] says.
const RETRIES_IN_A_LIFE: i64 = 12;
/// What a server says of a failure, as it is kept: some sentences.
const WORDS_MAX_CHARS: usize = 600;

/// Whether a secret is the cluster's own.
pub fn is_own(secret: &str) -> bool {
    secret.starts_with(OWN)
}

/// The secret with the certificate that is ordered for a host, and its key.
pub fn certificate_of(host: &str) -> String {
    format!("{CERTIFICATES}{}", host.to_ascii_lowercase())
}

/// The secret that says why the last order for a host failed.
pub fn failure_of(host: &str) -> String {
    format!("{FAILURES}{host}")
}

/// The host whose certificate a secret is, where the cluster orders it.
pub fn host_of(secret: &str) -> Option<&str> {
    secret.strip_prefix(CERTIFICATES)
}

/// The host whose last failure a secret is.
pub fn failed_host_of(secret: &str) -> Option<&str> {
    secret.strip_prefix(FAILURES)
}

/// The hosts that have a certificate ordered, each once, however many endpoints it has.
pub fn hosts(state: &State) -> BTreeSet<String> {
    let services = state.services.values().filter(|service| !service.removing);
    let specs = services.filter_map(|service| service.spec());
    let endpoints = specs.flat_map(|spec| &spec.endpoints);
    let public = endpoints.filter(|endpoint| endpoint.is_public());
    let named = public.filter_map(|endpoint| host_of(&endpoint.tls.as_ref()?.secret));
    named.map(str::to_owned).collect()
}

/// Whether a request at `/.well-known/acme-challenge/` names a token as ACME servers make them: base64 for URLs, of at
/// least 128 bits, and not without end.
pub fn is_token(token: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (22..=256).contains(&token.len()) && token.bytes().all(fits)
}

/// Whether a text is the thumbprint of a key: a SHA-256 in base64 for URLs.
pub fn is_thumbprint(text: &str) -> bool {
    text.len() == 43 && is_token(text)
}

/// When a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub not_before_unix_secs: i64,
    pub not_after_unix_secs: i64,
}

impl Lifetime {
    fn secs(&self) -> i64 {
        self.not_after_unix_secs
            .saturating_sub(self.not_before_unix_secs)
            .max(0)
    }

    /// When two thirds of it are over.
    pub fn renewal_unix_secs(&self) -> i64 {
        self.not_before_unix_secs.saturating_add(self.secs() / 3 * 2)
    }

    pub fn is_over(&self, now_unix_secs: i64) -> bool {
        now_unix_secs > self.not_after_unix_secs
    }
}

/// Why an order failed, as far as that decides when it is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setback {
    Failed,
    /// The server says that it is asked too often.
    Limited,
}

/// The orders for a host, or for the account, that have failed since the last one that did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    pub count: u32,
    /// What the server said last.
    pub words: String,
    pub failed_unix_secs: i64,
    pub next_unix_secs: i64,
}

impl Failures {
    /// One more. `random` spreads the next attempt by a quarter to both sides, so that hosts that fail together are not
    /// tried together.
    pub fn after(
        before: Option<&Self>,
        (setback, words): (Setback, &str),
        lifetime: Option<Lifetime>,
        now_unix_secs: i64,
        random: u64,
    ) -> Self {
        let count = before.map_or(0, |before| before.count).saturating_add(1);
        let longest = match lifetime {
            Some(lifetime) => (lifetime.secs() / RETRIES_IN_A_LIFE).clamp(RETRY_FIRST_SECS, RETRY_MAX_SECS),
            None => RETRY_MAX_SECS,
        };
        let grown = RETRY_FACTOR.saturating_pow(count.saturating_sub(1));
        let wait = RETRY_FIRST_SECS.saturating_mul(grown).min(longest);
        let wait = match setback {
            Setback::Failed => wait,
            Setback::Limited => wait.max(RETRY_LIMITED_SECS),
        };
        // From 768 to 1,280 of 1,024 parts.
        let parts = 768 + i64::try_from(random % 513).unwrap_or(256);
        Self {
            count,
            words: words
                .chars()
                .take(WORDS_MAX_CHARS)
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect(),
            failed_unix_secs: now_unix_secs,
            next_unix_secs: now_unix_secs.saturating_add(wait * parts / 1_024),
        }
    }

    /// When it is tried again. A clock that was set back since does not make anybody wait longer than a failure can.
    fn until(&self, now_unix_secs: i64) -> i64 {
        let longest = RETRY_MAX_SECS / 4 * 5;
        match self.next_unix_secs.saturating_sub(now_unix_secs) > longest {
            true => now_unix_secs,
            false => self.next_unix_secs,
        }
    }
}

/// Whether an order is to be made now, for a host with this certificate and these failures.
pub fn is_due(lifetime: Option<Lifetime>, failures: Option<&Failures>, now_unix_secs: i64) -> bool {
    let wanted = lifetime.map_or(i64::MIN, |lifetime| lifetime.renewal_unix_secs());
    let allowed = failures.map_or(i64::MIN, |failures| failures.until(now_unix_secs));
    now_unix_secs >= wanted.max(allowed)
}

/// How many orders are begun, whatever is due: so many at once, and no more than a public ACME server lets an account have.
/// State keeps it, so that it does not begin anew with each leader and each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderBudget {
    left: u32,
    filled_unix_secs: i64,
}

impl OrderBudget {
    /// Orders under way at a time.
    pub const AT_ONCE_MAX: usize = 4;
    /// After a rest. With one each 45 s, 240 in three hours, that is 280; 300 are allowed.
    const BURST: u32 = 40;
    const EACH_SECS: i64 = 45;

    pub fn new(now_unix_secs: i64) -> Self {
        Self {
            left: Self::BURST,
            filled_unix_secs: now_unix_secs,
        }
    }

    /// Whether one more may be begun; it is counted then. A clock that goes back gives nothing, and nobody waits until it is
    /// where it was.
    pub fn take(&mut self, under_way: usize, now_unix_secs: i64) -> bool {
        self.filled_unix_secs = self.filled_unix_secs.min(now_unix_secs);
        let more = now_unix_secs.saturating_sub(self.filled_unix_secs) / Self::EACH_SECS;
        self.filled_unix_secs = self
            .filled_unix_secs
            .saturating_add(more.saturating_mul(Self::EACH_SECS));
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(Self::BURST);
        if under_way >= Self::AT_ONCE_MAX || self.left == 0 {
            return false;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests;

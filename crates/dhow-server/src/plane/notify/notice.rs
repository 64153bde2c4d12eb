//! What is sent: which events are notices, the document, and where it goes.

use dhow_core::state::Notice;
use dhow_wire::api::EventDocument;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::post::PostError;
use crate::plane::runtime::{Event, EventKind, EventRecord, is_failed_run};
use crate::plane::secrets::{SealError, SecretBox};

/// Which notice an event is, where it is one.
pub fn notice_of(event: &Event) -> Option<Notice> {
    if is_failed_run(event) {
        return Some(Notice::RunFailed);
    }
    let found = NOTICES.iter().find(|(kind, _, _)| *kind == event.kind);
    found.map(|(_, notice, _)| *notice)
}

/// Events that are notices, and what their text begins with; ends of runs are looked at one by one.
const NOTICES: [(EventKind, Notice, &str); 5] = [
    (EventKind::Failed, Notice::RolloutFailed, "has failed to roll out"),
    (
        EventKind::RevertFailed,
        Notice::RolloutFailed,
        "has failed to roll out, and so does what was before it",
    ),
    (
        EventKind::Reverting,
        Notice::RolloutReverted,
        "is taken back to what ran before",
    ),
    (EventKind::NodeLost, Notice::NodeLost, "is lost"),
    (EventKind::Alarm, Notice::Alarm, ""),
];

/// The body of a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeDocument {
    /// The same for the same event: what comes twice is known by it.
    pub id: String,
    pub cluster_id: String,
    pub target: String,
    /// `rollout-failed`, …, or `test`.
    pub notice: String,
    /// In words.
    pub text: String,
    /// What happened; none in a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventDocument>,
}

impl NoticeDocument {
    pub fn of(cluster_id: &str, target: &str, record: &EventRecord) -> Self {
        // Who asked for it is told to administrators, and whoever reads this need be none.
        let bare = EventRecord {
            event: Event {
                author: None,
                ..record.event.clone()
            },
            ..record.clone()
        };
        let event = serde_json::to_value(&bare).ok();
        Self {
            id: format!("{cluster_id}/{}", record.id()),
            cluster_id: cluster_id.to_owned(),
            target: target.to_owned(),
            notice: notice_of(&record.event)
                .map_or("alarm", Notice::as_str)
                .to_owned(),
            text: text(&record.event),
            event: event.and_then(|event| serde_json::from_value(event).ok()),
        }
    }

    /// One that says that notices arrive.
    pub fn test(cluster_id: &str, target: &str, number: u64) -> Self {
        Self {
            id: format!("{cluster_id}/test-{number:016x}"),
            cluster_id: cluster_id.to_owned(),
            target: target.to_owned(),
            notice: "test".to_owned(),
            text: "notices arrive here".to_owned(),
            event: None,
        }
    }
}

/// A line for people: whom it is about, and what happened.
fn text(event: &Event) -> String {
    let service = event
        .service
        .as_ref()
        .map(|service| format!("/{service}"))
        .unwrap_or_default();
    let deployment = event.deployment.as_ref().map(|name| format!("{name}{service}"));
    let node = event.node_id.map(|node| format!("node {node}"));
    let known = NOTICES.iter().find(|(kind, _, _)| *kind == event.kind);
    let what = known.map_or("", |(_, _, what)| *what);
    let about: Vec<String> = [deployment, node].into_iter().flatten().collect();
    let said = [what, event.message.as_deref().unwrap_or_default()];
    let said: Vec<&str> = said.into_iter().filter(|part| !part.is_empty()).collect();
    let text = format!("{} {}", about.join(", "), said.join(": "));
    text.trim().to_owned()
}

/// Under this name an address is sealed, so that it opens as nothing else.
pub fn seal_name(target: &str) -> String {
    // No secret's name has such a character.
    format!("notify {target}")
}

/// Where notices of a target go, and what signs them.
#[derive(Clone, Serialize, Deserialize)]
pub struct Address {
    pub url: String,
    pub key: String,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Address")
    }
}

/// The longest address.
const URL_BYTES_MAX: usize = 2_048;

impl Address {
    /// An address that notices may be sent to: over TLS, or to this host, or in clear where that was asked for. What is
    /// wrong with it is told otherwise.
    pub fn new(url: &str, key: &str, any_http: bool) -> Result<Self, &'static str> {
        if url.len() > URL_BYTES_MAX {
            return Err("the address has more than 2,048 characters");
        }
        let parsed = Url::parse(url).map_err(|_| "it is no address: write `https://HOST/PATH`")?;
        let host = parsed.host_str().ok_or("the address has no host")?;
        let is_own_host = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback());
        match parsed.scheme() {
            "https" => {}
            "http" if is_own_host || any_http => {}
            "http" => {
                return Err(
                    "over plain HTTP anybody on the way reads it: write `https://`, or allow it with --plain-http",
                );
            }
            _ => return Err("it is no address: write `https://HOST/PATH`"),
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("a name and a password in the address are not sent: the signature says who it is");
        }
        Ok(Self {
            url: parsed.to_string(),
            key: key.to_owned(),
        })
    }

    /// Its beginning: what follows may be a credential.
    pub fn shown(&self) -> String {
        match Url::parse(&self.url) {
            Ok(url) if url.path() == "/" && url.query().is_none() => url.origin().ascii_serialization(),
            Ok(url) => format!("{}/…", url.origin().ascii_serialization()),
            Err(_) => String::new(),
        }
    }

    pub fn seal(&self, secrets: &SecretBox, target: &str) -> Result<Vec<u8>, SealError> {
        // Two texts can always be written.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        secrets.seal(&seal_name(target), &bytes)
    }

    pub fn unseal(secrets: &SecretBox, target: &str, sealed: &[u8]) -> Result<Self, PostError> {
        let bytes = secrets
            .unseal(&seal_name(target), sealed)
            .map_err(|_| PostError::Unsealed)?;
        serde_json::from_slice(&bytes).map_err(|_| PostError::Unsealed)
    }
}

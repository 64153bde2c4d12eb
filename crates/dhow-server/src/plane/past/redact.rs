//! Takes the values of secrets out before anything is written: the past tells names and versions.

use std::sync::Arc;

use bytes::Bytes;
use dhow_core::command::{ClusterCommand, Command, Entry};
use dhow_core::state::{EarlierSecret, NotifySettings, NotifyTarget, Secret, State};
use dhow_wire::log_form::{LogFormError, decode_entry, encode_entry};

/// The state without the values of its secrets.
pub fn state(state: &State) -> State {
    let mut state = state.clone();
    let bare = state.secrets.iter().map(|(name, secret)| {
        let earlier = secret.earlier.iter().map(|earlier| EarlierSecret {
            version: earlier.version,
            sealed: Arc::default(),
        });
        let secret = Secret {
            sealed: Arc::default(),
            version: secret.version,
            earlier: earlier.collect(),
        };
        (Arc::clone(name), Arc::new(secret))
    });
    state.secrets = bare.collect();
    let bare = state.notify.iter().map(|(name, target)| {
        let target = NotifyTarget {
            settings: settings(&target.settings),
            done: target.done,
        };
        (Arc::clone(name), Arc::new(target))
    });
    state.notify = bare.collect();
    state
}

/// Where notices go, without the address and its key.
fn settings(settings: &NotifySettings) -> NotifySettings {
    NotifySettings {
        sealed: Arc::default(),
        ..settings.clone()
    }
}

/// The entry without the value of the secret, or the address, that it sets. `step` never looks at values, so that it does the same.
pub fn entry(payload: &Bytes) -> Result<Bytes, LogFormError> {
    let entry = decode_entry(payload)?;
    let command = match entry.command {
        Command::Cluster(ClusterCommand::SetSecret { name, sealed: _ }) => ClusterCommand::SetSecret {
            name,
            sealed: Arc::default(),
        },
        Command::Cluster(ClusterCommand::SetNotify { name, settings: with }) => ClusterCommand::SetNotify {
            name,
            settings: settings(&with),
        },
        Command::Cluster(_)
        | Command::Node(_)
        | Command::Deployment(_)
        | Command::Plan(_)
        | Command::Agent(_) => return Ok(payload.clone()),
    };
    let bare = Entry {
        command: Command::Cluster(command),
        ..entry
    };
    encode_entry(&bare, State::FEATURE_LEVEL).map(Bytes::from)
}

//! Takes the values of secrets out before anything is written: the past tells names and versions.

use std::sync::Arc;

use bytes::Bytes;
use dhow_core::command::{ClusterCommand, Command, Entry};
use dhow_core::state::{EarlierSecret, Secret, State};
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
    state
}

/// The entry without the value of the secret that it sets. `step` never looks at values, so that it does the same.
pub fn entry(payload: &Bytes) -> Result<Bytes, LogFormError> {
    let entry = decode_entry(payload)?;
    let Command::Cluster(ClusterCommand::SetSecret { name, sealed: _ }) = entry.command else {
        return Ok(payload.clone());
    };
    let bare = Entry {
        command: Command::Cluster(ClusterCommand::SetSecret {
            name,
            sealed: Arc::default(),
        }),
        ..entry
    };
    encode_entry(&bare, State::FEATURE_LEVEL).map(Bytes::from)
}

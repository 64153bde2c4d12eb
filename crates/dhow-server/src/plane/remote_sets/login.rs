//! What a source's server is asked with: authorities and a login, out of the cluster's secrets.

use std::fmt;

use dhow_core::state::{RemoteSource, State};
use reqwest::Certificate;
use reqwest::header::HeaderValue;

use super::error::RemoteError;
use crate::plane::secrets::SecretBox;

/// The opened secrets of one source. They are never shown.
#[derive(Default)]
pub struct Credentials {
    pub(super) authorities: Vec<Certificate>,
    pub(super) login: Option<HeaderValue>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Opens what the source names.
    pub fn of(
        remote: &RemoteSource,
        state: &State,
        secrets: Option<&SecretBox>,
    ) -> Result<Self, RemoteError> {
        let open = |name: &str| open(name, state, secrets);
        let mut credentials = Self::default();
        if let Some(name) = remote.ca_secret.as_deref() {
            let bad = |_| RemoteError::BadSecret(name.into(), "it has no certificates as PEM");
            let authorities = Certificate::from_pem_bundle(&open(name)?).map_err(bad)?;
            if authorities.is_empty() {
                return Err(RemoteError::BadSecret(
                    name.into(),
                    "it has no certificates as PEM",
                ));
            }
            credentials.authorities = authorities;
        }
        if let Some(name) = remote.login_secret.as_deref() {
            credentials.login = Some(login(name, &open(name)?)?);
        }
        Ok(credentials)
    }
}

/// A secret's value.
pub(crate) fn open(name: &str, state: &State, secrets: Option<&SecretBox>) -> Result<Vec<u8>, RemoteError> {
    let kept = state.secrets.get(name);
    let (Some(kept), Some(secrets)) = (kept, secrets) else {
        return Err(RemoteError::NoSecret(name.into()));
    };
    let opened = secrets.unseal(name, &kept.sealed);
    opened.map_err(|_| RemoteError::BadSecret(name.into(), "it cannot be unsealed on this server"))
}

/// `USER:PASSWORD` is a basic login, anything else a bearer token.
fn login(name: &str, value: &[u8]) -> Result<HeaderValue, RemoteError> {
    use base64::Engine;
    let bad = || RemoteError::BadSecret(name.into(), "it is `USER:PASSWORD` or a token, on one line");
    let text = str::from_utf8(value).map_err(|_| bad())?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(bad());
    }
    let text = match text.contains(':') {
        true => format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text)),
        false => format!("Bearer {text}"),
    };
    let mut value = HeaderValue::from_str(&text).map_err(|_| bad())?;
    value.set_sensitive(true);
    Ok(value)
}

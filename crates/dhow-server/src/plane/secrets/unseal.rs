//! The secrets that a replica's spec names, in clear, for the session of the node that runs it.

use std::collections::BTreeMap;
use std::fmt;

use dhow_core::state::State;

use super::secret_box::{SealError, SecretBox};

/// Values by name; shows none of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Unsealed(pub BTreeMap<String, Vec<u8>>);

impl fmt::Debug for Unsealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Why the secrets of a replica could not be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    #[error("there is no secret `{0}`; set it with `dhow secret set {0}`")]
    Missing(String),
    #[error("secret `{name}` cannot be read; set it again with `dhow secret set {name}`")]
    Sealed {
        name: String,
        #[source]
        cause: SealError,
    },
}

/// All or the first that is wrong.
pub fn unseal_all<'a>(
    secrets: &SecretBox,
    state: &State,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Unsealed, UnsealError> {
    let mut values = BTreeMap::new();
    for name in names {
        let secret = state
            .secrets
            .get(name)
            .ok_or_else(|| UnsealError::Missing(name.to_owned()))?;
        let value = secrets
            .unseal(name, &secret.sealed)
            .map_err(|cause| UnsealError::Sealed {
                name: name.to_owned(),
                cause,
            })?;
        values.insert(name.to_owned(), value);
    }
    Ok(Unsealed(values))
}

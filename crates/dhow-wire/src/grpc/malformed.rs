//! Why a message cannot be read.

use dhow_core::ids::NameError;

/// Why a message of the nodes' protocol could not be read or made.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    #[error("the message lacks `{0}`")]
    Missing(&'static str),
    #[error("`{what}` is no name")]
    Name {
        what: &'static str,
        #[source]
        cause: NameError,
    },
    #[error("the spec of service `{service}` cannot be read; is the server of a newer version?")]
    Spec {
        service: String,
        #[source]
        cause: serde_json::Error,
    },
    #[error("`{what}` has form {found}, this version reads form {known}: upgrade the older side first")]
    Form {
        what: &'static str,
        found: u8,
        known: u8,
    },
    #[error("`{what}` does not have the form that its version says")]
    Bytes { what: &'static str },
    #[error("`{what}` has {found} items, at most {max} are taken")]
    TooMany {
        what: &'static str,
        found: usize,
        max: usize,
    },
    #[error("`{what}` cannot be written in its form")]
    Unwritable { what: &'static str },
    #[error("the parts of an assignment do not belong together")]
    Parts,
}

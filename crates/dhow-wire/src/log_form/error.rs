//! Why bytes are no entry and no snapshot, or why one could not be made into bytes.

use std::io;

use dhow_core::stored::Form;

/// Why an entry or a snapshot could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogFormError {
    #[error("the {what} is empty; it was cut off or never written")]
    Empty { what: &'static str },
    #[error(
        "the {what} has form {found}, this version reads up to form {known}: start a version of Dhow that is at \
         least as new as the one that wrote it"
    )]
    UnknownVersion {
        what: &'static str,
        found: u8,
        known: u8,
    },
    #[error("the {what} has {size_bytes} bytes, at most {limit_bytes} are allowed")]
    TooLarge {
        what: &'static str,
        size_bytes: u64,
        limit_bytes: u64,
    },
    #[error("the {what} cannot be read: its bytes do not have the form that its version says")]
    Malformed {
        what: &'static str,
        #[source]
        cause: postcard::Error,
    },
    #[error("the {what} has {rest_bytes} bytes behind its end")]
    Trailing { what: &'static str, rest_bytes: usize },
    #[error("the {what} cannot be written in its form")]
    Unwritable {
        what: &'static str,
        #[source]
        cause: postcard::Error,
    },
    #[error(
        "the {what} has something that servers of the version before do not know: upgrade every server of the \
         cluster, then ask again"
    )]
    OlderServers { what: &'static str },
    #[error("the {what} could not be read or written")]
    Io {
        what: &'static str,
        #[source]
        cause: io::Error,
    },
}

impl LogFormError {
    /// Every value can be written in the newest form; an older one lacks what came later.
    pub(super) fn unwritable(what: &'static str, form: Form, cause: postcard::Error) -> Self {
        match form == Form::NEWEST {
            true => Self::Unwritable { what, cause },
            false => Self::OlderServers { what },
        }
    }
}

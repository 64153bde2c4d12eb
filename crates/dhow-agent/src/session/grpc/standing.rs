//! How the session stands, for the daemon and for people.

use std::fmt;

/// Whether a session is open, still looks for a server, or was told that the cluster does not know the node. The daemon
/// follows it, and prints it for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionStanding {
    /// No server has been reached, and why the last attempt failed.
    Seeking {
        why: Option<String>,
    },
    Open {
        address: String,
        cluster_id: String,
    },
    /// The cluster does not know this node, or has removed it: it has to register again.
    Unknown,
}

impl fmt::Display for SessionStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeking { why: None } => f.write_str("no server has been reached yet"),
            Self::Seeking { why: Some(why) } => f.write_str(why),
            Self::Open { address, .. } => write!(f, "the server at {address} did not answer in time"),
            Self::Unknown => f.write_str("the cluster does not know this node; it has to register again"),
        }
    }
}

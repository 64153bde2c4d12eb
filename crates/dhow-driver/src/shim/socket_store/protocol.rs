//! What the balancer and the daemon say to a socket store, and what they hear: one message of a Unix socket that keeps
//! messages whole, JSON, with up to [`NAMES_MAX`] sockets. Each request is answered by one message. A store outlives the
//! daemon and every balancer, so what an older or a newer one says must be understood: words are added, never changed.

use serde::{Deserialize, Serialize};

/// Sockets with one message: the kernel takes at most 253.
pub const NAMES_MAX: usize = 64;
/// Two networks of 4,096 listeners each, and the few of the mesh and the name server.
pub const SOCKETS_MAX: usize = 2 * 4096 + 8;
/// The transport, the network and the address of a listener: less than 100 bytes.
pub const NAME_MAX_BYTES: usize = 128;
/// All names of a message, quoted, and the words around them.
pub const MESSAGE_MAX_BYTES: usize = NAMES_MAX * (NAME_MAX_BYTES + 4) + 256;

/// What is asked of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreRequest {
    /// Hold these sockets, which come with the message in the same order. Who asks is their owner from now on.
    Keep { names: Vec<String> },
    /// Close these, where who asks is their owner or the owner has gone.
    LetGo { names: Vec<String> },
    /// Give me what you hold, in the order of the names, from behind this one on.
    Take { after: Option<String> },
    /// Close everything and end.
    End,
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreReply {
    Done,
    /// The sockets come with the message in the same order.
    Taken {
        names: Vec<String>,
        /// There are more behind the last of them.
        has_more: bool,
    },
    Refused {
        why: String,
    },
}

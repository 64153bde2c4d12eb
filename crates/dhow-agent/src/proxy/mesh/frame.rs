//! What two nodes' proxies say to each other, as bytes: a header of four, then so many as it announces. Pure.
//!
//! A connection carries one stream at a time: `Open`, its `Answer`, then `Data` both ways until each side has said `End`.
//! `Abort`, or a connection that ends without `End`, is a reset. A control connection begins with `Control` and has
//! `Beat` both ways and `Drain` from the side that was called.
//!
//! A node that nobody can dial keeps a connection to a relay that begins with `Offer`, with `Beat` both ways and `Call` from
//! the relay, each with a number. It answers by a new connection that begins with `Arrive` and the number. Who calls such a
//! node opens a connection to the relay with `Through` and the node, and hears an `Answer`. From there on both connections
//! carry bytes that the relay does not look at: the TLS of the two nodes at their ends.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::proxy::table::{Allowed, Peer, TEXT_MAX_BYTES, TICKET_MAX_BYTES, Transport};

/// The protocol that TLS names: another version is another name.
pub const ALPN: &[u8] = b"dhow-mesh/1";

pub const HEADER_BYTES: usize = 4;
/// With its header four whole records of TLS, of 16 KiB each; the longest datagram fits.
pub const DATA_MAX_BYTES: usize = (64 << 10) - HEADER_BYTES;
/// A ticket, in which JSON escapes nothing, and five texts of which it may escape every byte sixfold.
const OPEN_MAX_BYTES: usize = TICKET_MAX_BYTES + 5 * 6 * TEXT_MAX_BYTES + 1024;
/// An answer names its reason by one word.
const ANSWER_MAX_BYTES: usize = 1024;
/// The number of a call, or a node's.
const NUMBER_BYTES: usize = 8;
/// A replica's id.
const DRAIN_MAX_BYTES: usize = TEXT_MAX_BYTES;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data,
    /// This side sends no more.
    End,
    /// What this side sent is not whole: the other resets.
    Abort,
    Open,
    Answer,
    /// This connection carries no streams: it tells whether the other side lives.
    Control,
    Beat,
    /// A replica takes no new streams, and idle ones are to be closed.
    Drain,
    /// This node cannot be dialled: whoever calls it is sent through this connection's other end.
    Offer,
    /// Somebody calls the node that offered itself: it is to arrive with this number.
    Call,
    /// The answer to a call, on a connection of its own.
    Arrive,
    /// A connection to this node is wanted.
    Through,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Data,
        Self::End,
        Self::Abort,
        Self::Open,
        Self::Answer,
        Self::Control,
        Self::Beat,
        Self::Drain,
        Self::Offer,
        Self::Call,
        Self::Arrive,
        Self::Through,
    ];

    fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::End => 1,
            Self::Abort => 2,
            Self::Open => 3,
            Self::Answer => 4,
            Self::Control => 5,
            Self::Beat => 6,
            Self::Drain => 7,
            Self::Offer => 8,
            Self::Call => 9,
            Self::Arrive => 10,
            Self::Through => 11,
        }
    }

    fn length_max(self) -> usize {
        match self {
            Self::Data => DATA_MAX_BYTES,
            Self::End | Self::Abort | Self::Control | Self::Beat | Self::Offer => 0,
            Self::Call | Self::Arrive | Self::Through => NUMBER_BYTES,
            Self::Open => OPEN_MAX_BYTES,
            Self::Answer => ANSWER_MAX_BYTES,
            Self::Drain => DRAIN_MAX_BYTES,
        }
    }
}

/// A kind in the first byte, a length in three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub length: usize,
}

/// Why bytes are no frame. Whoever sent them is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    #[error("a frame of kind {0}, which this dhow does not know")]
    Kind(u8),
    #[error("a frame of {length} bytes, {max} are the most of its kind")]
    Length { length: usize, max: usize },
    #[error("a frame of {found:?} where none may stand")]
    Place { found: Kind },
    #[error("a frame of {kind:?} that cannot be read")]
    Content { kind: Kind },
}

impl Header {
    /// `None` where so many bytes do not fit.
    pub fn new(kind: Kind, length: usize) -> Option<Self> {
        (length <= kind.length_max()).then_some(Self { kind, length })
    }

    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let [_, high, middle, low] = u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes();
        [self.kind.byte(), high, middle, low]
    }

    pub fn read(bytes: [u8; HEADER_BYTES]) -> Result<Self, BadFrame> {
        let [kind, high, middle, low] = bytes;
        let found = Kind::ALL.into_iter().find(|known| known.byte() == kind);
        let kind = found.ok_or(BadFrame::Kind(kind))?;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let max = kind.length_max();
        Self::new(kind, length).ok_or(BadFrame::Length { length, max })
    }
}

/// Who calls, as the near side knows it. What it claims of a replica its ticket must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Replica {
        deployment: String,
        service: String,
    },
    /// A user of the near node's host who may.
    Host,
    /// Somebody at a public port of the near node.
    Outside,
}

/// For the log.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // They come from another node: whatever stands in them is shown as text and nothing else.
            Self::Replica { deployment, service } => {
                write!(f, "as {:?} it", format!("{deployment}/{service}"))
            }
            Self::Host => f.write_str("for a user of its host, it"),
            Self::Outside => f.write_str("for somebody outside, it"),
        }
    }
}

impl Origin {
    /// Of somebody whom this node lets call. Where several services are one user's, any of them may.
    pub fn of(caller: &Peer) -> Self {
        match caller {
            Peer::Replicas(callers) => match callers.first() {
                Some(Allowed { deployment, service }) => Self::Replica {
                    deployment: deployment.clone(),
                    service: service.clone(),
                },
                None => Self::Outside,
            },
            Peer::HostUser => Self::Host,
            Peer::Stranger => Self::Outside,
        }
    }

    /// The same the other way: whom it is for the rule of an endpoint.
    pub fn caller(&self) -> Peer {
        match self {
            Self::Replica { deployment, service } => {
                let (deployment, service) = (deployment.clone(), service.clone());
                Peer::Replicas([Allowed { deployment, service }].into())
            }
            Self::Host => Peer::HostUser,
            Self::Outside => Peer::Stranger,
        }
    }
}

/// What stands at the beginning of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    pub origin: Origin,
    /// The backend's id.
    pub replica: String,
    /// The endpoint's name.
    pub endpoint: String,
    pub transport: Transport,
    #[serde(default)]
    pub ticket: ShownTicket,
}

/// The near node's ticket. It goes once over a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShownTicket {
    #[default]
    None,
    Whole(String),
    /// The one that this connection brought last.
    Again,
}

/// What the far side says to an opening, before any byte of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Accepted,
    Refused(Why),
}

/// Why a stream is refused. Nothing of it has reached the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    #[error("the replica is ending")]
    Draining,
    /// It has been there, or another generation of it is.
    #[error("the replica is not there any more")]
    Gone,
    #[error("the node does not run such a replica")]
    NotMine,
    #[error("the endpoint is not for this caller")]
    NotAllowed,
    #[error("the ticket does not say that the calling node runs the caller")]
    Ticket,
    #[error("the replica does not take connections")]
    Unreachable,
    #[error("the node has as many streams as it can carry")]
    Busy,
    /// Of a relay.
    #[error("the node has no tunnel there, or does not answer over it")]
    NoTunnel,
    /// Of a node that passes nothing on.
    #[error("it is no server that passes on for others")]
    NoRelay,
    /// What a newer dhow says.
    #[serde(other)]
    #[error("the node has its reasons, which a newer dhow knows")]
    Other,
}

/// What goes into the frames that have a number.
pub fn write_number(number: u64) -> [u8; NUMBER_BYTES] {
    number.to_be_bytes()
}

pub fn read_number(kind: Kind, body: &[u8]) -> Result<u64, BadFrame> {
    let bytes = <[u8; NUMBER_BYTES]>::try_from(body);
    bytes
        .map(u64::from_be_bytes)
        .map_err(|_| BadFrame::Content { kind })
}

/// What goes into the frames that have words.
pub fn write_body(body: &impl Serialize) -> Vec<u8> {
    // These types have nothing that JSON cannot say; an empty body is refused by whoever reads it.
    serde_json::to_vec(body).unwrap_or_default()
}

pub fn read_body<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, BadFrame> {
    serde_json::from_slice(body).map_err(|_| BadFrame::Content { kind })
}

impl Opening {
    /// Reads one, whose texts must be as long as a table's.
    pub fn read(body: &[u8]) -> Result<Self, BadFrame> {
        let bad = BadFrame::Content { kind: Kind::Open };
        let opening: Self = read_body(Kind::Open, body)?;
        let fits = |text: &str| (1..=TEXT_MAX_BYTES).contains(&text.len());
        let named = match &opening.origin {
            Origin::Replica { deployment, service } => fits(deployment) && fits(service),
            Origin::Host | Origin::Outside => true,
        };
        let shown = match &opening.ticket {
            ShownTicket::Whole(ticket) => ticket.len() <= TICKET_MAX_BYTES,
            ShownTicket::None | ShownTicket::Again => true,
        };
        let is_fine = named && shown && fits(&opening.replica) && fits(&opening.endpoint);
        is_fine.then_some(opening).ok_or(bad)
    }
}

#[cfg(test)]
mod tests;

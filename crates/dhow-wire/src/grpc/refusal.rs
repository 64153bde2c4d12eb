//! A refusal as both sides see it: a closed set of reasons, carried by a status and its metadata.

use dhow_core::ids::NodeId;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::proto::{Ended, Reason, Refused};

const REASON_KEY: &str = "x-dhow-reason";
const LEADER_KEY: &str = "x-dhow-leader";
const LEADER_ADDR_KEY: &str = "x-dhow-leader-addr";

/// Who leads, and where it takes sessions where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderHint {
    pub node: NodeId,
    pub address: Option<String>,
}

/// Why a server did not do what a node asked. Servers send it as a gRPC status, as the end of a session or inside an
/// answer; agents read it back from there and decide whether to try again, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{}", told_leader(leader.as_ref()))]
    NotLeader { leader: Option<LeaderHint> },
    #[error(
        "the cluster does not know this node, or has removed it: it comes back as a new node, with a token that it has not joined with"
    )]
    UnknownNode,
    #[error("the server has as much to do as it can hold; try again in a second")]
    Busy,
    #[error("this node asks more often than it may; try again in a second")]
    TooOften,
    #[error("{0}")]
    Identity(String),
    #[error("a newer session of this node has taken over")]
    Replaced,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    Credential(String),
    #[error("{0}")]
    NotGiven(String),
}

fn told_leader(leader: Option<&LeaderHint>) -> String {
    match leader {
        Some(leader) => format!("this server does not lead the cluster, node {} does", leader.node),
        None => "the cluster has no leader at the moment; try again shortly".to_owned(),
    }
}

impl Refusal {
    fn reason(&self) -> Reason {
        match self {
            Self::NotLeader { .. } => Reason::NotLeader,
            Self::UnknownNode => Reason::UnknownNode,
            Self::Busy => Reason::Busy,
            Self::TooOften => Reason::TooOften,
            Self::Identity(_) => Reason::Identity,
            Self::Replaced => Reason::Replaced,
            Self::ShuttingDown => Reason::ShuttingDown,
            Self::Malformed(_) => Reason::Malformed,
            Self::Credential(_) => Reason::Credential,
            Self::NotGiven(_) => Reason::NotGiven,
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::NotLeader { .. } => Code::FailedPrecondition,
            Self::UnknownNode => Code::NotFound,
            Self::Busy | Self::TooOften => Code::ResourceExhausted,
            Self::Identity(_) | Self::NotGiven(_) => Code::PermissionDenied,
            Self::Replaced => Code::Aborted,
            Self::ShuttingDown => Code::Unavailable,
            Self::Malformed(_) => Code::InvalidArgument,
            Self::Credential(_) => Code::Unauthenticated,
        }
    }

    /// The status that says it.
    pub fn to_status(&self) -> Status {
        let mut metadata = MetadataMap::new();
        metadata.insert(REASON_KEY, MetadataValue::from_static(word(self.reason())));
        if let Self::NotLeader { leader: Some(leader) } = self {
            metadata.insert(LEADER_KEY, leader.node.0.into());
            let address = leader.address.as_deref().and_then(|text| text.parse().ok());
            if let Some(address) = address {
                metadata.insert(LEADER_ADDR_KEY, address);
            }
        }
        Status::with_metadata(self.code(), self.to_string(), metadata)
    }

    /// What a status says, where it is a refusal of this protocol.
    pub fn from_status(status: &Status) -> Option<Self> {
        let metadata = status.metadata();
        let text = |key| metadata.get(key).and_then(|value| value.to_str().ok());
        let reason = reason_of(text(REASON_KEY)?)?;
        let node = text(LEADER_KEY).and_then(|id| id.parse().ok());
        let leader = node.map(|node| LeaderHint {
            node: NodeId(node),
            address: text(LEADER_ADDR_KEY).map(str::to_owned),
        });
        Self::new(reason, leader, status.message())
    }

    /// The last event of a session.
    pub fn to_ended(&self) -> Ended {
        let leader = match self {
            Self::NotLeader { leader } => leader.as_ref(),
            Self::UnknownNode
            | Self::Busy
            | Self::TooOften
            | Self::Identity(_)
            | Self::Replaced
            | Self::ShuttingDown
            | Self::Malformed(_)
            | Self::Credential(_)
            | Self::NotGiven(_) => None,
        };
        Ended {
            reason: self.reason().into(),
            leader_id: leader.map(|leader| leader.node.0),
            leader_addr: leader.and_then(|leader| leader.address.clone()),
        }
    }

    /// Why a session ended; none where this version does not know the reason.
    pub fn from_ended(ended: &Ended) -> Option<Self> {
        let leader = ended.leader_id.map(|node| LeaderHint {
            node: NodeId(node),
            address: ended.leader_addr.clone(),
        });
        Self::new(ended.reason(), leader, "the server ended the session")
    }

    /// The refusal of one of several questions.
    pub fn to_refused(&self) -> Refused {
        Refused {
            reason: self.reason().into(),
            message: self.to_string(),
        }
    }

    /// The same from the other side; one whose reason this version does not know is an answer to try again.
    pub fn from_refused(refused: &Refused) -> Self {
        Self::new(refused.reason(), None, &refused.message).unwrap_or(Self::Busy)
    }

    fn new(reason: Reason, leader: Option<LeaderHint>, message: &str) -> Option<Self> {
        Some(match reason {
            Reason::NotLeader => Self::NotLeader { leader },
            Reason::UnknownNode => Self::UnknownNode,
            Reason::Busy => Self::Busy,
            Reason::TooOften => Self::TooOften,
            Reason::Identity => Self::Identity(message.to_owned()),
            Reason::Replaced => Self::Replaced,
            Reason::ShuttingDown => Self::ShuttingDown,
            Reason::Malformed => Self::Malformed(message.to_owned()),
            Reason::Credential => Self::Credential(message.to_owned()),
            Reason::NotGiven => Self::NotGiven(message.to_owned()),
            Reason::Unspecified => return None,
        })
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        refusal.to_status()
    }
}

/// The word in the metadata.
fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::NotLeader => "not_leader",
        Reason::UnknownNode => "unknown_node",
        Reason::Busy => "busy",
        Reason::TooOften => "too_often",
        Reason::Identity => "identity",
        Reason::Replaced => "replaced",
        Reason::ShuttingDown => "shutting_down",
        Reason::Malformed => "malformed",
        Reason::Credential => "credential",
        Reason::NotGiven => "not_given",
        Reason::Unspecified => "unspecified",
    }
}

fn reason_of(text: &str) -> Option<Reason> {
    const ALL: [Reason; 10] = [
        Reason::NotLeader,
        Reason::UnknownNode,
        Reason::Busy,
        Reason::TooOften,
        Reason::Identity,
        Reason::Replaced,
        Reason::ShuttingDown,
        Reason::Malformed,
        Reason::Credential,
        Reason::NotGiven,
    ];
    ALL.into_iter().find(|reason| word(*reason) == text)
}

//! `dhow net check`: whether one service reaches another, tried from inside a replica.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What became of a call that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetCheck {
    /// The replica that it was tried from, as `deployment/id`.
    pub from: String,
    pub node_id: u64,
    /// `deployment/service`.
    pub to: String,
    pub endpoint: String,
    pub verdict: NetVerdict,
    /// In the order in which they were taken. A step that failed is the last one.
    pub steps: Vec<NetStep>,
}

/// One step of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NetStep {
    pub step: NetStepKind,
    pub ok: bool,
    /// What was found, in words.
    pub text: String,
}

/// What a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetStepKind {
    /// What the service's name means there.
    Name,
    /// Whether the endpoint lets the caller in.
    Rule,
    /// Which replicas are ready, and how they are reached.
    Replicas,
    /// The connection itself.
    Connect,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetVerdict {
    Reachable,
    /// The caller's node does not know the service.
    NoName,
    /// The endpoint does not let the caller in.
    Refused,
    NoReplica,
    NotConnected,
}

impl NetStepKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Rule => "rule",
            Self::Replicas => "replicas",
            Self::Connect => "connect",
        }
    }
}

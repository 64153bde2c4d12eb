//! One node: it runs the replicas that the control plane assigns to it, heals them, checks their health and
//! tells what happened.
//!
//! Called by the `dhow` binary, which joins it with a session to the control plane: over a pipe in the same process on a
//! single node, over the network elsewhere. It must never see `dhow-server`, and never decide what should run: it carries out.

mod agent;
mod balance;
mod certificates;
mod drivers;
mod environment;
mod files;
mod health;
mod highest;
mod keeper;
mod last_words;
pub mod ledger;
pub mod limits;
mod logins;
mod logs;
mod net_check;
mod policy;
mod ports;
pub mod proxy;
mod pulls;
mod rollouts;
mod runner;
pub mod session;
mod usage;
mod wish;

pub use agent::{Agent, AgentError, AgentHandle, AgentOptions, Returning};
pub use balance::{
    BackendAddress, Balancer, BalancerFuture, CallWay, CallsFrom, NoBalancer, NoWay, NodeBalancer,
    NodeNetwork, NodePlace, WebPorts,
};
pub use drivers::Drivers;
pub use files::{FileContents, FileKey};
pub use highest::Highest;
pub use keeper::core::{CoreAction, CoreInput, CoreOptions, FoundReplica, KeeperCore, RunnerBeginning};
pub use net_check::probe_main as net_probe;
pub use runner::core::{LeftBehind, RunnerCore, RunnerTask};
pub use session::{
    Heartbeat, HeartbeatAnswer, KnownDirectory, OpenRollout, Orders, Pace, Report, ReportAnswer, ReportBody,
    RolloutId, Session, SessionError, SessionFuture,
};
pub use wish::{Assigned, Happening, Wish};

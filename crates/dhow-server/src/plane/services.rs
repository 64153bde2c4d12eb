//! The service manager: what deployments, services, replicas and nodes are doing, read off one consistent state.
//!
//! Called by the API and by the stabilization loop. It only reads: what changes goes through the reducer's inbox.

mod callers;
mod cluster;
mod crons;
mod deployment;
mod digests;
mod explain;
mod exposed;
mod files;
mod history;
mod listings;
mod live;
mod manager;
mod nodes;
mod overview;
mod past;
mod progress;
mod replicas;
mod rollouts;
mod scaling;
mod select;
mod sum;
pub(crate) mod volumes;
mod wall_times;

pub use callers::may_call;
pub use cluster::ClusterIdentity;
pub(crate) use deployment::served;
pub use digests::resolve_digests;
pub use exposed::fill_endpoints;
pub use listings::Listings;
pub use manager::ServiceManager;
pub(crate) use overview::{DeploymentGlance, Overview};
pub use past::{past_difference, past_window};
pub use replicas::ReplicaFilter;
pub(crate) use replicas::ReplicaWindow;
pub use select::{NoSuchName, SelectedReplica, select, without_log};
pub use sum::ServiceSum;

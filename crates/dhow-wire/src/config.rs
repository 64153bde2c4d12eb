//! The daemon's configuration: file, environment and flags become one checked value, or everything that is
//! wrong with them.
//!
//! Called by `dhow daemon` and by whoever runs a node inside another process. Precedence is flag, environment,
//! file, default; what is malformed is refused, never replaced by a default. It opens no file, looks up no
//! name and binds nothing.

mod acme;
mod api_addr;
mod check;
mod cluster_mode;
mod daemon_config;
mod effective;
mod log;
mod modes;
mod network;
mod past;
mod peer;
mod read;
mod registries;
mod seconds;
mod servers;
mod setting;
mod sources;
mod values;

#[cfg(test)]
mod tests;

pub use acme::AcmeConfig;
pub use api_addr::ApiAddr;
pub use cluster_mode::{ClusterMode, WorkerTierRole};
pub use daemon_config::{DaemonConfig, NodeResources};
pub use effective::{ConfigSources, DEFAULT_DATA_DIR, load_config, parse_config};
pub use log::{LogConfig, LogFormat, LogLevel};
pub use network::{MeshAddr, MeshSetting, NetworkConfig, ServiceRange};
pub use past::PastConfig;
pub use peer::{RaftPeer, StaticPeer};
pub use registries::RegistryConfig;
pub use setting::Setting;
pub use sources::{SourceConfig, source_name_problem};

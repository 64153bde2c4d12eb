//! The control plane itself: the log, the runtime around the reducer, what differs between the cluster's modes, leases,
//! schedules, and what is read off the state.
//!
//! Used by the gateway and by the API, which bring it what others ask for. It must know neither.

pub mod acme;
pub mod certificate_look;
pub mod cluster;
pub mod cron;
pub mod feature_level;
pub mod leases;
pub mod log;
pub mod notify;
pub mod past;
pub mod remote_sets;
pub mod runtime;
pub mod scale;
pub mod scaler;
pub mod secrets;
pub mod services;
pub mod stabilization;
pub mod static_peers;
pub mod storage;

//! The balancer in this process, with small servers as backends.

mod answers;
mod canary;
mod grpc;
mod hostile;
mod http;
pub(super) mod mesh;
mod options;
mod rules;
mod stalled;
mod streams;
pub(super) mod support;
mod tls;
mod usual;

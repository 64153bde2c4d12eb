//! The balancer in this process, with small servers as backends.

mod http;
pub(super) mod mesh;
mod rules;
mod streams;
pub(super) mod support;

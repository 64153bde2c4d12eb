//! The balancer in this process, with small servers as backends.

mod http;
mod mesh;
mod rules;
mod streams;
pub(super) mod support;

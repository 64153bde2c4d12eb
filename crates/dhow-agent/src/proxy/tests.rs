//! The balancer in this process, with small servers as backends.

mod http;
mod streams;
mod support;

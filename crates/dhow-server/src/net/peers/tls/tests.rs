//! Servers that talk over loopback, and strangers that are refused.

mod refused;
mod support;
mod talking;

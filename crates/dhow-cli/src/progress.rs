//! How a deployment comes along, in words: what a service does at the moment, and lines that stay for each change.

mod plain;
mod text;

pub use plain::Plain;
pub use text::{Phase, words, words_with_bytes};

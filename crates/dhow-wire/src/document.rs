//! What people write, read with positions: YAML (JSON is YAML) as a tree whose every node knows its place,
//! findings that point into the text, and a small toolkit that decodes the tree into types.
//!
//! Called by the readers of the daemon's configuration and of the deployment file. It reports everything it
//! finds at once, refuses what is too large before it costs anything, never guesses, and never panics on
//! input. What peers send each other is not read here.

mod decoder;
mod excerpt;
mod fields;
mod finding;
mod judge;
mod limits;
mod node;
mod readers;
mod render;
mod source;
mod span;
mod syntax;
mod tree;
mod units;

#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use fields::Fields;
pub use finding::{Finding, Findings};
pub use judge::findings_of;
pub use limits::INPUT_MAX_BYTES;
pub use node::{Entry, Kind, Mapping, Node, Scalar, ScalarStyle, Tag, Value};
pub use readers::{
    choice, flag, integer, list, list_of, loose_text, map_of, number, port, scalar_text, shown, text,
    text_map,
};
pub use render::Style;
pub use source::{Source, text_of};
pub use span::Span;
pub use tree::{Document, parse, parse_mergeable};
pub use units::{cpu, duration, percent, size, whole_seconds};

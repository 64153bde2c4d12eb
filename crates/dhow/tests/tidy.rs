//! The tidy checks: rules about the tree that neither the compiler nor clippy can see.
//!
//! Each module holds one family of rules as pure functions from a [`tree::Tree`] to findings. One test of a
//! rule runs it over this workspace; another feeds it a small bad example, so that a rule that has gone
//! blind fails too. A finding says where, what, and how to mend it. The checks read files; only the one about licences
//! also asks cargo, which looks at nothing but this machine.

#[path = "tidy/arrows.rs"]
mod arrows;
#[path = "tidy/banned.rs"]
mod banned;
#[path = "tidy/deny.rs"]
mod deny;
#[path = "tidy/dependencies.rs"]
mod dependencies;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/finding.rs"]
mod finding;
#[path = "tidy/layout.rs"]
mod layout;
#[path = "tidy/licence.rs"]
mod licence;
#[path = "tidy/manifest.rs"]
mod manifest;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/records.rs"]
mod records;
#[path = "tidy/rooms.rs"]
mod rooms;
#[path = "tidy/sizes.rs"]
mod sizes;
#[path = "tidy/tokens.rs"]
mod tokens;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/unused.rs"]
mod unused;
#[path = "tidy/words.rs"]
mod words;

//! A page before it is written out: its title and its blocks.

use maud::Markup;

/// Which entry of the navigation a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Nodes,
    Events,
    Plan,
}

/// One part of a page. What is live is sent again when it looks different.
pub(super) struct Block {
    pub id: &'static str,
    pub is_live: bool,
    pub markup: Markup,
}

impl Block {
    pub fn live(id: &'static str, markup: Markup) -> Self {
        Self {
            id,
            is_live: true,
            markup,
        }
    }

    /// One with what people type into.
    pub fn still(id: &'static str, markup: Markup) -> Self {
        Self {
            id,
            is_live: false,
            markup,
        }
    }

    /// Changes with what the block looks like.
    pub fn mark(&self) -> String {
        let hash = blake3::hash(self.markup.0.as_bytes());
        super::format::hex(&hash.as_bytes()[..8])
    }
}

/// A page.
pub(super) struct View {
    pub title: String,
    pub section: Section,
    pub blocks: Vec<Block>,
    /// Its stream carries the lines of a log as well.
    pub has_log: bool,
}

impl View {
    pub fn new(title: impl Into<String>, section: Section, blocks: Vec<Block>) -> Self {
        Self {
            title: title.into(),
            section,
            blocks,
            has_log: false,
        }
    }
}

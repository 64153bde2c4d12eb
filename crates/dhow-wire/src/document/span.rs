//! A place in a text.

/// A piece of a source. Lines and columns count from 1, columns in characters; `start` and `end` are bytes.
/// A source is at most 4 MiB, so that 32 bits are enough and a tree stays small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub line: u32,
    pub column: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn bytes(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

//! The tree of a document: what stands where, before anything is made of it.

use std::sync::Arc;

use dhow_core::spec::check::{FieldPath, PathPart};

use super::span::Span;

/// How a scalar was written; only a plain one can be a number, a boolean or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarStyle {
    Plain,
    /// In quotes, or a block of lines.
    Quoted,
    /// Made of the client's variables: whatever its place asks for.
    Filled,
}

/// A value of one piece, with the style that it was written in.
#[derive(Clone, Debug)]
pub struct Scalar {
    pub text: Arc<str>,
    pub style: ScalarStyle,
}

/// What a node is, as a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nothing,
    Boolean,
    Integer,
    Float,
    Text,
    List,
    Map,
}

impl Scalar {
    /// Nothing was written at all, not even `null`.
    pub fn is_absent(&self) -> bool {
        self.style == ScalarStyle::Plain && self.text.is_empty()
    }

    /// What the text means where it is not quoted: YAML 1.2's core schema, in which `yes` and `on` are text.
    pub fn kind(&self) -> Kind {
        if self.style == ScalarStyle::Quoted {
            return Kind::Text;
        }
        let text: &str = &self.text;
        match text {
            "" | "~" | "null" | "Null" | "NULL" if self.style == ScalarStyle::Filled => Kind::Text,
            "" | "~" | "null" | "Null" | "NULL" => Kind::Nothing,
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => Kind::Boolean,
            _ if is_integer(text) => Kind::Integer,
            _ if is_float(text) => Kind::Float,
            _ => Kind::Text,
        }
    }
}

fn is_integer(text: &str) -> bool {
    let all =
        |digits: &str, fits: fn(&u8) -> bool| !digits.is_empty() && digits.bytes().all(|byte| fits(&byte));
    if let Some(digits) = text.strip_prefix("0x") {
        return all(digits, u8::is_ascii_hexdigit);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return all(digits, |byte| matches!(byte, b'0'..=b'7'));
    }
    all(text.strip_prefix(['-', '+']).unwrap_or(text), u8::is_ascii_digit)
}

fn is_float(text: &str) -> bool {
    let plain = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(plain, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    // Rust also reads `inf` and `nan` by name, which are text here.
    plain.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && plain.bytes().any(|byte| byte.is_ascii_digit())
        && plain.parse::<f64>().is_ok()
}

/// A key of a mapping and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Arc<str>,
    pub key_span: Span,
    pub value: Node,
}

/// Keys with their values, in the order of the document.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    pub entries: Vec<Entry>,
}

impl Mapping {
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| &*entry.key == key)
    }
}

/// What a node of a document is.
#[derive(Clone, Debug)]
pub enum Value {
    Scalar(Scalar),
    Sequence(Vec<Node>),
    Mapping(Mapping),
}

/// What a tag says of a value that takes part in a merge of several files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tag {
    #[default]
    Plain,
    /// `!reset`: what stood there before is taken away.
    Reset,
    /// `!override`: what stood there before is replaced as a whole.
    Override,
}

/// A value of a document, with its place in the text.
#[derive(Clone, Debug)]
pub struct Node {
    pub tag: Tag,
    /// Where a finding about this node points: the text of a scalar or of a list in brackets, but the key of
    /// a block and of nothing, because those have no one line of their own.
    pub span: Span,
    pub value: Value,
}

impl Node {
    pub fn kind(&self) -> Kind {
        match &self.value {
            Value::Scalar(scalar) => scalar.kind(),
            Value::Sequence(_) => Kind::List,
            Value::Mapping(_) => Kind::Map,
        }
    }

    /// The place of a path below this node, or of the nearest part of it that is there. A key that a short form
    /// leaves out (`command: [a]` for `command: { args: [a] }`) is passed over.
    pub fn locate(&self, path: &FieldPath, on_key: bool) -> Span {
        let last = path.parts().len().saturating_sub(1);
        let mut node = self;
        let mut span = self.span;
        for (position, part) in path.parts().iter().enumerate() {
            match (part, &node.value) {
                (PathPart::Key(key), Value::Mapping(mapping)) => match mapping.get(key) {
                    Some(entry) => {
                        node = &entry.value;
                        span = if on_key && position == last {
                            entry.key_span
                        } else {
                            point_of(entry)
                        };
                    }
                    None => return span,
                },
                (PathPart::Key(_), Value::Sequence(_)) => {}
                (PathPart::Index(index), Value::Sequence(items)) => match items.get(*index) {
                    Some(item) => {
                        node = item;
                        span = item.span;
                    }
                    None => return span,
                },
                (PathPart::Key(_) | PathPart::Index(_), Value::Scalar(_))
                | (PathPart::Index(_), Value::Mapping(_)) => return span,
            }
        }
        span
    }
}

/// Where a finding about an entry points.
fn point_of(entry: &Entry) -> Span {
    match &entry.value.value {
        Value::Scalar(_) => entry.value.span,
        Value::Sequence(_) | Value::Mapping(_) => entry.key_span,
    }
}

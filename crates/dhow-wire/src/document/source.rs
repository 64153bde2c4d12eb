//! A text with its name.

use std::sync::Arc;

use super::finding::{Finding, Findings};
use super::span::Span;

/// What was read, kept for the excerpts of findings.
#[derive(Clone, Debug)]
pub struct Source {
    name: Arc<str>,
    text: Arc<str>,
}

impl Source {
    /// A byte order mark at the start is no part of the text.
    pub fn new(name: &str, text: &str) -> Self {
        Self {
            name: name.into(),
            text: text.strip_prefix('\u{feff}').unwrap_or(text).into(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The span of a byte offset, found by counting; for the few places that no parser has marked.
    pub fn span_at(&self, offset: usize) -> Span {
        let start = self.text.floor_char_boundary(offset);
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |position| position + 1);
        let end = start + self.text[start..].chars().next().map_or(0, char::len_utf8);
        Span {
            line: 1 + before.bytes().filter(|byte| *byte == b'\n').count() as u32,
            column: 1 + before[line_start..].chars().count() as u32,
            start: start as u32,
            end: end as u32,
        }
    }
}

/// The bytes of a file as text, or where and why they are none.
pub fn text_of<'a>(bytes: &'a [u8], file_name: &str) -> Result<&'a str, Findings> {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let is_wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let (message, hint) = if is_wide {
        ("this file is UTF-16".to_owned(), "save it as UTF-8")
    } else {
        let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        (
            format!("the byte 0x{byte:02x} here is not UTF-8"),
            "save the file as UTF-8",
        )
    };
    let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
    let source = Source::new(file_name, &valid);
    let mut findings = Findings::of(source.clone());
    let span = source.span_at(if is_wide { 0 } else { source.text().len() });
    findings.add(Finding::at(&source, span, message).with_hint(hint));
    Err(findings)
}

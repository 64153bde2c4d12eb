//! Mistakes of YAML itself, in words for people who do not know its grammar.

mod slips;

use dhow_core::spec::check::quoted;
use serde_saphyr::granit_parser::ErrorKind;

use super::finding::Finding;
use super::limits::DEPTH_MAX;
use super::source::Source;
use super::span::Span;

pub(super) fn too_deep(source: &Source, span: Span) -> Finding {
    Finding::at(
        source,
        span,
        format!("this is nested deeper than {DEPTH_MAX} levels"),
    )
    .with_hint("nothing in this file needs more than a handful")
}

/// The finding for what the parser could not read. The parser stops where it can no longer go on; people look for
/// where it went wrong, so that the usual slips are looked for first.
pub(super) fn finding(source: &Source, kind: &ErrorKind, span: Span) -> Finding {
    let text = source.text();
    if let Some(span) = tab_indent(text, span) {
        return Finding::at(source, span, "a tab indents this line")
            .with_hint("YAML indents with spaces: replace the tab");
    }
    if is_about_quotes(kind)
        && let Some(span) = slips::open_quote(text, span)
    {
        return Finding::at(source, span, "this quote is never closed").with_hint("add the closing quote");
    }
    if is_about_keys(kind)
        && let Some(span) = slips::line_without_colon(text, span)
    {
        return Finding::at(source, span, "there is no `: ` in this line").with_hint("write `key: value`");
    }
    let (message, hint) = words(kind, &text[text.floor_char_boundary(span.start as usize)..]);
    Finding::at(source, on_screen(text, span), message).with_hint(hint)
}

fn is_about_quotes(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnclosedQuotedScalar
            | ErrorKind::InvalidQuotedScalarIndent
            | ErrorKind::DocumentIndicatorInQuotedScalar
            | ErrorKind::InvalidTrailingDoubleQuotedScalar
            | ErrorKind::InvalidTrailingSingleQuotedScalar
    )
}

fn is_about_keys(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::MappingValueNotAllowed | ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey
    )
}

/// The tab that indents the line of the place or the last line before it, which is nearly always what is wrong
/// there.
fn tab_indent(text: &str, span: Span) -> Option<Span> {
    let start = text.floor_char_boundary(span.start as usize);
    let line_start = text[..start].rfind('\n').map_or(0, |position| position + 1);
    let line = text[line_start..].split('\n').next().unwrap_or_default();
    let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
    let position = indent.find('\t')?;
    // A line of a file in brackets may be indented by tabs, and an empty one by anything.
    if line.trim().is_empty() || text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    Some(Span {
        line: span.line,
        column: position as u32 + 1,
        start: (line_start + position) as u32,
        end: (line_start + position + 1) as u32,
    })
}

/// A place at the end of the text, behind its last line break, moves to the end of the last line.
fn on_screen(text: &str, span: Span) -> Span {
    let start = span.start as usize;
    if start < text.len() || text.is_empty() {
        return span;
    }
    let trimmed = text.trim_end();
    let line_start = trimmed.rfind('\n').map_or(0, |position| position + 1);
    Span {
        line: 1 + trimmed.bytes().filter(|byte| *byte == b'\n').count() as u32,
        column: 1 + trimmed[line_start..].chars().count() as u32,
        start: trimmed.len() as u32,
        end: trimmed.len() as u32,
    }
}

fn words(kind: &ErrorKind, rest: &str) -> (String, String) {
    let plain = match bracket_words(kind) {
        Some(words) => return words,
        None => line_words(kind).or_else(|| text_words(kind)),
    };
    match (plain, kind) {
        (Some((message, hint)), _) => (message.into(), hint.into()),
        (None, ErrorKind::UnexpectedCharacter { character }) => (
            format!("text cannot start with {}", quoted(&character.to_string())),
            "put it into quotes".into(),
        ),
        (None, ErrorKind::RecursionLimitExceeded) => (
            format!("this is nested deeper than {DEPTH_MAX} levels"),
            "nothing in this file needs more than a handful".into(),
        ),
        (None, _) if rest.starts_with('\t') => (A_TAB.0.into(), A_TAB.1.into()),
        (None, other) => (
            format!("this is not YAML: {other}"),
            "compare it with the lines around it".into(),
        ),
    }
}

const A_TAB: (&str, &str) = ("there is a tab here", "YAML indents with spaces: replace the tab");

/// Brackets and braces.
fn bracket_words(kind: &ErrorKind) -> Option<(String, String)> {
    let (message, hint) = match kind {
        ErrorKind::UnclosedFlowCollection { open } => return Some(unclosed(*open)),
        ErrorKind::UnexpectedEofFlowSequence => return Some(unclosed('[')),
        ErrorKind::UnexpectedEofFlowMapping | ErrorKind::UnexpectedEofImplicitFlowMapping => {
            return Some(unclosed('{'));
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            let message = format!("`{open}` is closed by `{close}`");
            return Some((message, format!("write `{}`", closing(*open))));
        }
        ErrorKind::MisplacedFlowCollectionEnd => (
            "this bracket closes nothing",
            "remove it, or put the text into quotes",
        ),
        ErrorKind::ExpectedFlowMappingSeparator => (
            "a `,` or `}` is missing before this place",
            "entries in braces are `{ a: 1, b: 2 }`",
        ),
        ErrorKind::ExpectedFlowSequenceSeparator => (
            "a `,` or `]` is missing before this place",
            "items in brackets are `[a, b]`",
        ),
        ErrorKind::BlockEntryInFlowCollection => (
            "`- ` has no place inside brackets",
            "items in brackets are `[a, b]`",
        ),
        _ => return None,
    };
    Some((message.into(), hint.into()))
}

/// Keys, lists and indentation.
fn line_words(kind: &ErrorKind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        ErrorKind::MappingValueNotAllowed => (
            "a `: ` stands where no key can be",
            "text with `: ` in it goes into quotes; a key needs the same indentation as its neighbours",
        ),
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => {
            ("there is no `:` after this key", "write `key: value`")
        }
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::InvalidIndentation => (
            "this line is indented differently from its neighbours",
            "give all entries of one map or list the same indentation",
        ),
        ErrorKind::BlockSequenceEntryNotAllowed => (
            "a list cannot start here",
            "put each `- ` on a line of its own, below the key",
        ),
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => A_TAB,
        _ => return None,
    })
}

/// Quotes, comments and blocks of text.
fn text_words(kind: &ErrorKind) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        ErrorKind::UnclosedQuotedScalar => ("this quote is never closed", "add the closing quote"),
        ErrorKind::UnknownQuotedScalarEscape => (
            "there is no such escape in double quotes",
            "write `\\\\` for a backslash, or use single quotes",
        ),
        ErrorKind::InvalidTrailingDoubleQuotedScalar | ErrorKind::InvalidTrailingSingleQuotedScalar => (
            "there is text after the closing quote",
            "put the whole value into quotes",
        ),
        ErrorKind::CommentNotSeparated => (
            "a comment needs a space before its `#`",
            "add one, or put the text into quotes",
        ),
        ErrorKind::InvalidBlockScalarIndent => (
            "this line of the block of text is indented differently",
            "give all its lines the same indentation",
        ),
        _ => return None,
    })
}

fn closing(open: char) -> char {
    if open == '[' { ']' } else { '}' }
}

fn unclosed(open: char) -> (String, String) {
    (
        format!("this `{open}` is never closed"),
        format!("add `{}`", closing(open)),
    )
}

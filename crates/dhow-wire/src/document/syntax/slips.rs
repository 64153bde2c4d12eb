//! Slips that a parser notices only lines later: where they were made.

use super::super::span::Span;

/// The lines of a text up to the one of a place, each with its number and its first byte.
fn lines_until(text: &str, span: Span) -> impl DoubleEndedIterator<Item = (u32, usize, &str)> {
    let end = text.floor_char_boundary(span.start as usize);
    let line_end = text[end..]
        .find('\n')
        .map_or(text.len(), |position| end + position);
    let mut start = 0;
    let lines: Vec<(u32, usize, &str)> = text[..line_end]
        .split('\n')
        .zip(1u32..)
        .map(|(line, number)| {
            let first = start;
            start += line.len() + 1;
            (number, first, line.trim_end())
        })
        .collect();
    lines.into_iter()
}

fn span_in(line: (u32, usize, &str), from: usize, to: usize) -> Span {
    let (number, first, text) = line;
    Span {
        line: number,
        column: 1 + text[..from].chars().count() as u32,
        start: (first + from) as u32,
        end: (first + to) as u32,
    }
}

/// The last quote before a place that its own line does not close.
pub(super) fn open_quote(text: &str, span: Span) -> Option<Span> {
    lines_until(text, span).rev().find_map(|line| {
        let position = unclosed_in(line.2)?;
        Some(span_in(line, position, position + 1))
    })
}

/// Where a quote opens in a line that ends inside it.
fn unclosed_in(line: &str) -> Option<usize> {
    let mut open: Option<(usize, char)> = None;
    let mut before = ' ';
    let mut chars = line.char_indices();
    while let Some((position, c)) = chars.next() {
        match (open, c) {
            (Some((_, '"')), '\\') => {
                chars.next();
            }
            (Some((_, quote)), c) if c == quote => open = None,
            (None, '"' | '\'') if matches!(before, ' ' | '\t' | '[' | '{' | ',' | ':') => {
                open = Some((position, c))
            }
            (None, '#') if matches!(before, ' ' | '\t') => break,
            (Some(_) | None, _) => {}
        }
        before = c;
    }
    open.map(|(position, _)| position)
}

/// The line before a place, where it stands at the same depth and names no key.
pub(super) fn line_without_colon(text: &str, span: Span) -> Option<Span> {
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let mut lines = lines_until(text, span)
        .rev()
        .filter(|(_, _, line)| !is_blank(line));
    let (here, before) = (lines.next()?, lines.next()?);
    let indent = |line: &str| line.len() - line.trim_start().len();
    let words = before.2.trim_start();
    let names_a_key = words.contains(": ") || words.ends_with(':') || words.starts_with("- ");
    if names_a_key || indent(here.2) != indent(before.2) {
        return None;
    }
    Some(span_in(before, indent(before.2), before.2.len()))
}

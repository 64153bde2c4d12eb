//! Findings as people read them: what is wrong, where, the line with a mark under the place, what to do.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::excerpt::{Excerpt, excerpt};
use super::finding::{Finding, Findings};
use super::limits::FINDINGS_SHOWN_MAX;
use super::span::Span;

/// Whether the output may hold colour: only where a person looks at it through a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Colour,
}

/// A hint that fits beside the mark up to this column stands there; a longer one gets a line of its own.
const HINT_COLUMN_MAX: usize = 100;

#[derive(Clone, Copy)]
enum Paint {
    Error,
    Mark,
    Note,
    Frame,
    Hint,
}

impl Style {
    fn paint(self, paint: Paint, text: &str) -> String {
        let code = match (self, paint) {
            (Self::Plain, _) => return text.to_owned(),
            (Self::Colour, Paint::Error | Paint::Mark) => "1;31",
            (Self::Colour, Paint::Note | Paint::Frame) => "34",
            (Self::Colour, Paint::Hint) => "32",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

pub(super) fn findings(findings: &Findings, style: Style) -> String {
    let mut out = String::new();
    for finding in findings.list().iter().take(FINDINGS_SHOWN_MAX) {
        one(finding, findings.source().text(), style, &mut out);
        out.push('\n');
    }
    let hidden = findings.count().saturating_sub(FINDINGS_SHOWN_MAX);
    if hidden > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "… and {hidden} more\n");
    }
    let _ = writeln!(out, "{}", style.paint(Paint::Error, &findings.summary()));
    out
}

/// A place to show: what to mark, and what to say beside the mark.
struct Shown<'a> {
    span: Span,
    paint: Paint,
    words: Option<&'a str>,
}

fn one(finding: &Finding, text: &str, style: Style, out: &mut String) {
    let _ = writeln!(out, "{} {}", style.paint(Paint::Error, "error:"), finding.message);
    let gutter = gutter_width(finding);
    let place = match (finding.line, finding.column) {
        (Some(line), Some(column)) => format!("{}:{line}:{column}", finding.file),
        (Some(_) | None, _) => finding.file.clone(),
    };
    let path = match finding.path.as_str() {
        "" => String::new(),
        path => format!(" in {path}"),
    };
    let arrow = format!("{:gutter$}-->", "");
    let _ = writeln!(out, "{} {place}{path}", style.paint(Paint::Frame, &arrow));
    let Some(span) = finding.span else {
        own_line(finding.hint.as_deref(), gutter, style, out);
        return;
    };
    let hint = finding.hint.as_deref();
    let beside = hint.filter(|hint| {
        let excerpt = excerpt(text, span);
        excerpt.indent + excerpt.mark + 1 + hint.width() <= HINT_COLUMN_MAX
    });
    let mut places = vec![Shown {
        span,
        paint: Paint::Mark,
        words: beside,
    }];
    let notes = finding.notes.iter();
    places.extend(notes.map(|(span, note)| Shown {
        span: *span,
        paint: Paint::Note,
        words: Some(note),
    }));
    places.sort_by_key(|place| (place.span.line, place.span.column));
    let mut last: Option<(u32, String)> = None;
    for place in &places {
        let excerpt = excerpt(text, place.span);
        if last.as_ref().is_some_and(|(line, _)| place.span.line > line + 1) {
            let _ = writeln!(out, "{}", style.paint(Paint::Frame, "..."));
        }
        // Two marks share a line, unless it had to be cut differently for each.
        let shown = Some((place.span.line, excerpt.line.clone()));
        show(place, &excerpt, shown != last, gutter, style, out);
        last = shown;
    }
    if beside.is_none() {
        own_line(hint, gutter, style, out);
    }
}

fn gutter_width(finding: &Finding) -> usize {
    let lines = finding
        .notes
        .iter()
        .map(|(span, _)| span.line)
        .chain(finding.line);
    lines.max().unwrap_or(1).to_string().len()
}

fn show(
    place: &Shown<'_>,
    excerpt: &Excerpt,
    with_line: bool,
    gutter: usize,
    style: Style,
    out: &mut String,
) {
    if with_line {
        let number = style.paint(Paint::Frame, &format!("{:>gutter$} |", place.span.line));
        let _ = writeln!(out, "{number} {}", excerpt.line);
    }
    let mark = match place.paint {
        Paint::Mark => "^",
        Paint::Error | Paint::Note | Paint::Frame | Paint::Hint => "-",
    };
    let mark = style.paint(place.paint, &mark.repeat(excerpt.mark));
    let frame = style.paint(Paint::Frame, &format!("{:gutter$} |", ""));
    let paint = match place.paint {
        Paint::Mark => Paint::Hint,
        Paint::Error | Paint::Note | Paint::Frame | Paint::Hint => place.paint,
    };
    let words = match place.words {
        Some(words) => format!(" {}", style.paint(paint, words)),
        None => String::new(),
    };
    let _ = writeln!(
        out,
        "{frame} {:indent$}{mark}{words}",
        "",
        indent = excerpt.indent
    );
}

fn own_line(hint: Option<&str>, gutter: usize, style: Style, out: &mut String) {
    if let Some(hint) = hint {
        let frame = style.paint(Paint::Frame, &format!("{:gutter$} =", ""));
        let _ = writeln!(out, "{frame} {}", style.paint(Paint::Hint, hint));
    }
}

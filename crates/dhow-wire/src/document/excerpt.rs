//! One line of a source with a mark under a piece of it, cut to what fits on a screen. A line may be a
//! megabyte long and may hold what a terminal would act upon: neither reaches the screen.

use unicode_width::UnicodeWidthChar;

use super::span::Span;

/// Columns of an excerpt. With the numbers at its left it fits into 120.
const WIDTH_MAX: usize = 100;
/// Columns before the mark where the line has to be cut.
const BEFORE_MAX: usize = 40;
/// Columns of a mark.
const MARK_MAX: usize = 60;
const TAB: &str = "    ";

/// A line as it is shown.
pub(super) struct Excerpt {
    pub line: String,
    /// Columns left of the mark.
    pub indent: usize,
    /// Columns of the mark, at least one.
    pub mark: usize,
}

pub(super) fn excerpt(text: &str, span: Span) -> Excerpt {
    let range = span.bytes();
    // A mark of one byte may stand for a wider character.
    let start = text.floor_char_boundary(range.start);
    let before = collect_back(&text[..start], WIDTH_MAX);
    let rest = &text[start..];
    let marked_bytes = text.ceil_char_boundary(range.end).saturating_sub(start);
    let marked = collect(&rest[..marked_bytes], MARK_MAX);
    let after = match marked.complete {
        true => collect(&rest[marked_bytes..], WIDTH_MAX),
        false => Piece::default(),
    };
    let fits = before.complete && after.complete && marked.complete;
    let total = before.width + marked.width + after.width;
    if fits && total <= WIDTH_MAX {
        return Excerpt {
            line: [before.text, marked.text, after.text]
                .concat()
                .trim_end()
                .to_owned(),
            indent: before.width,
            mark: marked.width.max(1),
        };
    }
    let left = if before.complete && before.width <= BEFORE_MAX {
        before
    } else {
        let mut cut = collect_back(&text[..start], BEFORE_MAX);
        cut.text.insert(0, '…');
        cut.width += 1;
        cut
    };
    let room = WIDTH_MAX.saturating_sub(left.width + marked.width);
    let right = match marked.complete {
        true => collect(&rest[marked_bytes..], room),
        false => Piece::default(),
    };
    let tail = if marked.complete && right.complete {
        ""
    } else {
        "…"
    };
    Excerpt {
        line: [&left.text, &marked.text, &right.text, tail]
            .concat()
            .trim_end()
            .to_owned(),
        indent: left.width,
        mark: marked.width.max(1),
    }
}

/// A piece of a line in columns; complete when the line ended before the limit was reached.
#[derive(Default)]
struct Piece {
    text: String,
    width: usize,
    complete: bool,
}

fn collect(text: &str, width_max: usize) -> Piece {
    let mut piece = Piece {
        complete: true,
        ..Piece::default()
    };
    for c in text.chars() {
        if matches!(c, '\n' | '\r') {
            break;
        }
        let (shown, width) = shown(c);
        if piece.width + width > width_max {
            piece.complete = false;
            break;
        }
        piece.text.push_str(&shown);
        piece.width += width;
    }
    piece
}

/// The end of a text back to the start of its line.
fn collect_back(text: &str, width_max: usize) -> Piece {
    let mut parts: Vec<String> = Vec::new();
    let mut piece = Piece {
        complete: true,
        ..Piece::default()
    };
    for c in text.chars().rev() {
        if c == '\n' {
            break;
        }
        let (shown, width) = shown(c);
        if piece.width + width > width_max {
            piece.complete = false;
            break;
        }
        parts.push(shown);
        piece.width += width;
    }
    piece.text = parts.into_iter().rev().collect();
    piece
}

/// A character as it may be printed, with its columns.
fn shown(c: char) -> (String, usize) {
    match c {
        '\t' => (TAB.into(), TAB.len()),
        c if c.is_control() => ("\u{fffd}".into(), 1),
        // Marks of direction would turn the rest of the line around.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => {
            ("\u{fffd}".into(), 1)
        }
        c => (c.into(), c.width().unwrap_or(1)),
    }
}

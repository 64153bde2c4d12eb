//! What others wrote, on a terminal: logs, names and errors may hold sequences that move the cursor, rename the
//! window, answer in the reader's name or hide what follows. They are shown instead of obeyed. Colours pass, and end
//! with their line.

use std::borrow::Cow;

/// The longest colour that is passed on: foreground, background and a few attributes.
const COLOUR_MAX_BYTES: usize = 64;
const RESET: &str = "\u{1b}[0m";

/// The text as a terminal may get it.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(must_be_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            // The line's end as Windows writes it.
            Some(line) => (line.strip_suffix('\r').unwrap_or(line), "\n"),
            None => (line, ""),
        };
        let is_coloured = show_line(line, &mut shown);
        if is_coloured {
            shown.push_str(RESET);
        }
        shown.push_str(end);
    }
    Cow::Owned(shown)
}

/// Adds one line; answers whether a colour is left on.
fn show_line(line: &str, shown: &mut String) -> bool {
    let mut is_coloured = false;
    let mut before = ' ';
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if let Some(colour) = colour(rest) {
            shown.push_str(colour);
            is_coloured = !matches!(colour, "\u{1b}[m" | RESET);
            rest = &rest[colour.len()..];
            continue;
        }
        match joins(c) && !before.is_ascii() {
            true => shown.push(c),
            false => show_char(c, shown),
        }
        before = c;
        rest = &rest[c.len_utf8()..];
    }
    is_coloured
}

/// The colour that a text begins with: `ESC [ numbers m`.
fn colour(text: &str) -> Option<&str> {
    let inside = text.strip_prefix("\u{1b}[")?;
    let length = inside
        .bytes()
        .take(COLOUR_MAX_BYTES)
        .position(|byte| byte == b'm')?;
    let numbers = &inside.as_bytes()[..length];
    let is_colour = numbers
        .iter()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':'));
    is_colour.then(|| &text[..length + 3])
}

fn must_be_shown(c: char) -> bool {
    c != '\n' && c != '\t' && (c.is_control() || turns_text_round(c) || takes_no_room(c) || joins(c))
}

/// What nobody sees, so that two names look alike, and what some take for the end of a line.
fn takes_no_room(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2064}'
            | '\u{206a}'..='\u{206f}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// What scripts and emoji join their letters with. Among ASCII it only hides.
fn joins(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Marks that change the direction of what stands beside them, so that a line reads as another.
fn turns_text_round(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

fn show_char(c: char, shown: &mut String) {
    if !must_be_shown(c) {
        return shown.push(c);
    }
    match u8::try_from(c) {
        // As `cat -v` does.
        Ok(byte @ 0..0x20) => shown.extend(['^', char::from(byte + 0x40)]),
        Ok(0x7f) => shown.push_str("^?"),
        Ok(_) | Err(_) => shown.push_str(&format!("<{:04x}>", u32::from(c))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_terminal_is_shown_and_colours_end_with_their_line() {
        let cases = [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}x", "^[[2J^[]0;title^Gx"),
            ("over\rwritten", "over^Mwritten"),
            ("windows\r\nunix\n", "windows\nunix\n"),
            ("\u{1b}[31mred\nnext", "\u{1b}[31mred\u{1b}[0m\nnext"),
            (
                "\u{1b}[1;38:5:9mred\u{1b}[0m done\u{8}\n",
                "\u{1b}[1;38:5:9mred\u{1b}[0m done^H\n",
            ),
            ("\u{1b}[31mred\u{1b}[m\n", "\u{1b}[31mred\u{1b}[m\n"),
            ("\u{1b}[>4;2m", "^[[>4;2m"),
            ("\u{1b}[6n\u{9b}6n\u{7f}", "^[[6n<009b>6n^?"),
            ("a\u{202e}b\u{2066}", "a<202e>b<2066>"),
            ("ro\u{200b}ot \u{feff}a\u{2028}b", "ro<200b>ot <feff>a<2028>b"),
            ("a\u{200d}b \u{200c}c", "a<200d>b <200c>c"),
            ("👩\u{200d}🚒 می\u{200c}خواهم", "👩\u{200d}🚒 می\u{200c}خواهم"),
            ("\u{1b}", "^["),
            ("\u{1b}[", "^[["),
            ("grün 漢字 🙂", "grün 漢字 🙂"),
        ];
        for (text, expected) in cases {
            assert_eq!(visible(text), expected, "{text:?}");
        }
        let endless = format!("\u{1b}[{}m", "1;".repeat(100));
        assert!(visible(&endless).starts_with("^[[1;"));
    }
}

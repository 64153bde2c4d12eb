//! How the author's own words appear inside a message, and rules for texts that several fields share.

use super::finding::{FieldPath, SpecFinding};
use super::limits::{LABEL_KEY_MAX_BYTES, LABEL_VALUE_MAX_BYTES};

/// The longest piece of the author's text that a message repeats.
const SHOWN_CHARS_MAX: usize = 48;

/// The author's text in backticks: cut where it is long, with what a terminal would act upon made visible.
pub fn quoted(text: &str) -> String {
    let mut shown = String::from("`");
    for (position, c) in text.chars().enumerate() {
        if position == SHOWN_CHARS_MAX {
            shown.push('…');
            break;
        }
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if c.is_control() || is_invisible(c) => shown.push_str(&c.escape_unicode().to_string()),
            c => shown.push(c),
        }
    }
    shown.push('`');
    shown
}

/// Characters that change how the text around them is shown: directions, zero-width marks, line separators.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

/// What is wrong with a label at a place, of a node or of a service.
pub fn label_finding(labels: &FieldPath, key: &str, value: &str) -> Option<SpecFinding> {
    let (message, hint) = match label_name_problem(key) {
        Some(problem) => problem,
        None => {
            let (message, hint) = label_value_problem(value)?;
            return Some(SpecFinding::at(labels.key(key.to_owned()), message).hint(hint));
        }
    };
    Some(
        SpecFinding::at(labels.key(key.to_owned()), message)
            .hint(hint)
            .on_key(),
    )
}

/// What is wrong with the name of a label.
pub fn label_name_problem(key: &str) -> Option<(String, &'static str)> {
    if key.is_empty() {
        return Some(("a label needs a name".into(), "write it as `name: value`"));
    }
    if key.len() > LABEL_KEY_MAX_BYTES {
        let message = format!(
            "the name of a label has at most {LABEL_KEY_MAX_BYTES} bytes, this one has {}",
            key.len()
        );
        return Some((message, "shorten it"));
    }
    if let Some(c) = key.chars().find(|c| c.is_whitespace() || c.is_control()) {
        let message = format!("the name of a label holds no {}", name_of(c));
        return Some((message, "write it without spaces, such as `zone` or `team/owner`"));
    }
    None
}

fn label_value_problem(value: &str) -> Option<(String, &'static str)> {
    if let Some(c) = value.chars().find(|c| c.is_control()) {
        let message = format!("the value of a label holds no {}", name_of(c));
        return Some((message, "write it in one line, without control characters"));
    }
    (value.len() > LABEL_VALUE_MAX_BYTES).then(|| {
        let message = format!(
            "the value of a label has at most {LABEL_VALUE_MAX_BYTES} bytes, this one has {}",
            value.len()
        );
        (
            message,
            "labels are for choosing and finding: keep larger data elsewhere",
        )
    })
}

/// A character as a message names it.
pub(super) fn name_of(c: char) -> String {
    match c {
        ' ' => "space".into(),
        '\t' => "tab".into(),
        '\n' | '\r' => "line break".into(),
        '\0' => "NUL byte".into(),
        c => quoted(c.encode_utf8(&mut [0; 4])),
    }
}

/// What is wrong with an absolute path, in words for its author.
pub(super) fn path_problem(path: &str, what: &str) -> Option<(String, String)> {
    use super::limits::PATH_MAX_BYTES;
    if path.is_empty() {
        return Some((format!("{what} is empty"), "give an absolute path".into()));
    }
    if path.len() > PATH_MAX_BYTES {
        let message = format!(
            "{what} has {} bytes, a path has at most {PATH_MAX_BYTES}",
            path.len()
        );
        return Some((message, "shorten it".into()));
    }
    if path.starts_with('~') {
        let hint = "`~` means nothing on the node: write the whole path";
        return Some((format!("{what} {} starts with `~`", quoted(path)), hint.into()));
    }
    if !path.starts_with('/') {
        let hint = format!(
            "did you mean {}?",
            quoted(&format!("/{}", path.trim_start_matches("./")))
        );
        let message = format!("{what} {} is relative, it must start with `/`", quoted(path));
        return Some((message, hint));
    }
    if path.split('/').any(|part| part == "..") {
        let message = format!("{what} {} goes up with `..`", quoted(path));
        return Some((message, "write the path without it".into()));
    }
    None
}

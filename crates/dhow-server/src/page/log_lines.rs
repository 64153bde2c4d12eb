//! Lines of logs: read as the API sends them, shown as text.

use axum::body::Bytes;
use dhow_wire::api::{LogRecord, LogStream};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::format::cut;
use super::html::moment;
use super::limits::LOG_LINE_CHARS_MAX;

/// Whole lines of an answer.
pub(super) fn read_lines(bytes: &[u8]) -> Vec<LogRecord> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

fn stream_word(stream: LogStream) -> &'static str {
    match stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
        LogStream::Notice => "notice",
    }
}

/// Without what moves a terminal's cursor, and not longer than a screen.
fn shown_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(LOG_LINE_CHARS_MAX));
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                // A sequence ends with its first letter.
                while chars.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {}
            }
            '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    cut(&out, LOG_LINE_CHARS_MAX)
}

pub(super) fn shown_line(record: &LogRecord) -> Markup {
    html! {
        div.line class={ "line " (stream_word(record.stream)) } {
            (moment(record.time_unix_us.div_euclid(1_000)))
            span.text { (shown_text(&record.text)) }
        }
    }
}

/// The same for the script, which writes it as text.
pub(super) fn sent_line(record: &LogRecord) -> Value {
    json!({
        "at": record.time_unix_us.div_euclid(1_000),
        "stream": stream_word(record.stream),
        "text": shown_text(&record.text),
    })
}

/// Cuts what comes in pieces into lines.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    rest: Vec<u8>,
}

impl LineReader {
    /// The longest line that is put together: the API's lines have a bound far below.
    const REST_BYTES_MAX: usize = 4 * 1024 * 1024;

    pub fn take(&mut self, piece: &Bytes) -> Vec<LogRecord> {
        self.rest.extend_from_slice(piece);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n');
        let Some(end) = end else {
            if self.rest.len() > Self::REST_BYTES_MAX {
                self.rest.clear();
            }
            return Vec::new();
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        read_lines(&whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> LogRecord {
        LogRecord {
            deployment: "shop".into(),
            replica: "web-default-0".into(),
            node_id: 1,
            time_unix_us: 1_800_000_000_000_000,
            stream: LogStream::Stderr,
            text: text.into(),
        }
    }

    #[test]
    fn hostile_lines_are_text() {
        let shown =
            shown_line(&record("<script>alert(1)</script>\u{1b}[31mred\u{1b}[0m\u{7}&")).into_string();
        assert!(
            shown.contains("&lt;script&gt;alert(1)&lt;/script&gt;red\u{fffd}&amp;"),
            "{shown}"
        );
        let sent = sent_line(&record(&"x".repeat(LOG_LINE_CHARS_MAX + 5)));
        assert_eq!(
            sent["text"].as_str().unwrap().chars().count(),
            LOG_LINE_CHARS_MAX + 1
        );
        assert_eq!(sent["stream"], "stderr");
    }

    #[test]
    fn pieces_become_lines() {
        let line = |text: &str| serde_json::to_vec(&record(text)).unwrap();
        let mut whole = line("one");
        whole.push(b'\n');
        whole.extend(line("two"));
        whole.push(b'\n');
        let mut reader = LineReader::default();
        let mut texts = Vec::new();
        for piece in whole.chunks(7) {
            let read = reader.take(&Bytes::copy_from_slice(piece));
            texts.extend(read.into_iter().map(|record| record.text));
        }
        assert_eq!(texts, ["one", "two"]);
    }
}

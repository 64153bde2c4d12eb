//! Where words go: stdout is data, stderr is everything else. Colour and movement only where a person looks on.

mod paint;
mod visible;

use std::io::{self, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
pub use dhow_cli::human::{age, bytes, cut, one_line, time};
use dhow_cli::{ERROR, Shown};
pub use dhow_cli::{Table, word, yes_no};
use dhow_wire::Findings;
use dhow_wire::document::Style;
use serde_json::Value;

pub use paint::{Paint, Painter};
pub use visible::visible;

/// Whether somebody still reads stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    There,
    /// `| head` has seen enough.
    Gone,
}

/// Writes data. A reader that has gone away (`| head`) is no error.
pub fn data(text: &str) -> anyhow::Result<()> {
    stream(text).map(|_| ())
}

/// Writes a part of data that goes on, and says whether to go on with it. What would move a terminal is shown there.
pub fn stream(text: &str) -> anyhow::Result<Reader> {
    if io::stdout().is_terminal() {
        raw_stdout(visible(text).as_bytes())
    } else {
        raw_stdout(text.as_bytes())
    }
}

/// Writes bytes as they are.
pub fn raw_stdout(bytes: &[u8]) -> anyhow::Result<Reader> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error).context("the output could not be written"),
    }
}

/// Writes a listing, or says that there is nothing to list.
pub fn show(shown: &Shown) -> anyhow::Result<()> {
    match shown {
        Shown::Data(text) => data(text),
        Shown::Note(text) => {
            note(text);
            Ok(())
        }
    }
}

/// The wall clock of this machine, for ages.
pub fn now_unix_secs() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 shows every age as nothing.
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// Writes an answer of the API as one document.
pub fn json(value: &Value) -> anyhow::Result<()> {
    data(&format!("{value:#}\n"))
}

/// Shows findings to whoever looks at the screen.
pub fn findings(findings: &Findings) {
    message(&findings.render(style()));
}

/// Says something beside the data.
pub fn note(text: &str) {
    message(&format!("{text}\n"));
}

/// Shows an error with its causes.
pub fn error(error: &anyhow::Error) {
    failure(&format!("{error:#}"));
}

/// Shows what went wrong, in words that are complete.
pub fn failure(text: &str) {
    let word = paint_stderr().apply(ERROR, Paint::Red);
    message(&format!("{word} {text}\n"));
}

/// Writes bytes as they are, such as what a command in a replica said on stderr.
pub fn raw_stderr(bytes: &[u8]) {
    // Where even stderr is closed there is nobody left to tell.
    let _ = io::stderr().lock().write_all(bytes);
}

fn message(text: &str) {
    if io::stderr().is_terminal() {
        raw_stderr(visible(text).as_bytes());
    } else {
        raw_stderr(text.as_bytes());
    }
}

/// The painter of data: plain where stdout is no terminal or no colour is wanted.
pub fn paint_stdout() -> Painter {
    Painter::new(io::stdout().is_terminal() && wants_colour())
}

/// The painter of messages: plain where either stream is no terminal or no colour is wanted.
pub fn paint_stderr() -> Painter {
    Painter::new(is_watched() && wants_colour())
}

/// Whether a person looks at both streams, so that something may move on the screen.
pub fn is_watched() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && io::stderr().is_terminal() && !is_dumb
}

fn wants_colour() -> bool {
    let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !wants_none && !is_dumb
}

/// Colour where stderr is a terminal, unless the user wants none.
fn style() -> Style {
    if io::stderr().is_terminal() && wants_colour() {
        Style::Colour
    } else {
        Style::Plain
    }
}

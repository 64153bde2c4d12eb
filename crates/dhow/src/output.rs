//! Where words go: stdout is data, stderr is everything else.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use dhow_wire::Findings;
use dhow_wire::document::Style;

/// Writes data. A reader that has gone away (`| head`) is no error.
pub fn data(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("the output could not be written"),
    }
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
    message(&format!("error: {error:#}\n"));
}

fn message(text: &str) {
    // Where even stderr is closed there is nobody left to tell.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Colour where stderr is a terminal, unless the user wants none.
fn style() -> Style {
    let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if io::stderr().is_terminal() && !wants_none && !is_dumb {
        Style::Colour
    } else {
        Style::Plain
    }
}

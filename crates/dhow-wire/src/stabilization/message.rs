//! The text that a user reads when a deployment did not become stable: who is to blame, and the last words of
//! the culprit's replicas, so that the real cause is on the screen.

use std::fmt::Write;

use super::evaluation::ServiceLogs;
use super::result::ServiceHealthSummary;

/// The last lines of each failing service that the message shows.
pub const LOG_LINES_SHOWN_MAX: usize = 20;
/// A line longer than this is cut: 20 of them still fit on a few screens.
const LOG_LINE_CHARS_MAX: usize = 1_000;

const HEADER: &str = "Stabilization timed out";

/// The header alone where no service is to blame; else a colon and one part for each failing service, with
/// its logs indented below. Parts stand on one line, parted by `; `, unless logs stand between them: then the next one
/// begins a line of its own below the header, and its logs stand below it.
pub fn timed_out_message(
    services: &[ServiceHealthSummary],
    mut logs_of: impl FnMut(&str) -> ServiceLogs,
) -> String {
    let mut message = HEADER.to_owned();
    let mut separator = ": ";
    // Of the line that the part stands on.
    let mut indent = "";
    for service in services.iter().filter(|service| service.is_failing()) {
        message.push_str(separator);
        let ServiceHealthSummary {
            name,
            running,
            desired,
            healthy,
            endpoints: _,
            done: _,
            updated: _,
            outdated: _,
            next_run_unix_secs: _,
            stopped: _,
        } = service;
        // Writing to a String cannot fail.
        let _ = write!(message, "{name}: {running}/{desired} replicas, healthy={healthy}");
        let block = log_block(logs_of(name));
        message.push_str(&block.replace('\n', &format!("\n{indent}")));
        (separator, indent) = match block.is_empty() {
            true => ("; ", indent),
            false => ("\n  ", "  "),
        };
    }
    message
}

/// The lines below a part; empty where the replicas said nothing.
pub fn log_block(logs: ServiceLogs) -> String {
    let lines = match logs {
        Ok(lines) => lines,
        Err(reason) => {
            let reason = reason.lines().collect::<Vec<_>>().join(" ");
            return format!("\n  logs: not available: {}", cut(&reason));
        }
    };
    // An entry that holds several lines is shown as such, so that the indentation stays whole.
    let lines: Vec<&str> = lines.iter().flat_map(|entry| entry.lines()).collect();
    let first_shown = lines.len().saturating_sub(LOG_LINES_SHOWN_MAX);
    let shown = lines.get(first_shown..).unwrap_or_default();
    if shown.is_empty() {
        return String::new();
    }
    let mut block = "\n  logs:".to_owned();
    for line in shown {
        block.push_str("\n    ");
        block.push_str(&cut(line));
    }
    block
}

fn cut(line: &str) -> String {
    let mut chars = line.chars();
    let mut short: String = chars.by_ref().take(LOG_LINE_CHARS_MAX).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

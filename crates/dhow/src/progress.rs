//! How a deployment comes along, on stderr: one line per service that is redrawn where a person looks on, else a
//! line for each change.
//!
//! Used by every verb that waits. It shows what the daemon says and judges nothing.

mod live;
mod watch;

use dhow_cli::progress::Plain;
use dhow_wire::api::Progress;

use crate::output;
use live::Live;
pub use watch::{Watch, watch};

/// Where progress is shown.
pub enum ProgressView {
    Live(Live),
    Plain(Plain),
}

impl ProgressView {
    /// As the terminal allows.
    pub fn new() -> Self {
        if output::is_watched() {
            Self::Live(Live::new())
        } else {
            Self::Plain(Plain::default())
        }
    }

    pub fn show(&mut self, progress: &Progress) {
        match self {
            Self::Live(live) => live.show(progress),
            Self::Plain(plain) => plain.show(progress, &mut |line| output::note(&line)),
        }
    }

    /// Something beside the services: that the daemon is away, for example.
    pub fn note(&mut self, text: &str) {
        match self {
            Self::Live(live) => live.note(text),
            Self::Plain(_) => output::note(text),
        }
    }

    /// Takes moving lines off the screen; plain lines stay.
    pub fn clear(&mut self) {
        match self {
            Self::Live(live) => live.clear(),
            Self::Plain(_) => {}
        }
    }

    /// The same after Ctrl-C.
    pub fn clear_after_interrupt(&mut self) {
        match self {
            Self::Live(live) => live.clear_after_interrupt(),
            Self::Plain(_) => {}
        }
    }
}

//! Progress as lines that are redrawn.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use dhow_cli::progress::{Phase, words_with_bytes};
use dhow_wire::api::Progress;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{Paint, Painter, cut, paint_stderr, raw_stderr, visible};

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(120);
/// A message that is longer than a line would break the redrawing; the terminal's width cuts the rest.
const MESSAGE_CHARS_MAX: usize = 400;

/// One line per service.
pub struct Live {
    screen: MultiProgress,
    lines: BTreeMap<String, ProgressBar>,
    painter: Painter,
}

impl Live {
    pub fn new() -> Self {
        Self {
            screen: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            lines: BTreeMap::new(),
            painter: paint_stderr(),
        }
    }

    pub fn show(&mut self, progress: &Progress) {
        let width = progress
            .services
            .iter()
            .map(|service| service.name.len())
            .max()
            .unwrap_or(0);
        for service in &progress.services {
            let line = self.lines.entry(service.name.clone()).or_insert_with(|| {
                let line = self.screen.add(ProgressBar::new_spinner().with_style(style()));
                line.enable_steady_tick(TICK);
                line
            });
            let phase = Phase::of(service);
            let text = cut(&visible(&words_with_bytes(service)), MESSAGE_CHARS_MAX);
            line.set_prefix(
                self.painter
                    .apply(&format!("{:width$}", visible(&service.name)), Paint::Bold),
            );
            let mark = match phase {
                Phase::Healthy => "✔ ",
                Phase::Failed => "✘ ",
                Phase::Pulling | Phase::Starting | Phase::Running | Phase::Waiting | Phase::Stopping => "",
            };
            line.set_message(self.painter.apply(&format!("{mark}{text}"), paint(phase)));
            if phase.is_settled() {
                line.disable_steady_tick();
            } else {
                line.enable_steady_tick(TICK);
            }
        }
    }

    pub fn note(&self, text: &str) {
        // A terminal that cannot be written to shows nothing of the rest either.
        let _ = self.screen.println(visible(text));
    }

    /// Ctrl-C at a terminal leaves `^C` on a line of its own below: that goes first, so that the rest is where it was
    /// drawn.
    pub fn clear_after_interrupt(&mut self) {
        if io::stdin().is_terminal() {
            raw_stderr(b"\r\x1b[2K\x1b[1A");
        }
        self.clear();
    }

    pub fn clear(&mut self) {
        for line in std::mem::take(&mut self.lines).into_values() {
            line.finish_and_clear();
        }
        let _ = self.screen.clear();
    }
}

impl Drop for Live {
    /// Whoever stops watching gets a clean screen.
    fn drop(&mut self) {
        self.clear();
    }
}

fn style() -> ProgressStyle {
    // A template that cannot be read would be a slip of ours; the default one shows the message too.
    ProgressStyle::with_template("{spinner} {prefix}  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn paint(phase: Phase) -> Paint {
    match phase {
        Phase::Failed => Paint::Red,
        Phase::Healthy => Paint::Green,
        Phase::Pulling | Phase::Starting | Phase::Running => Paint::Cyan,
        Phase::Waiting | Phase::Stopping => Paint::Yellow,
    }
}

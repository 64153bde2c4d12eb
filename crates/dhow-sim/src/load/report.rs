//! What was measured, beside what is asked for.

use std::fmt;

/// One figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub what: String,
    pub measured: String,
    /// What is asked for; empty where it is only told.
    pub bar: String,
    /// Whether that is so; none where nothing is asked for.
    pub is_met: Option<bool>,
    pub kind: Kind,
}

/// What it means where it is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Too slow or too large, on this machine, this time.
    Figure,
    /// A fault of the product, however slow the machine is.
    Truth,
}

/// The lines that a load run prints: each figure with its bar, where it has one, and each truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub lines: Vec<Line>,
}

impl Report {
    /// A figure with a bar; it is told at once, because a run takes minutes.
    pub fn bar(&mut self, what: &str, measured: String, bar: &str, is_met: bool) {
        self.add(Line {
            what: what.to_owned(),
            measured,
            bar: bar.to_owned(),
            is_met: Some(is_met),
            kind: Kind::Figure,
        });
    }

    /// What must hold however slow the machine is.
    pub fn truth(&mut self, what: &str, measured: String, wanted: &str, holds: bool) {
        self.add(Line {
            what: what.to_owned(),
            measured,
            bar: wanted.to_owned(),
            is_met: Some(holds),
            kind: Kind::Truth,
        });
    }

    /// A figure that is only told.
    pub fn tell(&mut self, what: &str, measured: String) {
        self.add(Line {
            what: what.to_owned(),
            measured,
            bar: String::new(),
            is_met: None,
            kind: Kind::Figure,
        });
    }

    /// What does not hold and must.
    pub fn untrue(&self) -> Vec<&Line> {
        let missed = self.lines.iter().filter(|line| line.is_met == Some(false));
        missed.filter(|line| line.kind == Kind::Truth).collect()
    }

    fn add(&mut self, line: Line) {
        println!("{line}");
        self.lines.push(line);
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.is_met {
            Some(true) => "met   ",
            Some(false) => "MISSED",
            None => "      ",
        };
        write!(f, "{mark} {:<44} {}", self.what, self.measured)?;
        match self.bar.is_empty() {
            true => Ok(()),
            false => write!(f, "  (bar: {})", self.bar),
        }
    }
}

//! A line of a log on the screen: `replica | text`, aligned, each replica in its colour.

use std::collections::BTreeMap;

use dhow_wire::api::{LogRecord, LogStream};

use crate::output::{self, Paint, Painter, Reader, paint_stdout};

const COLOURS: [Paint; 5] = [
    Paint::Cyan,
    Paint::Yellow,
    Paint::Green,
    Paint::Magenta,
    Paint::Blue,
];

/// How lines are shown.
#[derive(Clone, Copy, Debug)]
pub struct LogForm {
    pub timestamps: bool,
    /// The replica before each line.
    pub prefix: bool,
    /// The API's JSON instead of all this.
    pub json: bool,
    /// What replicas wrote as it is, on a terminal too.
    pub raw: bool,
}

/// As people read it.
impl Default for LogForm {
    fn default() -> Self {
        Self {
            timestamps: false,
            prefix: true,
            json: false,
            raw: false,
        }
    }
}

/// Prints lines of logs, and remembers the colour of each replica.
pub struct Printer {
    form: LogForm,
    painter: Painter,
    width: usize,
    colours: BTreeMap<String, Paint>,
    has_printed: bool,
}

impl Printer {
    pub fn new(form: LogForm, replicas: &[String]) -> Self {
        let mut printer = Self {
            form,
            painter: paint_stdout(),
            width: 0,
            colours: BTreeMap::new(),
            has_printed: false,
        };
        for replica in replicas {
            printer.meet(replica);
        }
        printer
    }

    /// Colours are given in the order in which replicas are met.
    fn meet(&mut self, replica: &str) -> Paint {
        self.width = self.width.max(replica.len());
        let next = COLOURS[self.colours.len() % COLOURS.len()];
        *self.colours.entry(replica.to_owned()).or_insert(next)
    }

    /// Whether there was anything to print.
    pub fn has_printed(&self) -> bool {
        self.has_printed
    }

    pub fn print(&mut self, record: &LogRecord, json: &str) -> anyhow::Result<Reader> {
        self.has_printed = true;
        if self.form.json {
            return self.write(&format!("{json}\n"));
        }
        if record.stream == LogStream::Notice {
            let about = match record.replica.as_str() {
                "" => record.deployment.as_str(),
                replica => replica,
            };
            output::note(&format!("{about}: {}", output::one_line(&record.text)));
            return Ok(Reader::There);
        }
        let mut line = String::new();
        if self.form.prefix {
            let paint = self.meet(&record.replica);
            let width = self.width;
            line += &self.painter.apply(&format!("{:width$} |", record.replica), paint);
            line.push(' ');
        }
        if self.form.timestamps {
            line += &self.painter.apply(&output::time(record.time_unix_us), Paint::Dim);
            line.push(' ');
        }
        line += &record.text;
        line.push('\n');
        self.write(&line)
    }

    fn write(&self, text: &str) -> anyhow::Result<Reader> {
        if self.form.raw {
            output::raw_stdout(text.as_bytes())
        } else {
            output::stream(text)
        }
    }
}

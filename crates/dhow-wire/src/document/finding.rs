//! Findings: everything that is wrong with what was read, each with its place.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::limits::FINDINGS_MAX;
use super::render::{self, Style};
use super::source::Source;
use super::span::Span;

/// One thing that is wrong. Its serialised form is what `--json` and the API's problems carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The file, or what else was read, such as `environment`.
    pub file: String,
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// Where it stands in the document: `services.web.scale.replicas`; empty for the whole of it.
    pub path: String,
    /// What was found.
    pub message: String,
    /// What was meant, or what to do.
    pub hint: Option<String>,
    #[serde(skip)]
    pub(super) span: Option<Span>,
    /// Other places to show, each with a word about it.
    #[serde(skip)]
    pub(super) notes: Vec<(Span, String)>,
}

impl Finding {
    pub fn at(source: &Source, span: Span, message: impl Into<String>) -> Self {
        Self {
            file: source.name().into(),
            line: Some(span.line),
            column: Some(span.column),
            path: String::new(),
            message: message.into(),
            hint: None,
            span: Some(span),
            notes: Vec::new(),
        }
    }

    /// A finding about something that is not in a text: a variable, a flag, a file that cannot be read.
    pub fn outside(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: None,
            column: None,
            path: String::new(),
            message: message.into(),
            hint: None,
            span: None,
            notes: Vec::new(),
        }
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn with_path(mut self, path: impl fmt::Display) -> Self {
        self.path = path.to_string();
        self
    }

    pub fn with_note(mut self, span: Span, note: impl Into<String>) -> Self {
        self.notes.push((span, note.into()));
        self
    }
}

/// All findings about one source, in the order of their places.
#[derive(Clone, Debug)]
pub struct Findings {
    source: Source,
    list: Vec<Finding>,
    /// Findings beyond the limit, which are only counted.
    more: usize,
}

impl Findings {
    pub fn of(source: Source) -> Self {
        Self {
            source,
            list: Vec::new(),
            more: 0,
        }
    }

    /// One finding about something that has no text.
    pub fn outside(file: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let mut findings = Self::of(Source::new(file, ""));
        findings.add(Finding::outside(file, message).with_hint(hint));
        findings
    }

    pub fn add(&mut self, finding: Finding) {
        if self.is_full() {
            self.more += 1;
            return;
        }
        let place = |finding: &Finding| (finding.line.unwrap_or(0), finding.column.unwrap_or(0));
        let position = self.list.partition_point(|other| place(other) <= place(&finding));
        self.list.insert(position, finding);
    }

    /// Counts a finding that would not be kept, without the cost of making it.
    pub(super) fn count_only(&mut self) {
        self.more += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= FINDINGS_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are, those that were only counted included.
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    pub fn list(&self) -> &[Finding] {
        &self.list
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What is read as an answer: the value, unless something is wrong.
    pub fn or<T>(self, value: T) -> Result<T, Findings> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }

    /// The findings as people read them, each with its line of the source, and a summary.
    pub fn render(&self, style: Style) -> String {
        render::findings(self, style)
    }

    /// `3 problems in shop.yaml`.
    pub fn summary(&self) -> String {
        match self.count() {
            1 => format!("1 problem in {}", self.source.name()),
            count => format!("{count} problems in {}", self.source.name()),
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(Style::Plain))
    }
}

impl std::error::Error for Findings {}

impl Serialize for Findings {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(to)
    }
}

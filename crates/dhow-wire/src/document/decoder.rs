//! The state of decoding one document: where it is, what is wrong so far, and which places could not be read.

use std::collections::BTreeSet;

use dhow_core::spec::check::{FieldPath, PathPart};

use super::finding::{Finding, Findings};
use super::node::Node;
use super::readers::shown;
use super::source::Source;
use super::span::Span;

/// Readers take it with a node and give a value, or nothing once the finding is recorded here. They go on
/// after a mistake, so that one run shows them all.
pub struct Decoder {
    pub(super) source: Source,
    pub(super) findings: Findings,
    path: FieldPath,
    failed: BTreeSet<FieldPath>,
}

impl Decoder {
    /// Goes on with the findings that parsing has left.
    pub fn new(source: Source, findings: Findings) -> Self {
        Self {
            source,
            findings,
            path: FieldPath::default(),
            failed: BTreeSet::new(),
        }
    }

    pub fn path(&self) -> &FieldPath {
        &self.path
    }

    /// Reads a part of the present place.
    pub fn within<T>(&mut self, part: PathPart, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(part);
        let value = read(self);
        self.path.pop();
        value
    }

    /// Records a finding at the present place; the value there cannot be relied on.
    pub fn fail<T>(&mut self, span: Span, message: impl Into<String>, hint: impl Into<String>) -> Option<T> {
        let path = self.path.clone();
        self.fail_at(path, span, message, hint)
    }

    /// The same for another path, such as a field that is missing.
    pub fn fail_at<T>(
        &mut self,
        path: FieldPath,
        span: Span,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Option<T> {
        if self.findings.is_full() {
            self.findings.count_only();
            return None;
        }
        let hint: String = hint.into();
        let mut finding = Finding::at(&self.source, span, message).with_path(&path);
        if !hint.is_empty() {
            finding = finding.with_hint(hint);
        }
        self.findings.add(finding);
        self.mark_failed(path);
        None
    }

    /// Marks a place as unread without a finding of its own.
    pub fn mark_failed(&mut self, path: FieldPath) {
        self.failed.insert(path);
    }

    /// The value is of the wrong kind: says what was expected and what was found.
    pub fn wrong_type<T>(&mut self, node: &Node, expected: &str, hint: impl Into<String>) -> Option<T> {
        if self.findings.is_full() {
            self.findings.count_only();
            return None;
        }
        let message = format!("{} takes {expected}, found {}", self.subject(), shown(node));
        self.fail(node.span, message, hint)
    }

    /// The present place as the subject of a sentence: `` `port` `` or `` an item of `command` ``.
    pub fn subject(&self) -> String {
        let parts = self.path.parts();
        let key = |part: &PathPart| match part {
            PathPart::Key(key) => Some(dhow_core::spec::check::quoted(key)),
            PathPart::Index(_) => None,
        };
        match parts {
            [] => "the file".into(),
            [.., PathPart::Key(name)] => dhow_core::spec::check::quoted(name),
            [.., PathPart::Index(_)] => match parts.iter().rev().find_map(key) {
                Some(name) => format!("an item of {name}"),
                None => "an item".into(),
            },
        }
    }

    /// Whether a place could not be read, or something that it holds or that holds it.
    pub fn has_failed(&self, path: &FieldPath) -> bool {
        let parts = path.parts();
        let mut prefix = FieldPath::default();
        let above = std::iter::once(None).chain(parts.iter().map(Some)).any(|part| {
            if let Some(part) = part {
                prefix.push(part.clone());
            }
            self.failed.contains(&prefix)
        });
        let below = self.failed.range(path.clone()..).next();
        above || below.is_some_and(|failed| failed.parts().starts_with(parts))
    }

    /// Whether any place that could not be read fits.
    pub fn any_failed(&self, fits: impl Fn(&FieldPath) -> bool) -> bool {
        self.failed.iter().any(fits)
    }

    pub fn into_findings(self) -> Findings {
        self.findings
    }
}

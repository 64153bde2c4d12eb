//! What is said about the files that were read: findings, which refuse, and notes, which explain.

use std::path::{Path, PathBuf};

use dhow_wire::Findings;
use dhow_wire::document::{Finding, Source, Span};

use crate::Converted;

/// A place in one of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    pub file: usize,
    pub span: Span,
}

/// Something that differs from what Docker does, or has no effect here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub message: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

struct FileOf {
    source: Source,
    /// What its relative paths start from.
    base: PathBuf,
    findings: Findings,
}

/// The files that were read so far, with what is to be said about them.
#[derive(Default)]
pub(crate) struct Report {
    files: Vec<FileOf>,
    /// About no file that could be read.
    outside: Vec<Findings>,
    notes: Vec<Note>,
}

impl Report {
    pub fn add_file(&mut self, source: Source, base: PathBuf, findings: Findings) -> usize {
        self.files.push(FileOf {
            source,
            base,
            findings,
        });
        self.files.len() - 1
    }

    pub fn source(&self, file: usize) -> &Source {
        &self.files[file].source
    }

    pub fn base(&self, place: Location) -> &Path {
        &self.files[place.file].base
    }

    pub fn outside(&mut self, findings: Findings) {
        self.outside.push(findings);
    }

    pub fn is_refused(&self) -> bool {
        !self.outside.is_empty() || self.files.iter().any(|file| !file.findings.is_empty())
    }

    pub fn refuse(
        &mut self,
        place: Location,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let Some(file) = self.files.get_mut(place.file) else {
            return;
        };
        let mut finding = Finding::at(&file.source, place.span, message).with_path(path);
        let hint = hint.into();
        if !hint.is_empty() {
            finding = finding.with_hint(hint);
        }
        let is_said = file.findings.list().iter().any(|said| *said == finding);
        if !is_said {
            file.findings.add(finding);
        }
    }

    pub fn note(&mut self, place: Location, message: impl Into<String>) {
        let Some(file) = self.files.get(place.file) else {
            return;
        };
        let note = Note {
            file: file.source.name().to_owned(),
            line: place.span.line.max(1),
            column: place.span.column.max(1),
            message: message.into(),
        };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub fn into_result(self, converted: Option<Converted>) -> Result<Converted, Vec<Findings>> {
        let is_refused = self.is_refused();
        let mut findings: Vec<Findings> = self.outside;
        let of_files = self.files.into_iter().map(|file| file.findings);
        findings.extend(of_files.filter(|findings| !findings.is_empty()));
        match converted {
            Some(mut converted) if !is_refused => {
                let mut notes = self.notes;
                notes.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
                converted.notes = notes;
                Ok(converted)
            }
            Some(_) | None => Err(findings),
        }
    }
}

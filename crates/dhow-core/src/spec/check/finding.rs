//! What a rule reports: where, what, and what to do.

use std::borrow::Cow;
use std::fmt;

/// One step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathPart {
    Key(Cow<'static, str>),
    Index(usize),
}

/// Where something stands in a document: `services.web.endpoints[0].port`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(Vec<PathPart>);

impl FieldPath {
    pub fn of(key: impl Into<Cow<'static, str>>) -> Self {
        Self::default().key(key)
    }

    pub fn key(&self, key: impl Into<Cow<'static, str>>) -> Self {
        self.with(PathPart::Key(key.into()))
    }

    pub fn index(&self, index: usize) -> Self {
        self.with(PathPart::Index(index))
    }

    pub fn with(&self, part: PathPart) -> Self {
        let mut parts = Vec::with_capacity(self.0.len() + 1);
        parts.extend_from_slice(&self.0);
        parts.push(part);
        Self(parts)
    }

    pub fn push(&mut self, part: PathPart) {
        self.0.push(part);
    }

    pub fn pop(&mut self) {
        self.0.pop();
    }

    pub fn parts(&self) -> &[PathPart] {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, part) in self.0.iter().enumerate() {
            match part {
                PathPart::Index(index) => write!(f, "[{index}]")?,
                PathPart::Key(key) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    write_key(key, f)?;
                }
            }
        }
        Ok(())
    }
}

/// The longest key that a path shows; a key is text of the author and may be of any length.
const KEY_SHOWN_CHARS_MAX: usize = 64;

fn write_key(key: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '/');
    let is_long = key.chars().nth(KEY_SHOWN_CHARS_MAX).is_some();
    if !key.is_empty() && !is_long && key.chars().all(plain) {
        return f.write_str(key);
    }
    let shown: String = key.chars().take(KEY_SHOWN_CHARS_MAX).collect();
    write!(f, "{:?}", format!("{shown}{}", if is_long { "…" } else { "" }))
}

/// Another place that a finding has to do with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    pub path: FieldPath,
    /// What to say about that place; without it the place only counts as a reason.
    pub note: Option<String>,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecFinding {
    pub path: FieldPath,
    /// What is wrong.
    pub message: String,
    /// What was meant, or what to do.
    pub hint: Option<String>,
    /// The finding is about the name of the field, not about its value.
    pub on_key: bool,
    /// What else the finding rests on: where one of these could not be read, the finding may be wrong.
    pub related: Vec<Related>,
}

impl SpecFinding {
    pub fn at(path: FieldPath, message: impl Into<String>) -> Self {
        Self {
            path,
            message: message.into(),
            hint: None,
            on_key: false,
            related: Vec::new(),
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Points at the name of the field rather than at its value.
    pub fn on_key(mut self) -> Self {
        self.on_key = true;
        self
    }

    /// Points at a second place too.
    pub fn also(mut self, path: FieldPath, note: impl Into<String>) -> Self {
        self.related.push(Related {
            path,
            note: Some(note.into()),
        });
        self
    }

    /// Names a place that the finding rests on, without showing it.
    pub fn because(mut self, path: FieldPath) -> Self {
        self.related.push(Related { path, note: None });
        self
    }
}

impl fmt::Display for SpecFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

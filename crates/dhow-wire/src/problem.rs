//! The body of every error of the HTTP API: `application/problem+json` with a stable `code`.
//!
//! The API writes it; the command line turns it into words and an exit code. It never carries a secret or
//! the inner text of a bug.

mod code;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use code::{ExitCode, ProblemCode};

/// The media type of the body.
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

/// An error of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URI of the kind; `about:blank`, because `code` says it.
    #[serde(rename = "type", default = "Problem::blank")]
    #[schema(value_type = String)]
    pub kind: Cow<'static, str>,
    /// The same for every problem of one code.
    #[serde(default)]
    #[schema(value_type = String)]
    pub title: Cow<'static, str>,
    pub status: u16,
    /// What happened this time, where, and what to do next.
    #[serde(default)]
    pub detail: String,
    /// A [`ProblemCode`]; text, so that a newer server's code is still readable.
    #[serde(default)]
    #[schema(value_type = String)]
    pub code: Cow<'static, str>,
    /// Every finding, where the input was wrong in several places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// When to try again, as the header `Retry-After` says too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u32>,
}

impl Problem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            kind: Self::blank(),
            title: code.title().into(),
            status: code.status(),
            detail: detail.into(),
            code: code.as_str().into(),
            findings: Vec::new(),
            retry_after_secs: None,
        }
    }

    #[must_use]
    pub fn with_findings(mut self, findings: Vec<String>) -> Self {
        self.findings = findings;
        self
    }

    #[must_use]
    pub fn with_retry_after_secs(mut self, secs: u32) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    fn blank() -> Cow<'static, str> {
        "about:blank".into()
    }

    /// The code, where this version knows it.
    pub fn known_code(&self) -> Option<ProblemCode> {
        ProblemCode::from_text(&self.code)
    }

    /// What the command line ends with; by the HTTP status where the code is a newer server's.
    pub fn exit_code(&self) -> ExitCode {
        match self.known_code() {
            Some(code) => code.exit_code(),
            None => ExitCode::of_status(self.status),
        }
    }
}

/// For people: the detail, or the title where a server gave none, and every finding on a line of its own.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [self.detail.as_str(), &self.title, &self.code]
            .into_iter()
            .find(|text| !text.is_empty());
        match words {
            Some(words) => f.write_str(words)?,
            None => write!(f, "the server answered with status {}", self.status)?,
        }
        self.findings
            .iter()
            .try_for_each(|finding| write!(f, "\n  {finding}"))
    }
}

#[cfg(test)]
mod tests;

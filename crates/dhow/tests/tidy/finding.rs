//! What a rule reports, and how a test ends when it reports something.

use std::fmt;

/// One broken rule at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub what: String,
    pub mend: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, what: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            what: what.into(),
            mend: mend.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}\n    mend: {}",
            self.path, self.line, self.what, self.mend
        )
    }
}

/// Fails with every finding at once, so that one run shows all there is to mend.
#[track_caller]
pub fn assert_clean(mut findings: Vec<Finding>) {
    findings.sort();
    findings.dedup();
    let list: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(
        list.is_empty(),
        "{} tidy findings:\n{}",
        list.len(),
        list.join("\n")
    );
}

/// Checks a bad example: the findings must be exactly at these places (`path:line`), in this order.
#[track_caller]
pub fn assert_found(mut findings: Vec<Finding>, places: &[&str]) {
    findings.sort();
    findings.dedup();
    let found: Vec<String> = findings
        .iter()
        .map(|f| format!("{}:{}", f.path, f.line))
        .collect();
    assert_eq!(found, places, "{findings:#?}");
}

//! What the suite found.

use std::fmt;

/// The outcome of each case of the suite.
#[derive(Debug, Default)]
pub struct Report {
    outcomes: Vec<(&'static str, Result<(), String>)>,
}

impl Report {
    pub(super) fn add(&mut self, name: &'static str, result: Result<(), String>) {
        self.outcomes.push((name, result));
    }

    pub fn passed(&self) -> usize {
        self.outcomes.iter().filter(|(_, result)| result.is_ok()).count()
    }

    pub fn is_clean(&self) -> bool {
        self.passed() == self.outcomes.len()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, result) in &self.outcomes {
            match result {
                Ok(()) => writeln!(f, "ok    {name}")?,
                Err(why) => writeln!(f, "WRONG {name}: {why}")?,
            }
        }
        Ok(())
    }
}

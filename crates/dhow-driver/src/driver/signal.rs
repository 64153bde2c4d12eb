//! The signal that asks a workload to end.

use std::fmt;
use std::str::FromStr;

use nix::sys::signal::Signal;

use super::error::Cause;

/// A signal that a spec may name for the stop of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal(Signal);

impl StopSignal {
    pub const TERM: Self = Self(Signal::SIGTERM);
    pub const KILL: Self = Self(Signal::SIGKILL);

    /// As a deployment file has it: `SIGTERM`, `TERM` or `15`.
    pub fn parse(text: &str) -> Result<Self, Cause> {
        let upper = text.to_ascii_uppercase();
        let found = match upper.parse::<i32>() {
            Ok(number) => Signal::try_from(number).ok(),
            Err(_) => Signal::from_str(&upper)
                .or_else(|_| Signal::from_str(&format!("SIG{upper}")))
                .ok(),
        };
        found.map(Self).ok_or_else(|| Cause::UnknownSignal {
            name: text.to_owned(),
        })
    }

    pub fn number(self) -> i32 {
        self.0 as i32
    }

    pub(crate) fn signal(self) -> Signal {
        self.0
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_as_people_write_them() {
        for text in ["SIGTERM", "TERM", "sigterm", "15"] {
            assert_eq!(StopSignal::parse(text).unwrap(), StopSignal::TERM, "{text}");
        }
        for text in ["", "SIG", "SIGNOPE", "0", "999", "-9"] {
            assert!(StopSignal::parse(text).is_err(), "{text}");
        }
    }
}

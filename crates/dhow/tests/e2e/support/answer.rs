//! What a command said.

use std::process::Output;

#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    pub fn of(output: Output) -> Self {
        Self {
            code: output
                .status
                .code()
                .unwrap_or_else(|| panic!("{}", output.status)),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The same, where the exit code is this one.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }

    /// The same, where stderr has each of these.
    #[track_caller]
    pub fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stderr.contains(text), "no `{text}` in:\n{}", self.stderr);
        }
        self
    }

    /// The same, where stdout has each of these.
    #[track_caller]
    pub fn shows(self, texts: &[&str]) -> Self {
        for text in texts {
            assert!(self.stdout.contains(text), "no `{text}` in:\n{}", self.stdout);
        }
        self
    }

    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let done = self.ends_with(0);
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", done.stdout))
    }
}

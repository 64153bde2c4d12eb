//! A scenario file: prose, commands, and what each command is expected to print.
//!
//! A line that begins with `#` is prose, one that begins with `$ ` is a command. Indented lines right under a
//! command that takes a file are that file. Everything else up to the next prose or command is output.

use super::error::BadScript;

/// A file, ready to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub blocks: Vec<Block>,
}

/// One part of a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A line of prose or an empty one, as it stands in the file.
    Prose(String),
    Command(Invocation),
}

/// A command of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub line: usize,
    pub text: String,
    /// The file below it, without its indentation.
    pub input: Vec<String>,
    pub expected: Vec<String>,
}

/// How far a file below a command is indented.
const INDENT: &str = "  ";

impl Script {
    pub fn parse(text: &str) -> Result<Self, BadScript> {
        let mut blocks: Vec<Block> = Vec::new();
        // Empty lines belong to the output above them only where more output follows.
        let mut empty = 0;
        for (line, at) in text.lines().zip(1..) {
            if line.is_empty() {
                empty += 1;
                continue;
            }
            let command = line.strip_prefix("$ ");
            if command.is_some() || line.starts_with('#') {
                blocks.extend((0..empty).map(|_| Block::Prose(String::new())));
                empty = 0;
            }
            match command {
                Some(command) => blocks.push(Block::Command(Invocation {
                    line: at,
                    text: command.trim().into(),
                    input: Vec::new(),
                    expected: Vec::new(),
                })),
                None if line.starts_with('#') => blocks.push(Block::Prose(line.into())),
                None => {
                    let Some(Block::Command(above)) = blocks.last_mut().filter(|_| empty == 0) else {
                        let what =
                            "this is neither prose (`# …`), nor a command (`$ …`), nor right under one";
                        return Err(BadScript {
                            line: at,
                            what: what.into(),
                        });
                    };
                    above.take(line);
                }
            }
        }
        Ok(Self { blocks })
    }

    /// The prose before the first empty line, which says what the file is about.
    pub fn title(&self) -> Option<String> {
        let lines = self.blocks.iter().map_while(|block| match block {
            Block::Prose(line) => line.strip_prefix("# "),
            Block::Command(_) => None,
        });
        let title = lines.collect::<Vec<_>>().join(" ");
        (!title.is_empty()).then_some(title)
    }

    /// The file with other outputs, one for each command in turn.
    pub fn with_outputs(&self, outputs: &[Vec<String>]) -> String {
        let mut text = String::new();
        let mut outputs = outputs.iter();
        for block in &self.blocks {
            match block {
                Block::Prose(line) => push(&mut text, "", line),
                Block::Command(command) => {
                    push(&mut text, "$ ", &command.text);
                    command
                        .input
                        .iter()
                        .for_each(|line| push(&mut text, INDENT, line));
                    let output = outputs.next().into_iter().flatten();
                    output.for_each(|line| push(&mut text, "", line));
                }
            }
        }
        text
    }
}

impl Invocation {
    /// Whether indented lines below it are a file for it.
    fn takes_file(&self) -> bool {
        let mut words = self.text.split_whitespace();
        let first = words.next();
        let verb = if first == Some("request") {
            words.nth(1)
        } else {
            first
        };
        matches!(verb, Some("deploy" | "redeploy" | "plan" | "manifests"))
    }

    fn take(&mut self, line: &str) {
        match line.strip_prefix(INDENT) {
            Some(input) if self.takes_file() && self.expected.is_empty() => self.input.push(input.into()),
            Some(_) | None => self.expected.push(line.into()),
        }
    }
}

fn push(text: &mut String, before: &str, line: &str) {
    text.push_str(before);
    text.push_str(line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Title.\n\n$ deploy --detach -\n  version: v1\n  a:\n    b\nshop is at revision 1\n\n# More.\n$ run 1s\n    0.5s  x\n    0.6s  y\n\n$ ps\n";

    #[test]
    fn a_file_is_given_back_as_it_was() {
        let script = Script::parse(TEXT).unwrap();
        assert_eq!(script.title().as_deref(), Some("Title."));
        let outputs: Vec<Vec<String>> = script
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Command(command) => Some(command.expected.clone()),
                Block::Prose(_) => None,
            })
            .collect();
        assert_eq!(outputs[1], ["    0.5s  x", "    0.6s  y"]);
        assert_eq!(script.with_outputs(&outputs), TEXT);
    }

    #[test]
    fn a_stray_line_is_named() {
        let error = Script::parse("# Title.\nps\n").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(Script::parse("$ ps\n\nlater\n").is_err());
    }
}

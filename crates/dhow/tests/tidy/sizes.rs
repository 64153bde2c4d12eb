//! A file and a function are read in one sitting: both have a limit.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tokens;
use crate::tree::{FileUse, Tree};

/// A file is meant to be about 400 lines; above this it holds two things.
const SOURCE_LINES_MAX: usize = 600;
/// Tests are lists of cases and may be longer.
const TEST_LINES_MAX: usize = 800;
/// A function fits on one screen, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

fn check_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_files() {
        let line_count = file.text.lines().count();
        let (limit, mend) = match file.file_use {
            FileUse::Source => (
                SOURCE_LINES_MAX,
                "move one of its subjects to a file of its own: `foo.rs` with `foo/`",
            ),
            FileUse::Test => (TEST_LINES_MAX, "split the cases by subject into several files"),
        };
        if line_count > limit {
            let what = format!("the file has {line_count} lines, the limit is {limit}");
            findings.push(Finding::new(file.path, limit + 1, what, mend));
        }
    }
    findings
}

fn check_functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust_files() {
        let stream = match tokens::lex(file.text) {
            Ok(stream) => stream,
            Err(line) => {
                let what = "the file cannot be read as Rust from here on";
                findings.push(Finding::new(
                    file.path,
                    line,
                    what,
                    "close the bracket or the literal",
                ));
                continue;
            }
        };
        for function in tokens::functions(&stream) {
            let line_count = function.line_count();
            if line_count > FUNCTION_LINES_MAX {
                let what = format!(
                    "`fn {}` has {line_count} lines, the limit is {FUNCTION_LINES_MAX}",
                    function.name
                );
                let mend = "give each of its steps a function with a name that says what it does";
                findings.push(Finding::new(file.path, function.first_line, what, mend));
            }
        }
    }
    findings
}

#[test]
fn files_are_short() {
    assert_clean(check_files(&Tree::workspace()));
}

#[test]
fn functions_are_short() {
    assert_clean(check_functions(&Tree::workspace()));
}

#[test]
fn a_long_file_is_found() {
    let (source, longer) = ("\n".repeat(601), "\n".repeat(801));
    let tree = Tree::of(&[
        ("crates/a/src/at_the_limit.rs", &"\n".repeat(600)),
        ("crates/a/src/b.rs", &source),
        ("crates/a/src/b/tests.rs", &source),
        ("crates/a/tests/c.rs", &longer),
    ]);
    assert_found(
        check_files(&tree),
        &["crates/a/src/b.rs:601", "crates/a/tests/c.rs:801"],
    );
}

#[test]
fn a_long_function_is_found() {
    let body = |lines: usize| format!("fn f() {{{}}}\n", "\n".repeat(lines - 1));
    let long = format!("//! Header.\n\nimpl S {{\n    {}}}\n", body(71));
    let tree = Tree::of(&[
        ("crates/a/src/at_the_limit.rs", &body(70)),
        ("crates/a/src/broken.rs", "fn f() {"),
        ("crates/a/src/long.rs", &long),
    ]);
    assert_found(
        check_functions(&tree),
        &["crates/a/src/broken.rs:1", "crates/a/src/long.rs:4"],
    );
}

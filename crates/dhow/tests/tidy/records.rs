//! The decision records: each is numbered once, has a status and stands in the list.

use crate::finding::{Finding, assert_clean, assert_found};
use crate::tree::Tree;

const FOLDER: &str = "docs/adr/";
const LIST: &str = "docs/adr/README.md";

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let list = tree.text(LIST).unwrap_or_default();
    let mut last_number = String::new();
    for (path, text) in tree.files().filter(|(path, _)| path.starts_with(FOLDER)) {
        let name = &path[FOLDER.len()..];
        if matches!(name, "README.md" | "template.md") {
            continue;
        }
        let number = name.split('-').next().unwrap_or_default();
        let is_number = number.len() == 4 && number.bytes().all(|b| b.is_ascii_digit());
        if !is_number || !name.ends_with(".md") {
            let what = format!("`{name}` is not named like a record");
            findings.push(Finding::new(path, 1, what, "name it `NNNN-the-decision.md`"));
            continue;
        }
        if number == last_number {
            let what = format!("the number {number} is taken");
            findings.push(Finding::new(
                path,
                1,
                what,
                "give the newer record the next free number",
            ));
        }
        last_number = number.to_owned();
        if !text.starts_with(&format!("# {number}: ")) {
            let mend = format!("begin with `# {number}: ` and the decision as a short sentence");
            findings.push(Finding::new(path, 1, "the title does not carry the number", mend));
        }
        if !text.lines().any(|line| line.starts_with("Status: ")) {
            let mend = "add a line `Status: proposed`, `accepted` or `superseded by` the newer record";
            findings.push(Finding::new(path, 2, "the record has no status", mend));
        }
        if !list.contains(&format!("]({name})")) {
            let mend = format!("add a row that links to it to {LIST}");
            findings.push(Finding::new(path, 3, "the record is not in the list", mend));
        }
    }
    findings
}

#[test]
fn every_record_is_in_order() {
    assert_clean(check(&Tree::workspace()));
}

#[test]
fn a_record_out_of_order_is_found() {
    let tree = Tree::of(&[
        (LIST, "| [0001](0001-good.md) |\n| [0002](0002-bare.md) |\n"),
        ("docs/adr/template.md", ""),
        ("docs/adr/0001-good.md", "# 0001: Good\n\nStatus: accepted\n"),
        ("docs/adr/0001-twin.md", "# 0001: Twin\n\nStatus: accepted\n"),
        ("docs/adr/0002-bare.md", "# Something\n"),
        ("docs/adr/notes.md", ""),
    ]);
    let places = [
        "docs/adr/0001-twin.md:1",
        "docs/adr/0001-twin.md:3",
        "docs/adr/0002-bare.md:1",
        "docs/adr/0002-bare.md:2",
        "docs/adr/notes.md:1",
    ];
    assert_found(check(&tree), &places);
}

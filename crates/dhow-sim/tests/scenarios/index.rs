//! The list of scenarios at the end of their README.

use dhow_sim::scenario::Script;

const HEAD: &str = "## Files\n\n";

/// The README with the list made anew: each file and its first sentence.
pub fn with_list(readme: &str, scripts: &[(String, Script)]) -> String {
    let (before, _) = readme.split_once(HEAD).expect("the README has the heading");
    let mut text = format!("{before}{HEAD}");
    for (name, script) in scripts {
        let title = script.title().unwrap_or_else(|| panic!("{name} has no title"));
        text.push_str(&format!("- [{name}]({name}): {}\n", title.trim_end_matches('.')));
    }
    text
}

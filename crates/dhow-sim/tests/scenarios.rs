//! Runs every file in `scenarios/` and compares what it prints with what stands there. DHOW_BLESS=1 writes
//! what is printed into the files instead: read the difference before you keep it.

#[path = "scenarios/diff.rs"]
mod diff;
#[path = "scenarios/index.rs"]
mod index;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use dhow_sim::scenario::{Script, run};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn is_blessing() -> bool {
    std::env::var_os("DHOW_BLESS").is_some()
}

fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).expect("the folder of scenarios is in the tree");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "scenario"));
    files.sort();
    files
}

/// What is wrong with a file, if anything.
fn check(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("it was just listed");
    let script = match Script::parse(&text) {
        Ok(script) => script,
        Err(error) => return vec![error.to_string()],
    };
    let ran = match catch_unwind(AssertUnwindSafe(|| run(&script))) {
        Ok(Ok(ran)) => ran,
        Ok(Err(error)) => return vec![error.to_string()],
        Err(_) => return vec!["the lab panicked; its message is above".into()],
    };
    let mut wrong = ran.broken;
    if ran.text != text {
        match is_blessing() {
            true => fs::write(file, &ran.text).expect("blessing writes files"),
            false => wrong.push(diff::diff(&text, &ran.text)),
        }
    }
    wrong
}

#[test]
fn every_scenario_comes_out_as_it_says() {
    let mut wrong = Vec::new();
    for file in files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let found = check(&file);
        wrong.extend(found.into_iter().map(|what| format!("{name}: {what}")));
    }
    assert!(
        wrong.is_empty(),
        "{}\n\nDHOW_BLESS=1 writes what was printed into the files.",
        wrong.join("\n\n")
    );
}

#[test]
fn the_list_of_files_is_up_to_date() {
    let readme = folder().join("README.md");
    let text = fs::read_to_string(&readme).unwrap();
    let scripts = files().into_iter().map(|file| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let script = Script::parse(&fs::read_to_string(&file).unwrap()).unwrap();
        (name, script)
    });
    let wanted = index::with_list(&text, &scripts.collect::<Vec<_>>());
    if is_blessing() {
        fs::write(&readme, &wanted).unwrap();
    } else {
        assert!(text == wanted, "README.md: {}", diff::diff(&text, &wanted));
    }
}

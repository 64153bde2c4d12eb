//! Text in, findings out: every file below `findings/` is read as people's input and compared with the `.out`
//! beside it. Names that start with `config-` are daemon configurations, all others deployment files. What is
//! fine is written as it was understood. `DHOW_UPDATE_GOLDENS=1` writes the expected files anew.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something is not as it should be"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use dhow_wire::document::Style;
use dhow_wire::{parse_config, parse_deployment};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findings")
}

/// The one variable that exists in these tests.
fn env(name: &str) -> Option<String> {
    (name == "GREETING").then(|| "hello from outside".to_owned())
}

fn answer(path: &Path) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    if name.starts_with("config-") {
        return match parse_config(&text, name) {
            Ok(config) => format!("ok\n{}", serde_saphyr::to_string(&config).unwrap()),
            Err(findings) => findings.render(Style::Plain),
        };
    }
    match parse_deployment(&text, name, &env) {
        Ok(spec) => format!("ok\n{}\n", serde_json::to_string_pretty(&spec).unwrap()),
        Err(findings) => findings.render(Style::Plain),
    }
}

#[test]
fn every_file_gives_its_findings() {
    let update = std::env::var_os("DHOW_UPDATE_GOLDENS").is_some();
    let mut inputs: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension != "out"))
        .collect();
    inputs.sort();
    assert!(inputs.len() > 30, "the folder of inputs is not where it was");
    let mut wrong = String::new();
    for input in &inputs {
        let expected_path = input.with_extension("out");
        let found = answer(input);
        if update {
            std::fs::write(&expected_path, &found).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if found != expected {
            let name = input.file_name().unwrap().to_str().unwrap();
            writeln!(wrong, "== {name}\n-- expected\n{expected}\n-- found\n{found}").unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong}\nDHOW_UPDATE_GOLDENS=1 accepts what was found"
    );
}

#[test]
fn no_expectation_is_left_over() {
    let entries = std::fs::read_dir(folder()).unwrap();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "out") {
            let has_input = ["yaml", "json"]
                .iter()
                .any(|extension| path.with_extension(extension).exists());
            assert!(has_input, "{} has no input", path.display());
        }
    }
}

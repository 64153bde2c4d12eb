//! What a newcomer tries first is valid: every file in `examples/` and the configurations in `packaging/` are read without a
//! finding.

use std::fs;
use std::path::Path;

use dhow_wire::{parse_config, parse_deployment};

#[test]
fn every_example_is_a_valid_deployment() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).expect("the folder of examples is there") {
        let path = entry.expect("the folder can be listed").path();
        let text = fs::read_to_string(&path).expect("an example is text");
        let name = path.display().to_string();
        if let Err(findings) = parse_deployment(&text, &name, &|_| None) {
            panic!("{name} is not valid:\n{findings}");
        }
        seen += 1;
    }
    assert!(seen > 0, "no example in {}", folder.display());
}

#[test]
fn the_packaged_configurations_are_valid_with_every_setting_that_they_offer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let text = |name: &str| fs::read_to_string(folder.join(name)).expect("it is packaged");
    let valid = |text: &str, name: &str| match parse_config(text, name) {
        Ok(config) => config,
        Err(findings) => panic!("{name} is not valid:\n{findings}"),
    };
    let as_is = text("dhow.yaml");
    assert_eq!(valid(&as_is, "dhow.yaml").cluster.name(), "single-node");
    // After the `#` prose has one blank; a setting has none, or is indented.
    let is_prose = |line: &&str| line.starts_with("# ") && !line.starts_with("#  ");
    let settings = as_is.lines().filter(|line| !is_prose(line));
    let offered: Vec<&str> = settings
        .map(|line| line.strip_prefix('#').unwrap_or(line))
        .collect();
    assert!(offered.len() > 10, "{offered:?}");
    assert_eq!(
        valid(&offered.join("\n"), "dhow.yaml, all of it").cluster.name(),
        "raft"
    );
    assert!(
        valid(&text("worker.yaml"), "worker.yaml")
            .cluster
            .is_worker_tier_worker()
    );
}

//! What a newcomer tries first is valid: every file in `examples/` is read without a finding.

use std::fs;
use std::path::Path;

use dhow_wire::parse_deployment;

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

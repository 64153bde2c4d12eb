//! `dhow validate FILE…`: checks deployment files, changes nothing, needs no daemon.

use std::path::{Path, PathBuf};

use dhow_core::spec::DeploymentSpec;
use dhow_wire::Findings;
use serde_json::json;

use crate::exit::Exit;
use crate::{input, output};

/// Check deployment files; no daemon is needed, nothing is changed
///
/// Shows everything that is wrong at once, each with its line and what to do. Variables are read from the
/// environment and configs from their files, as when deploying. Exit code 0 when all files are fine, 2 when any is not.
#[derive(clap::Args)]
pub struct Args {
    /// The files; `-` is the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print the result as JSON on stdout: a list with `file`, `valid`, `deployment` and `findings`
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    let mut results = Vec::new();
    for file in &args.files {
        let (name, result) = check(file);
        if result.is_err() {
            exit = Exit::BadInput;
        }
        if args.json {
            results.push(as_json(&name, &result));
            continue;
        }
        match result {
            Ok(spec) => output::data(&format!("{name}: ok, {}\n", summary(&spec)))?,
            Err(findings) => output::findings(&findings),
        }
    }
    if args.json {
        output::data(&format!("{:#}\n", serde_json::Value::Array(results)))?;
    }
    Ok(exit)
}

fn check(file: &Path) -> (String, Result<DeploymentSpec, Findings>) {
    match input::read(file) {
        Ok(input) => {
            let spec = super::deploy::parse(file, &input);
            (input.name, spec)
        }
        Err(findings) => (findings.source().name().to_owned(), Err(findings)),
    }
}

fn as_json(name: &str, result: &Result<DeploymentSpec, Findings>) -> serde_json::Value {
    match result {
        Ok(spec) => json!({ "file": name, "valid": true, "deployment": spec.deployment, "findings": [] }),
        Err(findings) => json!({ "file": name, "valid": false, "deployment": null, "findings": findings }),
    }
}

fn summary(spec: &DeploymentSpec) -> String {
    let plural = |count: u64, word: &str| match count {
        1 => format!("1 {word}"),
        count => format!("{count} {word}s"),
    };
    let replicas = spec
        .services
        .values()
        .map(|service| u64::from(service.desired_total_at_first()))
        .sum();
    format!(
        "deployment {} with {} and {}",
        spec.deployment,
        plural(spec.services.len() as u64, "service"),
        plural(replicas, "replica")
    )
}

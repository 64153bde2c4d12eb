//! `dhow validate [FILE…]`: checks deployment files, changes nothing, needs no daemon.

use std::path::{Path, PathBuf};

use dhow_cli::deploy::STDIN;
use dhow_cli::source_files::FileArgs;
use dhow_compose::Nodes;
use dhow_core::spec::DeploymentSpec;
use dhow_wire::Findings;
use serde_json::json;

use crate::exit::Exit;
use crate::output;
use crate::source_files::{self, Unread};

/// Check deployment files; no daemon is needed, nothing is changed
///
/// Shows everything that is wrong at once, each with its line and what to do. Variables are read from the
/// environment and configs from their files, as when deploying. Exit code 0 when all files are fine, 2 when any is not.
#[derive(clap::Args)]
pub struct Args {
    /// The files; `-` is the standard input. Without one the file that `dhow up` would take
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The deployment's name, of a compose file
    #[arg(long = "project-name", short = 'p', value_name = "NAME")]
    project: Option<String>,

    /// Run services of this profile too, of a compose file
    #[arg(long = "profile", value_name = "NAME")]
    profiles: Vec<String>,

    /// Print the result as JSON on stdout: a list with `file`, `valid`, `deployment` and `findings`
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut exit = Exit::Done;
    let mut results = Vec::new();
    let files: Vec<Option<PathBuf>> = match args.files.as_slice() {
        [] => vec![None],
        files => files.iter().cloned().map(Some).collect(),
    };
    for file in files {
        let (name, result) = match check(args, file) {
            Ok(checked) => checked,
            Err(why) => {
                output::failure(&why);
                return Ok(Exit::BadInput);
            }
        };
        if result.is_err() {
            exit = Exit::BadInput;
        }
        if args.json {
            results.push(as_json(&name, &result));
            continue;
        }
        match result {
            Ok(spec) => output::data(&format!("{name}: ok, {}\n", summary(&spec)))?,
            Err(findings) => findings.iter().for_each(output::findings),
        }
    }
    if args.json {
        output::data(&format!("{:#}\n", serde_json::Value::Array(results)))?;
    }
    Ok(exit)
}

type Checked = (String, Result<DeploymentSpec, Vec<Findings>>);

/// Checks one file. The error says why there is none to check.
fn check(args: &Args, file: Option<PathBuf>) -> Result<Checked, String> {
    let named = file.as_ref().map(|file| match file.as_path() == Path::new("-") {
        true => STDIN.to_owned(),
        false => file.display().to_string(),
    });
    let from = FileArgs {
        file,
        project: args.project.clone(),
        profiles: args.profiles.clone(),
        ..FileArgs::default()
    };
    match source_files::read(&from, Nodes::Here) {
        Ok(read) => Ok((read.name, Ok(read.spec))),
        Err(Unread::NoFile(why)) => Err(why),
        Err(Unread::Wrong(findings)) => {
            let first = findings
                .first()
                .map(|findings| findings.source().name().to_owned());
            Ok((named.or(first).unwrap_or_default(), Err(findings)))
        }
    }
}

fn as_json(name: &str, result: &Result<DeploymentSpec, Vec<Findings>>) -> serde_json::Value {
    match result {
        Ok(spec) => json!({ "file": name, "valid": true, "deployment": spec.deployment, "findings": [] }),
        Err(findings) => {
            let all: Vec<_> = findings.iter().flat_map(|findings| findings.list()).collect();
            json!({ "file": name, "valid": false, "deployment": null, "findings": all })
        }
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

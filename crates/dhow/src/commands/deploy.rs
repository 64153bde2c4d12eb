//! `dhow deploy FILE`: applies a deployment file and waits until it is stable, with live progress.

use std::time::Duration;

use dhow_cli::deploy;
pub use dhow_cli::deploy::Args;
use dhow_core::spec::DeploymentSpec;
use dhow_wire::api::{Deployed, ProgressOutcome};
use dhow_wire::write_deployment;
use serde_json::{Value, json};

use super::wait::{Watched, conclude, interrupt, print_endpoints, until_stable_or};
use crate::client::{Client, ClientError, Request};
use crate::exit::Exit;
use crate::output;
use crate::progress::Watch;
use crate::source_files::{self, FromFile};

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let read = match source_files::read_for(&args.from, client).await? {
        Ok(read) => read,
        Err(unread) => {
            unread.show();
            return Ok(Exit::BadInput);
        }
    };
    read.prepare(client).await?;
    let FromFile {
        name: source, spec, ..
    } = read;
    if args.detach {
        let deployed = hand_over(client, &source, &spec, args.into()).await?;
        output::note(&deploy::said(&deployed));
        if args.json {
            output::json(&serde_json::to_value(&deployed)?)?;
        }
        return Ok(Exit::Done);
    }
    let (deployed, what, watched) = deploy_and_watch(
        client,
        &source,
        (&spec, args.into()),
        args.timeout.to_std(),
        interrupt(),
    )
    .await?;
    let exit = conclude(&what, &watched, ProgressOutcome::Ready);
    if args.json {
        output::json(&as_json(&deployed, &watched)?)?;
    } else if let (Exit::Done, Watched::Result(result)) = (exit, &watched) {
        print_endpoints(client, &result.services, &result.served).await?;
    }
    Ok(exit)
}

/// What may be said with a deployment.
#[derive(Clone, Copy, Default)]
pub struct How {
    /// Even what was taken back before.
    force: bool,
    /// For so long it counts in place of its source.
    suspend_secs: Option<u64>,
}

impl From<&Args> for How {
    fn from(args: &Args) -> Self {
        Self {
            force: args.force,
            suspend_secs: args.suspend.secs(),
        }
    }
}

/// Hands a deployment over; it is durable when this returns.
pub async fn hand_over(
    client: &Client,
    source: &str,
    spec: &DeploymentSpec,
    how: How,
) -> Result<Deployed, ClientError> {
    let body = write_deployment(spec).map_err(|error| ClientError::Unreadable {
        host: client.host().clone(),
        why: error.to_string(),
    })?;
    let mut request = Request::post(&["deployments"]).query("source", source);
    if how.force {
        request = request.query("force", "true");
    }
    let request = request.query_if("suspend", how.suspend_secs).json(body);
    let deployed = client.fetch_as(request).await;
    deployed.map_err(|error| without_positions(source, error))
}

/// The daemon finds mistakes in the JSON that the client sent, which has not the lines of the file: such a finding
/// names the path alone.
pub fn without_positions(source: &str, error: ClientError) -> ClientError {
    let ClientError::Problem(mut problem) = error else {
        return error;
    };
    for finding in &mut problem.findings {
        let position = finding.strip_prefix(source).and_then(|rest| {
            let rest = rest.strip_prefix(':')?.split_once(": ")?;
            let is_position = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
            is_position(rest.0).then_some(rest.1)
        });
        if let Some(rest) = position {
            *finding = format!("{source}: {rest}");
        }
    }
    ClientError::Problem(problem)
}

/// Hands a deployment over, says so, and watches it with progress on stderr until the result or `stop`. What the
/// outcome means is for [`conclude`] to say.
pub async fn deploy_and_watch(
    client: &Client,
    source: &str,
    (spec, how): (&DeploymentSpec, How),
    timeout: Duration,
    stop: impl Future<Output = ()>,
) -> Result<(Deployed, Watch, Watched), ClientError> {
    let deployed = hand_over(client, source, spec, how).await?;
    output::note(&deploy::said(&deployed));
    let what = Watch {
        deployment: spec.deployment.clone(),
        revision: Some(deployed.revision),
        timeout,
    };
    let watched = until_stable_or(client, &what, stop).await?;
    Ok((deployed, what, watched))
}

fn as_json(deployed: &Deployed, watched: &Watched) -> anyhow::Result<Value> {
    let mut document = serde_json::to_value(deployed)?;
    let result = match watched {
        Watched::Result(result) => serde_json::to_value(result)?,
        Watched::Interrupted => json!({ "outcome": Value::Null }),
    };
    if let (Value::Object(document), Value::Object(result)) = (&mut document, result) {
        document.extend(result);
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use dhow_wire::{Problem, ProblemCode};

    use super::*;

    #[test]
    fn a_finding_of_the_daemon_names_no_line_that_the_file_does_not_have() {
        let findings = [
            "a.yaml:1:825: services.web.privileged: no",
            "a.yaml: services.web: no",
            "other:1:2: no",
        ];
        let problem = Problem::new(ProblemCode::InvalidSpec, "3 problems");
        let problem = problem.with_findings(findings.map(str::to_owned).to_vec());
        let shown = without_positions("a.yaml", ClientError::Problem(Box::new(problem)));
        let ClientError::Problem(shown) = shown else {
            panic!("{shown:?}")
        };
        assert_eq!(
            shown.findings,
            [
                "a.yaml: services.web.privileged: no",
                "a.yaml: services.web: no",
                "other:1:2: no"
            ]
        );
    }
}

//! `dhow logs DEPLOYMENT[/NAME]`: what replicas said, from any node, and with `-f` what they go on to say.

mod printer;
mod resume;

use std::time::Duration;

use dhow_cli::target::{self, Target};
use dhow_core::ids::DeploymentName;
use dhow_wire::ReplicaStatus;
use dhow_wire::api::{LogRecord, LogStream};
use tokio::time::Instant;

use crate::client::{Client, ClientError, Request};
use crate::exit::Exit;
use crate::output::{self, Reader};
pub use printer::LogForm;
use printer::Printer;
use resume::Resume;

/// How far back a new connection looks for what was missed: more than a daemon's restart lets pass.
const RESUME_TAIL: u64 = 10_000;
/// How long a daemon may be away before waiting for it makes no sense.
const AWAY_MAX: Duration = Duration::from_secs(60);
const AWAY_WAIT: Duration = Duration::from_millis(500);

/// Show what replicas wrote to stdout and stderr
///
/// Lines of several replicas are put together by time. With `-f` a restart of the daemon loses no line and repeats
/// none. On a terminal escape sequences are shown rather than obeyed, except colours.
#[derive(clap::Args)]
pub struct Args {
    /// A deployment, a service or a replica of it; an exact service name wins
    #[arg(value_name = "DEPLOYMENT[/NAME]", value_parser = target::target)]
    target: Target,

    /// Only this run of a schedule, by its number; `dhow cron ls` lists those that are kept
    #[arg(long, value_name = "N")]
    run: Option<u32>,

    /// Go on with what comes, replicas that start later included
    #[arg(long, short)]
    follow: bool,

    /// Only the last N lines
    #[arg(long, short = 'n', value_name = "N")]
    tail: Option<u64>,

    /// Show when each line was written
    #[arg(long, short)]
    timestamps: bool,

    /// Leave out the replica before each line
    #[arg(long)]
    no_prefix: bool,

    /// Write what replicas wrote as it is: a terminal obeys escape sequences in it
    #[arg(long)]
    raw: bool,

    /// Print the API's JSON on stdout, a document for each line
    #[arg(long, conflicts_with_all = ["timestamps", "no_prefix"])]
    json: bool,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let form = LogForm {
        timestamps: args.timestamps,
        prefix: !args.no_prefix,
        json: args.json,
        raw: args.raw,
    };
    let name = match (args.run, &args.target.name) {
        (Some(run), Some(name)) => Some(format!("{name}@{run}")),
        (None, name) => name.clone(),
        (Some(_), None) => {
            output::failure("a run belongs to a schedule: write DEPLOYMENT/SERVICE");
            return Ok(Exit::BadInput);
        }
    };
    let query = LogQuery {
        deployment: args.target.deployment.clone(),
        name,
        tail: args.tail,
        follow: args.follow,
    };
    print_logs(client, &query, form).await
}

/// Which lines.
#[derive(Clone, Debug)]
pub struct LogQuery {
    pub deployment: DeploymentName,
    /// A service or a replica; all of the deployment where none is named.
    pub name: Option<String>,
    /// All that are kept where none is named.
    pub tail: Option<u64>,
    pub follow: bool,
}

impl LogQuery {
    fn request(&self, tail: Option<u64>) -> Request<'static> {
        Request::get(&["logs"])
            .query("deployment", &self.deployment)
            .query_if("name", self.name.as_ref())
            .query_if("tail", tail)
            .query_if("follow", self.follow.then_some(true))
    }
}

/// Prints the lines; with `follow` until the deployment is gone or nobody reads any more. May be dropped at any time.
pub async fn print_logs(client: &Client, query: &LogQuery, form: LogForm) -> anyhow::Result<Exit> {
    let mut printer = Printer::new(form, &replica_ids(client, query).await);
    let mut resume = Resume::new(query.tail, output::now_unix_secs());
    let mut tail = query.tail;
    let mut away_since: Option<Instant> = None;
    loop {
        let is_first = !resume.has_connected();
        let error = match client.lines(query.request(tail)).await {
            Ok(mut lines) => {
                away_since = None;
                resume.connect();
                match pass_on(client, &mut lines, &mut resume, &mut printer).await? {
                    Passed::ReaderGone => return Ok(Exit::Done),
                    Passed::Ended if !query.follow => return Ok(Exit::Done),
                    Passed::Broke(error) if !query.follow => return Err(error.into()),
                    Passed::Ended => None,
                    Passed::Broke(error) => Some(error),
                }
            }
            Err(error) if is_first => return Err(error.into()),
            Err(error) if error.is_not_found() => {
                output::note(&format!("`{}` is gone", query.deployment));
                return Ok(Exit::Done);
            }
            Err(error) if error.is_away() => Some(error),
            Err(error) => return Err(error.into()),
        };
        tail = Some(RESUME_TAIL);
        let since = *away_since.get_or_insert_with(Instant::now);
        if let Some(error) = error.filter(|_| since.elapsed() > AWAY_MAX) {
            return Err(error.into());
        }
        tokio::time::sleep(AWAY_WAIT).await;
    }
}

enum Passed {
    /// The daemon ended the stream.
    Ended,
    Broke(ClientError),
    ReaderGone,
}

/// Passes on one connection's lines.
async fn pass_on(
    client: &Client,
    lines: &mut crate::client::Lines,
    resume: &mut Resume,
    printer: &mut Printer,
) -> anyhow::Result<Passed> {
    loop {
        let line = match lines.next().await {
            Ok(Some(line)) if line.is_empty() => continue,
            Ok(Some(line)) => line,
            Ok(None) => return Ok(Passed::Ended),
            Err(error) => return Ok(Passed::Broke(error)),
        };
        let record: LogRecord = serde_json::from_str(&line).map_err(|error| ClientError::Unreadable {
            host: client.host().clone(),
            why: error.to_string(),
        })?;
        let is_notice = record.stream == LogStream::Notice;
        if !is_notice && !resume.take(&record) {
            continue;
        }
        if resume.may_have_missed(RESUME_TAIL) {
            output::note(
                "more lines came while the daemon was away than it was asked for; some are missing here",
            );
        }
        if printer.print(&record, &line)? == Reader::Gone {
            return Ok(Passed::ReaderGone);
        }
    }
}

/// The ids that will stand before lines, so that they can be aligned. Where they cannot be asked for, the lines
/// still can.
async fn replica_ids(client: &Client, query: &LogQuery) -> Vec<String> {
    let request = Request::get(&["replicas"]).query("deployment", &query.deployment);
    let Ok(replicas) = client.fetch_as::<Vec<ReplicaStatus>>(request).await else {
        return Vec::new();
    };
    // The number of a run goes behind the name of its schedule.
    let name = query
        .name
        .as_deref()
        .map(|name| name.split('@').next().unwrap_or(name));
    let is_service = replicas
        .iter()
        .any(|replica| Some(replica.service.as_str()) == name);
    let is_meant = |replica: &ReplicaStatus| match name {
        None => true,
        Some(name) if is_service => replica.service == name,
        Some(name) => replica.id == name,
    };
    replicas
        .into_iter()
        .filter(is_meant)
        .map(|replica| replica.id)
        .collect()
}

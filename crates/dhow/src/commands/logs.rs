//! `dhow logs DEPLOYMENT[/NAME]`: what replicas said, from any node, and with `-f` what they go on to say.

mod printer;
mod resume;

use std::time::Duration;

use dhow_cli::target::{self, Target};
use dhow_core::ids::DeploymentName;
use dhow_core::spec::TimeSpan;
use dhow_wire::ReplicaStatus;
use dhow_wire::api::{LogRecord, LogStream};
use jiff::Timestamp;
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

    /// Only what replicas wrote in the run before the newest one: of one that was restarted, what led to that
    #[arg(long, short, conflicts_with = "follow")]
    previous: bool,

    /// Go on with what comes, replicas that start later included
    #[arg(long, short)]
    follow: bool,

    /// Only the last N lines
    #[arg(long, short = 'n', value_name = "N")]
    tail: Option<u64>,

    /// Only what was written since: a time such as `2026-11-18T20:00:00Z`, or how long ago, such as `10m`
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Moment>,

    /// Only what was written before, written as for `--since`
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "follow")]
    until: Option<Moment>,

    /// Only lines that have this text in them
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,

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
        since_unix_us: args.since.map(|moment| moment.unix_us()),
        until_unix_us: args.until.map(|moment| moment.unix_us()),
        grep: args.grep.clone(),
        previous: args.previous,
    };
    print_logs(client, &query, form).await
}

/// A time that somebody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment(Timestamp);

impl Moment {
    fn unix_us(self) -> i64 {
        self.0.as_microsecond()
    }
}

/// A time, or how long ago it is.
fn moment(text: &str) -> Result<Moment, String> {
    moment_at(text, Timestamp::now())
}

fn moment_at(text: &str, now: Timestamp) -> Result<Moment, String> {
    if let Ok(span) = text.parse::<TimeSpan>() {
        let ago = now.checked_sub(span.to_std());
        return ago
            .map(Moment)
            .map_err(|_| format!("nothing was written {text} ago"));
    }
    let read = text.parse::<Timestamp>().map(Moment);
    read.map_err(|_| {
        format!("`{text}` is no time: write how long ago it is, such as `10m`, or `2026-11-18T20:00:00Z`")
    })
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
    /// Written then or later.
    pub since_unix_us: Option<i64>,
    /// Written before that.
    pub until_unix_us: Option<i64>,
    /// With this text in it.
    pub grep: Option<String>,
    /// Of the run before the newest one.
    pub previous: bool,
}

impl LogQuery {
    /// All lines of a deployment that are kept.
    pub fn of(deployment: DeploymentName) -> Self {
        Self {
            deployment,
            name: None,
            tail: None,
            follow: false,
            since_unix_us: None,
            until_unix_us: None,
            grep: None,
            previous: false,
        }
    }

    fn request(&self, tail: Option<u64>) -> Request<'static> {
        Request::get(&["logs"])
            .query("deployment", &self.deployment)
            .query_if("name", self.name.as_ref())
            .query_if("tail", tail)
            .query_if("follow", self.follow.then_some(true))
            .query_if("since_unix_us", self.since_unix_us)
            .query_if("until_unix_us", self.until_unix_us)
            .query_if("grep", self.grep.as_ref())
            .query_if("previous", self.previous.then_some(true))
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
                    Passed::Ended if !query.follow => {
                        if query.previous && !printer.has_printed() {
                            output::note("there are no such lines of a run before the newest one");
                        }
                        return Ok(Exit::Done);
                    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now: Timestamp = "2026-11-18T20:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("10m", "2026-11-18T19:50:00Z"),
            ("90s", "2026-11-18T19:58:30Z"),
            ("2026-11-17T01:02:03Z", "2026-11-17T01:02:03Z"),
            ("2026-11-17T01:02:03+01:00", "2026-11-17T00:02:03Z"),
        ] {
            assert_eq!(
                moment_at(text, now),
                Ok(Moment(expected.parse().unwrap())),
                "{text}"
            );
        }
        for text in ["", "yesterday", "10", "2026-11-18"] {
            assert!(moment_at(text, now).unwrap_err().contains("`10m`"), "{text}");
        }
    }
}

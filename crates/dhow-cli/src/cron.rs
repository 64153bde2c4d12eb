//! `dhow cron ls|run|next`: schedules, their runs, and when they come next.

use dhow_core::ids::DeploymentName;
use dhow_core::spec::TimeSpan;
use dhow_wire::api::{CronStatus, RunBegun, RunState, RunStatus};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::Shown;
use crate::human::age;
use crate::table::Table;
use crate::target::{self, NamedTarget, Target};

/// Schedules and their runs
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// What is asked of schedules.
#[derive(clap::Subcommand)]
pub enum Command {
    Ls(LsArgs),
    Run(RunArgs),
    Next(NextArgs),
}

/// List schedules, or the runs of one
#[derive(clap::Args)]
pub struct LsArgs {
    /// All schedules where none is named; of one, its runs that are under way or kept
    #[arg(value_name = "DEPLOYMENT[/SERVICE]", value_parser = target::target)]
    pub target: Option<Target>,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// Start a run now
///
/// Its due times stay as they are. While another run is under way the service's `concurrency` says what happens, as at a
/// due time: `forbid` refuses this one.
#[derive(clap::Args)]
pub struct RunArgs {
    #[arg(value_name = "DEPLOYMENT/SERVICE", value_parser = target::named_target)]
    pub target: NamedTarget,

    /// Wait for its end, and fail where it fails
    #[arg(long)]
    pub wait: bool,

    /// How long to wait at most; as long as it takes where this is left out
    #[arg(long, value_name = "DURATION", requires = "wait")]
    pub timeout: Option<TimeSpan>,
}

/// Show when a schedule comes next, in its zone and in UTC
#[derive(clap::Args)]
pub struct NextArgs {
    #[arg(value_name = "DEPLOYMENT/SERVICE", value_parser = target::named_target)]
    pub target: NamedTarget,

    /// How many times
    #[arg(long, short = 'n', value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub count: u32,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// All schedules.
pub fn list(crons: &[CronStatus], now_unix_secs: i64) -> Shown {
    if crons.is_empty() {
        return Shown::Note("no schedules".into());
    }
    let mut table = Table::new(&["CRON", "SCHEDULE", "ZONE", "LAST RUN", "STATE", "AGE", "NEXT"]);
    for cron in crons {
        let last = cron.runs.first();
        let next = cron.next_unix_secs.first();
        table.row([
            name(cron),
            cron.schedule.clone(),
            cron.zone.clone(),
            last.map_or_else(dash, |run| run.run.to_string()),
            last.map_or_else(dash, state),
            last.and_then(|run| run.began_unix_secs)
                .map_or_else(dash, |began| age(began, now_unix_secs)),
            next.map_or_else(|| "never".into(), |next| shown_in(cron, *next)),
        ]);
    }
    Shown::Data(table.render())
}

/// The runs of one schedule.
pub fn runs(cron: &CronStatus, now_unix_secs: i64) -> Shown {
    if cron.runs.is_empty() {
        return Shown::Note(format!("{} has had no run yet", name(cron)));
    }
    let mut table = Table::new(&["RUN", "DUE", "STATE", "DONE", "AGE", "TOOK", "REPLICAS"]);
    for run in &cron.runs {
        let ended = run.ended_unix_secs.unwrap_or(now_unix_secs);
        table.row([
            run.run.to_string(),
            run.due_unix_secs
                .map_or_else(|| "by hand".into(), |due| shown_in(cron, due)),
            state(run),
            format!("{}/{}", run.done, run.desired),
            run.began_unix_secs
                .map_or_else(dash, |began| age(began, now_unix_secs)),
            run.began_unix_secs.map_or_else(dash, |began| age(began, ended)),
            replicas(run),
        ]);
    }
    Shown::Data(table.render())
}

/// Its next times.
pub fn next(cron: &CronStatus) -> Shown {
    if cron.next_unix_secs.is_empty() {
        return Shown::Note(format!("`{}` never comes again", cron.schedule));
    }
    let is_utc = cron.zone == "UTC";
    let mut table = match is_utc {
        true => Table::new(&["UTC"]),
        false => Table::new(&[&cron.zone, "UTC"]),
    };
    for next in &cron.next_unix_secs {
        let utc = shown(&TimeZone::UTC, *next);
        match is_utc {
            true => table.row([utc]),
            false => table.row([shown_in(cron, *next), utc]),
        }
    }
    Shown::Data(table.render())
}

/// What was begun.
pub fn begun(target: &NamedTarget, begun: &RunBegun) -> String {
    let NamedTarget { deployment, name } = target;
    let run = begun.run;
    format!(
        "run {run} of {deployment}/{name} has begun; `dhow logs {deployment}/{name} --run {run}` shows what it writes"
    )
}

/// How a run that was waited for has ended; an error where that is no good end.
pub fn ended(target: &NamedTarget, run: &RunStatus) -> Result<String, String> {
    let NamedTarget { deployment, name } = target;
    let number = run.run;
    match run.state {
        RunState::Running | RunState::Done => Ok(format!("run {number} of {deployment}/{name} is done")),
        RunState::Failed => Err(format!(
            "run {number} of {deployment}/{name} failed; `dhow logs {deployment}/{name} --run {number}` shows what it wrote"
        )),
        RunState::Late => Err(format!(
            "run {number} of {deployment}/{name} was not done by its deadline"
        )),
        RunState::Stopped => Err(format!(
            "run {number} of {deployment}/{name} was ended: its service was stopped"
        )),
        RunState::Replaced => Err(format!(
            "run {number} of {deployment}/{name} made room for the next one"
        )),
    }
}

/// Of which deployment and service.
pub fn asked(target: Option<&Target>) -> (Option<&DeploymentName>, Option<&str>) {
    let deployment = target.map(|target| &target.deployment);
    (deployment, target.and_then(|target| target.name.as_deref()))
}

fn name(cron: &CronStatus) -> String {
    format!("{}/{}", cron.deployment, cron.service)
}

fn dash() -> String {
    "-".into()
}

fn state(run: &RunStatus) -> String {
    run.state.as_str().to_owned()
}

fn replicas(run: &RunStatus) -> String {
    match run.replicas.as_slice() {
        [] => dash(),
        [one] => one.clone(),
        [first, ..] if run.desired > 2 => format!("{first} and {} more", run.desired - 1),
        several => several.join(" "),
    }
}

/// A moment as the clock of the schedule's zone shows it.
fn shown_in(cron: &CronStatus, unix_secs: i64) -> String {
    // A zone that came after this version is told in UTC.
    let zone = TimeZone::get(&cron.zone).unwrap_or(TimeZone::UTC);
    shown(&zone, unix_secs)
}

fn shown(zone: &TimeZone, unix_secs: i64) -> String {
    match Timestamp::from_second(unix_secs) {
        Ok(moment) => {
            let zoned = moment.to_zoned(zone.clone());
            zoned.strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
        }
        // Outside of what a calendar holds.
        Err(_) => unix_secs.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(zone: &str) -> CronStatus {
        CronStatus {
            deployment: "data".into(),
            service: "report".into(),
            schedule: "30 2 * * *".into(),
            zone: zone.into(),
            concurrency: "forbid".into(),
            missed: "once".into(),
            keep: 3,
            next_unix_secs: vec![1_806_195_600],
            runs: Vec::new(),
        }
    }

    #[test]
    fn times_are_those_of_the_zone() {
        let Shown::Data(text) = next(&cron("Europe/Berlin")) else {
            panic!("nothing comes");
        };
        assert!(text.contains("2027-03-28 03:00:00 CEST"), "{text}");
        assert!(text.contains("2027-03-28 01:00:00 UTC"), "{text}");
        let Shown::Data(text) = next(&cron("UTC")) else {
            panic!("nothing comes");
        };
        assert_eq!(text.matches("UTC").count(), 2, "{text}");
    }

    #[test]
    fn a_schedule_without_runs_says_so() {
        let told = runs(&cron("UTC"), 0);
        assert!(matches!(told, Shown::Note(text) if text == "data/report has had no run yet"));
    }
}

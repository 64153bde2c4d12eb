//! Jobs and schedules, and the steps before a program.

use dhow_core::spec::check::limits::{KEPT_RUNS_MAX, SERVICE_REPLICAS_MAX};
use dhow_core::spec::check::{FieldPath, PathPart, SpecFinding, nearest, quoted};
use dhow_core::spec::{Concurrency, InitStep, JobSpec, Missed, ServiceSpec};
use jiff::tz;

use super::{Reading, env, workload};
use crate::document::{Decoder, Fields, Kind, Node, choice, duration, flag, integer, list, loose_text, text};

pub(super) fn job(decoder: &mut Decoder, node: &Node) -> Option<JobSpec> {
    let mut fields = Fields::open(
        decoder,
        node,
        "`job`",
        "`{ completions: 10, parallelism: 2, deadline: 30m }`",
    )?;
    fields.elsewhere(&[
        ("activeDeadlineSeconds", "write `deadline: 30m`"),
        ("timeout", "write `deadline: 30m`"),
        (
            "backoffLimit",
            "write `restart: { max_attempts: 6 }` on the service",
        ),
        ("retries", "write `restart: { max_attempts: 6 }` on the service"),
        (
            "backoff",
            "write `restart: { backoff: { initial: 1s, max: 60s } }` on the service",
        ),
        ("count", "write `completions`"),
        ("history", "write `keep`"),
    ]);
    let count = |max: u32| {
        move |decoder: &mut Decoder, node: &Node| {
            integer(decoder, node, 1, u64::from(max)).map(|count| count as u32)
        }
    };
    let job = JobSpec {
        completions: fields.optional("completions", count(SERVICE_REPLICAS_MAX)),
        parallelism: fields.optional("parallelism", count(SERVICE_REPLICAS_MAX)),
        deadline: fields.optional("deadline", duration),
        keep: fields.optional("keep", count(KEPT_RUNS_MAX)),
    };
    fields.close();
    Some(job)
}

pub(super) fn concurrency(decoder: &mut Decoder, node: &Node) -> Option<Concurrency> {
    let allowed = [
        ("allow", Concurrency::Allow),
        ("forbid", Concurrency::Forbid),
        ("replace", Concurrency::Replace),
    ];
    choice(
        decoder,
        node,
        &allowed,
        &[("skip", "forbid"), ("parallel", "allow")],
    )
}

pub(super) fn missed(decoder: &mut Decoder, node: &Node) -> Option<Missed> {
    let allowed = [("skip", Missed::Skip), ("once", Missed::Once)];
    choice(
        decoder,
        node,
        &allowed,
        &[("ignore", "skip"), ("run", "once"), ("last", "once")],
    )
}

/// Wrong zones of one file for which one is suggested: each is compared with some six hundred names.
const SUGGESTIONS_MAX: usize = 50;

/// What is wrong with a zone. Which ones there are the calendar knows, and no core.
pub(super) fn zone_finding(at: &FieldPath, spec: &ServiceSpec, before: usize) -> Option<SpecFinding> {
    let zone = spec.zone.as_deref()?;
    if tz::TimeZone::get(zone).is_ok() {
        return None;
    }
    let names = tz::db().available().filter(|_| before < SUGGESTIONS_MAX);
    let known: Vec<String> = names.map(|name| name.to_string()).collect();
    let same = known.iter().find(|name| name.eq_ignore_ascii_case(zone));
    let city = known.iter().find(|name| {
        let last = name.rsplit('/').next();
        last.is_some_and(|last| last.eq_ignore_ascii_case(zone))
    });
    let near = nearest(zone, known.iter().map(String::as_str));
    let meant = same.or(city).map(String::as_str).or(near);
    let hint = match meant {
        Some(name) => format!("did you mean `{name}`?"),
        None => "write the name of a place, such as `Europe/Berlin`, or `UTC`".into(),
    };
    let message = format!("{} is no time zone of the IANA database", quoted(zone));
    Some(SpecFinding::at(at.key("zone"), message).hint(hint))
}

/// `init`: whether there is a first process beside the program, as in Docker, or a list of steps.
pub(super) fn init(
    decoder: &mut Decoder,
    node: &Node,
    reading: &mut Reading<'_>,
) -> Option<(bool, Vec<InitStep>)> {
    match node.kind() {
        Kind::List => steps(decoder, node, reading).map(|steps| (false, steps)),
        Kind::Nothing | Kind::Boolean | Kind::Integer | Kind::Float | Kind::Text | Kind::Map => {
            flag(decoder, node).map(|init| (init, Vec::new()))
        }
    }
}

/// The rules name a step by the field that the API's JSON has; the finding is to point at what was written.
pub(super) fn point_at_init(findings: &mut [SpecFinding], inits: &[FieldPath]) {
    let mend = |path: &mut FieldPath| {
        let parts = path.parts();
        let Some(service) = inits.iter().find(|service| parts.starts_with(service.parts())) else {
            return;
        };
        let place = service.parts().len();
        let is_steps = matches!(parts.get(place), Some(PathPart::Key(key)) if key == "init_steps");
        if is_steps {
            let rest = parts[place + 1..].iter().cloned();
            *path = rest.fold(service.key("init"), |path, part| path.with(part));
        }
    };
    for finding in findings {
        mend(&mut finding.path);
        finding
            .related
            .iter_mut()
            .for_each(|related| mend(&mut related.path));
    }
}

pub(super) fn steps(decoder: &mut Decoder, node: &Node, reading: &mut Reading<'_>) -> Option<Vec<InitStep>> {
    let hint = "write `- command: [./migrate]` for each step";
    list(
        decoder,
        node,
        "a list of steps",
        hint,
        InitStep::default,
        |decoder, node| step(decoder, node, reading),
    )
}

fn step(decoder: &mut Decoder, node: &Node, reading: &mut Reading<'_>) -> Option<InitStep> {
    let mut fields = Fields::open(decoder, node, "a step", "`command: [./migrate]`")?;
    fields.elsewhere(&[
        ("args", "write `command`"),
        ("environment", "write `env`"),
        ("storage", "a step sees what the service mounts: remove it"),
        ("volumes", "a step sees what the service mounts: remove it"),
        ("workdir", "write `command: { workdir: /app }`"),
        (
            "restart",
            "a step that fails is a failed start of its replica: the service's `restart` says what follows",
        ),
    ]);
    let step = InitStep {
        name: fields.optional("name", text),
        image: fields.optional("image", workload::image),
        command: fields.optional("command", workload::command).unwrap_or_default(),
        env: fields
            .optional("env", |decoder, node| env::read(decoder, node, reading))
            .unwrap_or_default(),
        user: fields.optional("user", loose_text),
    };
    fields.close();
    Some(step)
}

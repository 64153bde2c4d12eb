//! Jobs, their runs, and the steps before a program.

use super::finding::{FieldPath, SpecFinding};
use super::health::too_long;
use super::limits::{INIT_STEPS_MAX, KEPT_RUNS_MAX, SERVICE_REPLICAS_MAX};
use super::words::quoted;
use crate::spec::{RType, Runtime, ScaleSpec, ServiceSpec, TimeSpan};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    check_kind(at, spec, findings);
    check_amounts(at, spec, findings);
    check_steps(at, spec, findings);
}

/// Fields that only a job or a schedule has.
fn check_kind(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let is_cron = spec.rtype == RType::Cron;
    let only = |place: FieldPath, field: &str| {
        SpecFinding::at(place, format!("only a `cron` service has `{field}`"))
            .because(at.key("rtype"))
            .hint("write `rtype: cron` and a `schedule`, or remove it")
    };
    let of_schedule = [
        ("zone", spec.zone.is_some()),
        ("concurrency", spec.concurrency.is_some()),
        ("missed", spec.missed.is_some()),
    ];
    for (field, _) in of_schedule.into_iter().filter(|(_, is_set)| *is_set && !is_cron) {
        findings.push(only(at.key(field), field));
    }
    if spec.job.is_default() {
        return;
    }
    if !spec.runs_to_completion() {
        findings.push(
            SpecFinding::at(at.key("job"), "only a `job` or a `cron` service comes to an end")
                .because(at.key("rtype"))
                .hint("write `rtype: job`, or remove `job`"),
        );
    } else if spec.job.keep.is_some() && !is_cron {
        findings.push(only(at.key("job").key("keep"), "keep"));
    }
}

fn check_amounts(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let (place, job) = (at.key("job"), &spec.job);
    let counts = [
        ("completions", job.completions, SERVICE_REPLICAS_MAX),
        ("parallelism", job.parallelism, SERVICE_REPLICAS_MAX),
        ("keep", job.keep, KEPT_RUNS_MAX),
    ];
    for (field, count, max) in counts {
        let wrong = count.filter(|count| !(1..=max).contains(count));
        findings.extend(wrong.map(|count| {
            SpecFinding::at(place.key(field), format!("`{field}` is 1 to {max}, not {count}"))
                .hint("leave it out for the default")
        }));
    }
    if job.completions.is_some() {
        let beside = match (spec.replica_groups.is_empty(), spec.scale == ScaleSpec::default()) {
            (false, _) => Some("replica_groups"),
            (true, false) => Some("scale"),
            (true, true) => None,
        };
        findings.extend(beside.map(|field| {
            let what =
                format!("`completions` stands beside `{field}`, and both say how many replicas complete");
            SpecFinding::at(place.key("completions"), what)
                .also(at.key(field), "this")
                .hint("keep one of the two")
        }));
    }
    if let Some(deadline) = job.deadline {
        findings.extend(too_long(place.key("deadline"), deadline));
        if deadline == TimeSpan::ZERO {
            findings.push(
                SpecFinding::at(place.key("deadline"), "a deadline of 0 leaves no time to work")
                    .hint("such as `30m`, or leave it out: then work takes as long as it takes"),
            );
        }
    }
}

fn check_steps(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let list = at.key("init_steps");
    let steps = &spec.init_steps;
    if steps.len() > INIT_STEPS_MAX {
        let message = format!(
            "{} steps are too many, a service has at most {INIT_STEPS_MAX}",
            steps.len()
        );
        let hint = "put several into one script";
        findings.push(SpecFinding::at(list.clone(), message).hint(hint));
    }
    for (position, step) in steps.iter().enumerate() {
        let place = list.index(position);
        let has_words = step.command.words().next().is_some();
        let is_container = spec.runtime() == Runtime::Container;
        let runs_image = is_container && step.image.is_some();
        if !(has_words || runs_image) {
            findings.push(
                SpecFinding::at(place.key("command"), "a step needs a `command`")
                    .hint("name what runs before the program, such as `command: [./migrate]`"),
            );
        }
        if step.image.is_some() && !is_container {
            findings.push(
                SpecFinding::at(place.key("image"), "a step of a process has no `image`")
                    .because(at.key("runtime"))
                    .hint("remove it: the step is a program of the host as well"),
            );
        }
        let mut before = steps[..position].iter();
        let twin = step
            .name
            .as_ref()
            .and_then(|name| before.position(|other| other.name.as_ref() == Some(name)));
        if let (Some(first), Some(name)) = (twin, &step.name) {
            findings.push(
                SpecFinding::at(
                    place.key("name"),
                    format!("the step {} is there twice", quoted(name)),
                )
                .also(list.index(first).key("name"), "first here")
                .hint("give each its own name, or none"),
            );
        }
    }
}

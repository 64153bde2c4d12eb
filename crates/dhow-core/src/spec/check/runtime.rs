//! Container or process: what each needs, and what has no meaning for a process.

use super::finding::{FieldPath, SpecFinding};
use crate::spec::{CommandSpec, ImageSpec, RType, ReplicaGroup, Runtime, ServiceSpec};

/// A field that only a container can have.
struct ContainerOnly {
    field: &'static str,
    is_set: fn(&ServiceSpec) -> bool,
    why: &'static str,
}

const SHARES_NETWORK: &str = "a process uses the host's network";
const SHARES_FILES: &str = "a process sees the host's files as they are";
const SHARES_KERNEL: &str = "a process has the rights and the namespaces of its user on the host";

/// What has no meaning for a process: refused by name rather than ignored.
const CONTAINER_ONLY: [ContainerOnly; 10] = [
    ContainerOnly {
        field: "storage",
        is_set: |s| !s.storage.is_empty(),
        why: SHARES_FILES,
    },
    ContainerOnly {
        field: "read_only_root_fs",
        is_set: |s| s.read_only_root_fs,
        why: SHARES_FILES,
    },
    ContainerOnly {
        field: "capabilities",
        is_set: |s| !s.capabilities.add.is_empty() || !s.capabilities.drop.is_empty(),
        why: SHARES_KERNEL,
    },
    ContainerOnly {
        field: "privileged",
        is_set: |s| s.privileged,
        why: SHARES_KERNEL,
    },
    ContainerOnly {
        field: "sysctls",
        is_set: |s| !s.sysctls.is_empty(),
        why: SHARES_KERNEL,
    },
    ContainerOnly {
        field: "devices",
        is_set: |s| !s.devices.is_empty(),
        why: SHARES_FILES,
    },
    ContainerOnly {
        field: "hostname",
        is_set: |s| s.hostname.is_some(),
        why: SHARES_NETWORK,
    },
    ContainerOnly {
        field: "dns",
        is_set: |s| !s.dns.is_empty(),
        why: SHARES_NETWORK,
    },
    ContainerOnly {
        field: "extra_hosts",
        is_set: |s| !s.extra_hosts.is_empty(),
        why: SHARES_NETWORK,
    },
    ContainerOnly {
        field: "init",
        is_set: |s| s.init,
        why: "a process is looked after by its supervisor",
    },
];

/// What one role runs, as far as it decides between container and process.
struct Run<'a> {
    place: FieldPath,
    image: Option<&'a ImageSpec>,
    command: Option<&'a CommandSpec>,
}

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    check_schedule(at, spec, findings);
    let runs = runs(at, spec);
    for run in &runs {
        findings.extend(check_run(run, spec.runtime, at));
    }
    let is_process = |run: &Run<'_>| match spec.runtime {
        Some(runtime) => runtime == Runtime::Process,
        // Where both are missing that is the finding, and what else was meant is not known.
        None => run.image.is_none() && run.command.is_some(),
    };
    if !runs.iter().all(is_process) {
        return;
    }
    for only in CONTAINER_ONLY.iter().filter(|only| (only.is_set)(spec)) {
        findings.push(
            SpecFinding::at(
                at.key(only.field),
                format!("`{}` has no meaning for a process", only.field),
            )
            .because(at.key("runtime"))
            .because(at.key("image"))
            .hint(format!("{}: remove it, or give the service an `image`", only.why)),
        );
    }
}

/// What each role runs. Roles that change neither image nor command are the service's own, once.
fn runs<'a>(at: &FieldPath, spec: &'a ServiceSpec) -> Vec<Run<'a>> {
    let own = Run {
        place: at.clone(),
        image: spec.image.as_ref(),
        command: spec.command.as_ref(),
    };
    let changes = |group: &ReplicaGroup| group.image.is_some() || group.command.is_some();
    let mut runs: Vec<Run<'a>> = Vec::new();
    for (position, group) in spec
        .replica_groups
        .iter()
        .enumerate()
        .filter(|(_, group)| changes(group))
    {
        runs.push(Run {
            place: at.key("replica_groups").index(position),
            image: group.image.as_ref().or(own.image),
            command: group.command.as_ref().or(own.command),
        });
    }
    if spec.replica_groups.is_empty() || runs.len() < spec.replica_groups.len() {
        runs.push(own);
    }
    runs
}

fn check_run(run: &Run<'_>, runtime: Option<Runtime>, service: &FieldPath) -> Option<SpecFinding> {
    let at = &run.place;
    let has_image = run.image.is_some();
    let has_command = run
        .command
        .is_some_and(|command| command.words().next().is_some());
    match runtime {
        Some(Runtime::Container) if !has_image => Some(
            SpecFinding::at(at.key("image"), "a container needs an `image`")
                .because(service.key("runtime"))
                .hint("add one, such as `image: nginx:1.27`, or write `runtime: process`"),
        ),
        Some(Runtime::Process) if has_image => Some(
            SpecFinding::at(at.key("image"), "a process has no `image`")
                .also(service.key("runtime"), "this makes it a process")
                .hint("remove `image` to start a program of the host, or remove `runtime: process`"),
        ),
        Some(Runtime::Process) if !has_command => Some(
            SpecFinding::at(at.key("command"), "a process needs a `command`")
                .because(service.key("runtime"))
                .hint("name the program to start, such as `command: [/usr/bin/caddy, run]`"),
        ),
        None if !has_image && !has_command => Some(
            SpecFinding::at(at.key("image"), "a service needs an `image` or a `command`")
                .because(at.key("command"))
                .hint(
                    "`image: nginx:1.27` makes it a container, `command: [program, …]` a program of the host",
                ),
        ),
        Some(Runtime::Container | Runtime::Process) | None => None,
    }
}

fn check_schedule(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let place = at.key("schedule");
    match (spec.rtype, &spec.schedule) {
        (RType::Cron, None) => findings.push(
            SpecFinding::at(place, "a `cron` service needs a `schedule`")
                .because(at.key("rtype"))
                .hint("add one, such as `schedule: \"0 3 * * *\"` for every night at 3:00"),
        ),
        (RType::Cron, Some(schedule)) => {
            if let Err(problem) = super::cron::CronSchedule::parse(schedule) {
                findings.push(SpecFinding::at(place, problem.message).hint(problem.hint));
            }
        }
        (RType::Service | RType::Job | RType::System, Some(_)) => findings.push(
            SpecFinding::at(place, "only a `cron` service has a `schedule`")
                .because(at.key("rtype"))
                .hint("write `rtype: cron`, or remove the schedule"),
        ),
        (RType::Service | RType::Job | RType::System, None) => {}
    }
}

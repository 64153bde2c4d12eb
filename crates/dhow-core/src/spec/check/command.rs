//! The command line of a replica.

use super::finding::{FieldPath, SpecFinding};
use super::words::path_problem;
use crate::spec::{CommandSpec, ServiceSpec};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    if let Some(command) = &spec.command {
        check_command(&at.key("command"), command, findings);
    }
    for (position, group) in spec.replica_groups.iter().enumerate() {
        if let Some(command) = &group.command {
            let place = at.key("replica_groups").index(position).key("command");
            check_command(&place, command, findings);
        }
    }
    for (position, step) in spec.init_steps.iter().enumerate() {
        let place = at.key("init_steps").index(position).key("command");
        check_command(&place, &step.command, findings);
    }
}

fn check_command(at: &FieldPath, command: &CommandSpec, findings: &mut Vec<SpecFinding>) {
    let first = match (&command.entrypoint, &command.args) {
        (Some(words), _) if !words.is_empty() => Some(("entrypoint", words)),
        (_, Some(words)) => Some(("args", words)),
        (Some(_) | None, None) => None,
    };
    if let Some((list, words)) = first
        && words.first().is_some_and(String::is_empty)
    {
        findings.push(
            SpecFinding::at(at.key(list).index(0), "the first word of a command is empty")
                .hint("it names the program to start"),
        );
    }
    if let Some(workdir) = &command.workdir
        && let Some((message, hint)) = path_problem(workdir, "the working directory")
    {
        findings.push(SpecFinding::at(at.key("workdir"), message).hint(hint));
    }
}

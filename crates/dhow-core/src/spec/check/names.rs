//! Names that would collide although each of them is fine, and the names of secrets.

use std::collections::BTreeMap;

use super::finding::{FieldPath, SpecFinding};
use super::limits::NAME_MAX_BYTES;
use super::words::name_of;
use crate::spec::DeploymentSpec;

/// `a-b` with role `c` and `a` with role `b-c` would both make `a-b-c-0`. Roles that are named twice are
/// found here too: they make the same ids.
pub(super) fn check(deployment: &DeploymentSpec, findings: &mut Vec<SpecFinding>) {
    let mut owners: BTreeMap<String, (String, FieldPath)> = BTreeMap::new();
    for (service, spec) in &deployment.services {
        let at = FieldPath::of("services").key(service.to_string());
        for (position, role) in spec.roles().into_iter().enumerate() {
            let place = if spec.replica_groups.is_empty() {
                at.clone()
            } else {
                at.key("replica_groups").index(position).key("role")
            };
            let stem = format!("{service}-{role}");
            match owners.get(&stem) {
                None => {
                    owners.insert(stem, (format!("service `{service}`, role `{role}`"), place));
                }
                Some((_, first)) if first.parts().starts_with(at.parts()) => findings.push(
                    SpecFinding::at(place, format!("the role `{role}` is there twice"))
                        .also(first.clone(), "first here")
                        .hint("give each group its own role, or add their counts up in one group"),
                ),
                Some((owner, first)) => findings.push(
                    SpecFinding::at(
                        place,
                        format!(
                            "service `{service}`, role `{role}` makes replicas with the same ids as {owner}: `{stem}-0`, …"
                        ),
                    )
                    .also(first.clone(), "the other one")
                    .hint("rename one of the two services or roles"),
                ),
            }
        }
    }
}

/// What is wrong with the name of a secret.
pub fn secret_name_problem(name: &str) -> Option<(String, &'static str)> {
    const HOW: &str = "a secret's name has letters, digits, `-`, `_` and `.`, such as `db-password`";
    if name.is_empty() {
        return Some(("`$S:` needs the name of a secret".into(), HOW));
    }
    kept_name_problem(name, "a secret").map(|message| (message, HOW))
}

/// What is wrong with the name of a config.
pub(super) fn config_name_problem(name: &str) -> Option<(String, &'static str)> {
    const HOW: &str = "a config's name has letters, digits, `-`, `_` and `.`, such as `app.conf`";
    if name.is_empty() {
        return Some(("a config needs a name".into(), HOW));
    }
    kept_name_problem(name, "a config").map(|message| (message, HOW))
}

fn kept_name_problem(name: &str, of: &str) -> Option<String> {
    if name.len() > NAME_MAX_BYTES {
        return Some(format!(
            "the name of {of} has at most {NAME_MAX_BYTES} characters, this one has {}",
            name.chars().count()
        ));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if let Some(c) = name.chars().find(|c| !fits(*c)) {
        return Some(format!("the name of {of} holds no {}", name_of(c)));
    }
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    (!starts).then(|| format!("the name of {of} starts with a letter or a digit"))
}

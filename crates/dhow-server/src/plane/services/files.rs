//! Who does not see or has not read the newest configs and secrets.

use std::fmt;

use dhow_core::ids::ReplicaKey;
use dhow_core::state::{Deployment, Replica, Service, State};

/// What there is to say of a replica's files.
pub(super) enum FilesNote<'a> {
    /// It does not see its newest files yet.
    Old,
    /// It is its turn to bear them, and why it has not passed yet.
    Tries(Option<&'a str>),
    /// It sees them, and was told nothing.
    Unread,
}

impl fmt::Display for FilesNote<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Old => f.write_str("sees its files as they were before the change"),
            Self::Tries(None) => f.write_str("tries its new files"),
            Self::Tries(Some(why)) => write!(f, "tries its new files: {why}"),
            Self::Unread => f.write_str("runs since before its files changed, and was told nothing"),
        }
    }
}

/// What there is to say of the files of a replica that runs.
pub(super) fn note<'a>(
    service: &'a Service,
    key: &ReplicaKey,
    replica: &'a Replica,
) -> Option<FilesNote<'a>> {
    let info = service.info(key.generation).filter(|_| replica.is_running())?;
    let next = info
        .next
        .as_ref()
        .filter(|next| next.spec.configs != info.spec.configs || next.spec.secrets != info.spec.secrets);
    let trial = service.trial(key.generation, replica).map(|(_, trial)| trial);
    let shown = match (next, trial) {
        (None, _) => &info.spec,
        (Some(_), None) => return Some(FilesNote::Old),
        (Some(_), Some(trial)) if trial.passed.is_none() => {
            return Some(FilesNote::Tries(trial.message.as_deref()));
        }
        (Some(next), Some(_)) => &next.spec,
    };
    replica
        .read
        .is_some_and(|read| read != shown.silent_files())
        .then_some(FilesNote::Unread)
}

/// The nodes that get no replica of a service because their version mounts no files, where it has some.
pub(super) fn old_nodes(state: &State, service: &Service) -> Option<String> {
    const SHOWN_MAX: usize = 10;
    service.spec().filter(|spec| spec.has_files())?;
    let nodes = state.nodes.values();
    let old: Vec<String> = nodes
        .filter(|node| node.info.runs_replicas && !node.info.mounts_files)
        .map(|node| node.id.to_string())
        .collect();
    let more = match old.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = old.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    match old.len() {
        0 => None,
        1 => Some(format!(
            "node {shown} gets none of its replicas: its version mounts no configs and secrets"
        )),
        _ => Some(format!(
            "nodes {shown}{more} get none of its replicas: their versions mount no configs and secrets"
        )),
    }
}

/// A line for each service of a deployment, or for one of them, whose replicas lag behind.
pub(super) fn notes(state: &State, deployment: &Deployment, only: Option<&str>) -> Vec<String> {
    let services = deployment.services.iter();
    let asked = services.filter(|(name, _)| only.is_none_or(|only| only == name.as_str()));
    let notes = asked.filter_map(|(name, id)| {
        let service = state.service(*id)?;
        let (mut all, mut old, mut tries, mut unread) = (0_u32, 0_u32, 0_u32, 0_u32);
        for (key, replica) in state.replicas_of(*id).filter(|(_, replica)| replica.is_running()) {
            all += 1;
            match note(service, key, replica) {
                Some(FilesNote::Old) => old += 1,
                Some(FilesNote::Tries(_)) => tries += 1,
                Some(FilesNote::Unread) => unread += 1,
                None => {}
            }
        }
        let mut parts = Vec::new();
        if old > 0 {
            parts.push(format!("{old} of {all} replicas see their files as they were before the change"));
        }
        if tries > 0 {
            parts.push(format!("{tries} of {all} replicas try their new files"));
        }
        if unread > 0 {
            parts.push(format!(
                "{unread} of {all} replicas run since before their files changed and were told nothing; `dhow restart {}` has them read",
                service.key
            ));
        }
        (!parts.is_empty()).then(|| format!("{name}: {}", parts.join("; ")))
    });
    notes.collect()
}

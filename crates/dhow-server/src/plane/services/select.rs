//! Replicas by the names that people give: a deployment, one of its services, or one replica's id.

use dhow_core::ids::{DeploymentName, NodeId, ReplicaKey, ReplicaName, ServiceKey, ServiceName};
use dhow_core::state::{Deployment, Replica, Service, State};
use dhow_wire::{Problem, ProblemCode};

use super::replicas::{DONE_BEFORE, done_before};

/// Between a schedule and the number of its run.
const RUN_MARK: char = '@';
/// Of so many replicas of a service it is said why they have no log.
const TOLD_MAX: usize = 10;

/// A replica that was asked for.
#[derive(Clone, Debug)]
pub struct SelectedReplica {
    pub key: ReplicaKey,
    pub name: ReplicaName,
    pub node: NodeId,
}

/// A name that means no deployment, service or replica.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchName {
    #[error("there is no deployment `{0}`; `dhow status` lists those there are")]
    Deployment(String),
    #[error("deployment `{0}` has no service and no replica `{1}`; `dhow ps {0}` lists its replicas")]
    Name(DeploymentName, String),
    #[error("`{0}` has no run {1} that is kept; `dhow cron ls {0}` lists its runs")]
    Run(ServiceKey, String),
    #[error("there is no node {0}; `dhow node ls` lists those there are")]
    Node(NodeId),
}

impl From<NoSuchName> for Problem {
    fn from(error: NoSuchName) -> Self {
        Self::new(ProblemCode::NotFound, error.to_string())
    }
}

pub(super) fn deployment<'a>(state: &'a State, name: &str) -> Result<&'a Deployment, NoSuchName> {
    let missing = || NoSuchName::Deployment(shown(name));
    let known = DeploymentName::new(name).map_err(|_| missing())?;
    state.deployment(&known).map(AsRef::as_ref).ok_or_else(missing)
}

/// What a caller sent is repeated, but not a megabyte of it.
fn shown(name: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    name.chars().take(SHOWN_CHARS_MAX).collect()
}

/// What a name stands for in a deployment.
#[derive(Clone, Debug)]
pub(super) enum Subject<'a> {
    Service(&'a Service),
    /// A replica's id, which may not be there at the moment.
    Replica {
        service: &'a Service,
        id: String,
    },
    /// One run of a schedule.
    Run {
        service: &'a Service,
        run: u32,
    },
}

/// An exact service name wins.
pub(super) fn subject<'a>(
    state: &'a State,
    deployment: &'a Deployment,
    name: &str,
) -> Result<Subject<'a>, NoSuchName> {
    let missing = || NoSuchName::Name(deployment.name.clone(), shown(name));
    if let Some((service, run)) = name.split_once(RUN_MARK) {
        return subject_run(state, deployment, service, run);
    }
    let named = ServiceName::new(name).ok();
    let id = named.and_then(|name| deployment.services.get(&name));
    if let Some(service) = id.and_then(|id| state.service(*id)) {
        return Ok(Subject::Service(service));
    }
    for (_, service) in super::deployment::services(state, deployment) {
        if is_id_of(state, service, name) {
            let id = name.to_owned();
            return Ok(Subject::Replica { service, id });
        }
    }
    Err(missing())
}

/// `SERVICE@RUN`.
fn subject_run<'a>(
    state: &'a State,
    deployment: &'a Deployment,
    service: &str,
    run: &str,
) -> Result<Subject<'a>, NoSuchName> {
    let Subject::Service(service) = subject(state, deployment, service)? else {
        return Err(NoSuchName::Name(deployment.name.clone(), shown(service)));
    };
    let number = run.parse::<u32>().ok();
    let known = service.runs.iter().find(|known| Some(known.number) == number);
    match known {
        Some(known) => Ok(Subject::Run {
            service,
            run: known.number,
        }),
        None => Err(NoSuchName::Run(service.key.clone(), shown(run))),
    }
}

/// Whether the service has, wants or remembers a replica of this id.
fn is_id_of(state: &State, service: &Service, id: &str) -> bool {
    let Some((role, index)) = id
        .strip_prefix(service.key.service.as_str())
        .and_then(|rest| rest.strip_prefix('-'))
        .and_then(|rest| rest.rsplit_once('-'))
    else {
        return false;
    };
    let role = service.roles.iter().position(|known| known.as_str() == role);
    let (Some(role), Ok(index)) = (role, index.parse::<u32>()) else {
        return false;
    };
    let is_slot = |slot: dhow_core::ids::Slot| usize::from(slot.role.0) == role && slot.index == index;
    state.replicas_of(service.id).any(|(key, _)| is_slot(key.slot))
        || service.ended.iter().any(|ended| is_slot(ended.slot))
        || service.wants(dhow_core::ids::Slot {
            role: dhow_core::ids::RoleId(u16::try_from(role).unwrap_or(u16::MAX)),
            index,
        })
}

/// The replicas of a deployment, of one of its services, or one replica with all its generations.
pub fn select(state: &State, name: &str, within: Option<&str>) -> Result<Vec<SelectedReplica>, NoSuchName> {
    let deployment = deployment(state, name)?;
    let subject = within.map(|name| subject(state, deployment, name)).transpose()?;
    let mut selected = Vec::new();
    for (_, service) in super::deployment::services(state, deployment) {
        let wanted = match &subject {
            None => true,
            Some(
                Subject::Service(only)
                | Subject::Replica { service: only, .. }
                | Subject::Run { service: only, .. },
            ) => only.id == service.id,
        };
        if !wanted {
            continue;
        }
        let all = state.replicas_of(service.id);
        selected.extend(all.filter_map(|(key, replica)| one(state, key, replica)));
    }
    if let Some(Subject::Replica { id, .. }) = &subject {
        selected.retain(|replica| replica.name.id() == *id);
    }
    if let Some(Subject::Run { service, run }) = &subject {
        let run = service.runs.iter().find(|known| known.number == *run);
        selected.retain(|replica| run.is_some_and(|run| run.has(replica.key.slot)));
    }
    Ok(selected)
}

/// Why there is no log: of what was asked for, what has no replica on any node, each with its reason. A log goes with
/// its replica.
pub fn without_log(
    state: &State,
    name: &str,
    within: Option<&str>,
) -> Result<Vec<(String, String)>, NoSuchName> {
    let deployment = deployment(state, name)?;
    let subject = within.map(|name| subject(state, deployment, name)).transpose()?;
    let (service, only) = match &subject {
        None => (None, None),
        Some(Subject::Service(service)) => (Some(service.id), None),
        Some(Subject::Replica { service, id }) => (Some(service.id), Some(id.as_str())),
        // What is done of it and gone belongs to no one run here.
        Some(Subject::Run { service, .. }) => (Some(service.id), Some("")),
    };
    let mut reasons = Vec::new();
    let services = super::deployment::services(state, deployment);
    for (_, known) in services.filter(|(_, known)| service.is_none_or(|id| id == known.id)) {
        let done = done_before(state, known).filter(|status| only.is_none_or(|id| status.id == id));
        reasons.extend(
            done.take(TOLD_MAX)
                .map(|status| (status.id, format!("{DONE_BEFORE}, and its log with it"))),
        );
    }
    let has_some = !reasons.is_empty() || !select(state, name, within)?.is_empty();
    if !has_some {
        let named = within.map_or_else(|| name.to_owned(), |within| format!("{name}/{}", shown(within)));
        let hint = match within {
            Some(_) => format!("`dhow explain {named}` says why"),
            None => format!("`dhow status {name}` shows its services"),
        };
        reasons.push((
            named,
            format!("no replica of it is on any node, and no log; {hint}"),
        ));
    }
    Ok(reasons)
}

fn one(state: &State, key: &ReplicaKey, replica: &Replica) -> Option<SelectedReplica> {
    Some(SelectedReplica {
        key: *key,
        name: state.replica_name(key)?,
        node: replica.node,
    })
}

//! What a replica is started with: its environment with secrets filled in, and its volumes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dhow_core::ids::{NodeId, ReplicaName};
use dhow_core::spec::{Policy, SERVICE_MARK, ServiceSpec, Storage, host_entry};
use dhow_driver::driver::{LogLimits, PortBinding, ReplicaStart};
use dhow_driver::volume::{VolumeError, Volumes};

use crate::balance::address_variable;
use crate::files::{FilesError, Placed};
use crate::session::{Session, SessionError};

/// How a value names a secret.
const SECRET_MARK: &str = "$S:";

/// Why a replica's environment or volumes could not be made. The runner reports it as the reason why a start failed.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    #[error("its secrets cannot be had")]
    Secrets(#[source] SessionError),
    #[error("there is no secret `{0}`: set it with `dhow secret set {0}`")]
    NoSecret(String),
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error("its volume `{name}` cannot be made")]
    Volume {
        name: String,
        #[source]
        source: VolumeError,
    },
    #[error("no port of this host is free for it")]
    Ports(#[source] io::Error),
    #[error("a task of the daemon ended early")]
    Task(#[source] tokio::task::JoinError),
}

/// The node that starts it.
pub struct Here<'a> {
    pub node: NodeId,
    pub volumes_dir: &'a Path,
    pub session: &'a dyn Session,
    pub policy: &'a Policy,
    /// Where it finds the services of its deployment.
    pub services: BTreeMap<String, String>,
    /// The configs and secrets that it sees as files.
    pub files: Placed,
}

/// Resolves everything that a start needs.
pub async fn start_of(
    name: &ReplicaName,
    spec: &Arc<ServiceSpec>,
    ports: Vec<PortBinding>,
    here: Here<'_>,
) -> Result<ReplicaStart, EnvironmentError> {
    let Here {
        node,
        volumes_dir,
        session,
        policy,
        services,
        files,
    } = here;
    let started = with_addresses(spec, &services);
    let mut env = services;
    env.extend(own_variables(name, node));
    env.extend(files.env);
    env.extend(spec.env.iter().map(|(key, value)| (key.clone(), plain(value))));
    let secret_env = secrets_of(&spec.env, session).await?;
    for key in secret_env.keys() {
        env.remove(key);
    }
    let (of, wanted) = (name.deployment.to_string(), volumes_of(spec));
    let node_volumes = Volumes::new(volumes_dir.to_owned());
    let volumes = tokio::task::spawn_blocking(move || make_volumes(&node_volumes, &of, wanted))
        .await
        .map_err(EnvironmentError::Task)??;
    Ok(ReplicaStart {
        name: name.clone(),
        spec: started,
        env,
        secret_env,
        ports,
        volumes,
        files: files.binds,
        bind_folders: policy.host_binds.clone(),
        log: LogLimits::default(),
        on_address: None,
    })
}

/// The start of a step: as the replica's own, with what the step says of its command and its variables.
pub async fn for_step(
    start: &ReplicaStart,
    spec: Arc<ServiceSpec>,
    own: &BTreeMap<String, String>,
    session: &dyn Session,
) -> Result<ReplicaStart, EnvironmentError> {
    let secret_env = secrets_of(own, session).await?;
    let mut step = ReplicaStart {
        spec,
        ..start.clone()
    };
    for (key, value) in own {
        step.secret_env.remove(key);
        step.env.remove(key);
        if !secret_env.contains_key(key) {
            step.env.insert(key.clone(), plain(value));
        }
    }
    step.secret_env.extend(secret_env);
    Ok(step)
}

/// The spec with the addresses of services in place of their names in `extra_hosts`. A service without an address here has
/// nothing that could be called.
fn with_addresses(spec: &Arc<ServiceSpec>, services: &BTreeMap<String, String>) -> Arc<ServiceSpec> {
    let named = |entry: &str| -> Option<(String, String)> {
        let (name, service) = host_entry(entry)?;
        let service = service.strip_prefix(SERVICE_MARK)?;
        Some((name.to_owned(), address_variable(service)))
    };
    if !spec.extra_hosts.iter().any(|entry| named(entry).is_some()) {
        return Arc::clone(spec);
    }
    let extra_hosts = spec.extra_hosts.iter().filter_map(|entry| match named(entry) {
        None => Some(entry.clone()),
        Some((name, variable)) => services.get(&variable).map(|address| format!("{name}:{address}")),
    });
    Arc::new(ServiceSpec {
        extra_hosts: extra_hosts.collect(),
        ..spec.as_ref().clone()
    })
}

/// Text that begins as the name of a secret does has one `$` more in a spec.
fn plain(value: &str) -> String {
    match value.starts_with("$$S:") {
        true => value[1..].to_owned(),
        false => value.to_owned(),
    }
}

/// Who a replica is, for programs that want to know. The service's own variables win.
fn own_variables(name: &ReplicaName, node: NodeId) -> BTreeMap<String, String> {
    [
        ("DHOW_DEPLOYMENT", name.deployment.to_string()),
        ("DHOW_SERVICE", name.service.to_string()),
        ("DHOW_ROLE", name.role.to_string()),
        ("DHOW_REPLICA", name.index.to_string()),
        ("DHOW_NODE_ID", node.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

async fn secrets_of(
    env: &BTreeMap<String, String>,
    session: &dyn Session,
) -> Result<BTreeMap<String, String>, EnvironmentError> {
    let named: BTreeMap<&String, String> = env
        .iter()
        .filter_map(|(key, value)| Some((key, value.strip_prefix(SECRET_MARK)?.to_owned())))
        .collect();
    if named.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut names: Vec<String> = named.values().cloned().collect();
    names.sort();
    names.dedup();
    let values = session.secrets(&names).await.map_err(EnvironmentError::Secrets)?;
    named
        .into_iter()
        .map(|(key, name)| match values.get(&name) {
            Some(value) => Ok((key.clone(), value.clone())),
            None => Err(EnvironmentError::NoSecret(name)),
        })
        .collect()
}

/// The volumes that a spec mounts, with the size of each where it has one.
fn volumes_of(spec: &ServiceSpec) -> BTreeMap<String, Option<u64>> {
    let mut wanted: BTreeMap<String, Option<u64>> = BTreeMap::new();
    for storage in &spec.storage {
        if let Storage::Named { name, size, .. } = storage {
            let known = wanted.entry(name.clone()).or_default();
            *known = known.or(size.map(|size| size.0));
        }
    }
    wanted
}

/// A volume belongs to its deployment: two deployments may each have one of a name.
fn make_volumes(
    volumes: &Volumes,
    deployment: &str,
    wanted: BTreeMap<String, Option<u64>>,
) -> Result<BTreeMap<String, PathBuf>, EnvironmentError> {
    let made = wanted
        .into_iter()
        .map(|(name, size)| match volumes.make(deployment, &name, size) {
            Ok(path) => Ok((name, path)),
            Err(source) => Err(EnvironmentError::Volume { name, source }),
        });
    made.collect()
}

//! Who may call what: endpoints that older servers do not know, and public ports that another deployment has.

use crate::command::Refused;
use crate::ids::{DeploymentName, ServiceName};
use crate::spec::{DeploymentSpec, Endpoint};
use crate::state::State;

/// From this level on endpoints say who may call them, and a public port belongs to one deployment.
pub(super) const SINCE_LEVEL: u32 = 3;

/// A spec with words that a server of an older version could not read is refused until all servers know them.
pub(super) fn check_level(state: &State, spec: &DeploymentSpec) -> Result<(), Refused> {
    match spec.services.values().any(|service| service.has_callers()) {
        true => super::needs_level(state, SINCE_LEVEL),
        false => Ok(()),
    }
}

/// Refuses a public port that a service of another deployment has, unless requests can be told apart. Deployments that
/// `goes` names do not count, and what the deployment has already it keeps: both may be older than this rule.
pub(super) fn check_ports(
    state: &State,
    spec: &DeploymentSpec,
    goes: &dyn Fn(&DeploymentName) -> bool,
) -> Result<(), Refused> {
    if state.feature_level < SINCE_LEVEL {
        return Ok(());
    }
    let own = state.deployment(&spec.deployment);
    let own = own.and_then(|known| known.current());
    let has = |endpoint: &Endpoint| {
        own.is_some_and(|own| public(&own.spec).any(|(_, held)| held.clashes_with(endpoint).is_some()))
    };
    let wanted: Vec<_> = public(spec).filter(|(_, endpoint)| !has(endpoint)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let others = state
        .services
        .values()
        .filter(|other| !other.removing && !goes(&other.key.deployment));
    for other in others {
        let held = other.spec().map(|spec| spec.endpoints.as_slice());
        for held in held.unwrap_or_default().iter().filter(|held| held.is_public()) {
            if let Some((service, endpoint, port)) = clash(wanted.iter().copied(), held) {
                return Err(taken(service, endpoint, port, other.key.to_string(), held));
            }
        }
    }
    Ok(())
}

/// The same between two specs of one set.
pub(super) fn check_between(
    state: &State,
    spec: &DeploymentSpec,
    earlier: &DeploymentSpec,
) -> Result<(), Refused> {
    if state.feature_level < SINCE_LEVEL || spec.deployment == earlier.deployment {
        return Ok(());
    }
    for (other, held) in public(earlier) {
        if let Some((service, endpoint, port)) = clash(public(spec), held) {
            let by = format!("{}/{other}", earlier.deployment);
            return Err(taken(service, endpoint, port, by, held));
        }
    }
    Ok(())
}

fn public(spec: &DeploymentSpec) -> impl Iterator<Item = (&ServiceName, &Endpoint)> {
    spec.services.iter().flat_map(|(name, service)| {
        let public = service.endpoints.iter().filter(|endpoint| endpoint.is_public());
        // No rule about clashing ports looks at 0.
        public
            .filter(|endpoint| endpoint.port != 0)
            .map(move |endpoint| (name, endpoint))
    })
}

/// The first of these that cannot be served beside `held`, and the port that both want.
fn clash<'a>(
    mut wanted: impl Iterator<Item = (&'a ServiceName, &'a Endpoint)>,
    held: &Endpoint,
) -> Option<(&'a ServiceName, &'a Endpoint, u16)> {
    wanted.find_map(|(service, endpoint)| Some((service, endpoint, endpoint.clashes_with(held)?)))
}

fn taken(service: &ServiceName, endpoint: &Endpoint, port: u16, by: String, held: &Endpoint) -> Refused {
    let mut by = format!("{by}/{}", held.name);
    if !endpoint.is_told_from(held) && (held.host.is_some() || held.path.is_some()) {
        let host = held.host.as_deref().unwrap_or("every host");
        let path = held.path.as_deref().unwrap_or("/");
        by.push_str(&format!(", for {host} and the path {path}"));
    }
    Refused::PortTaken {
        service: service.clone(),
        endpoint: endpoint.name.clone(),
        port,
        by,
    }
}

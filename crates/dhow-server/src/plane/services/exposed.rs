//! A container service without `endpoints` has those that its image names: its `EXPOSE`d ports, for its deployment alone. One
//! that says `image_ports` has them beside its own, for whom it says.
//! They are looked up once per revision and stand in it from then on, so that every node knows them.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::spec::{DeploymentSpec, Endpoint, ImageSpec, Protocol, RType, Runtime, ServiceSpec};
use dhow_core::state::State;
use futures_util::stream::{self, StreamExt};

use crate::net::node_door::{ImagePort, NodeDoor};

/// Registries that are asked at a time.
const ASKED_AT_ONCE: usize = 8;
/// A registry that has not answered by then is taken as one that does not answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(20);
/// Ports of one image: more are a range that nobody meant one by one.
const PORTS_MAX: usize = 16;

/// Gives services without endpoints those of their images. Where that cannot be found out, the current revision's are
/// kept if the image's name is the same.
pub async fn fill_endpoints(door: &dyn NodeDoor, state: &State, spec: &mut DeploymentSpec) {
    let asking = spec.services.iter().filter_map(|(name, service)| {
        let image = asked_image(service)?.clone();
        let name = name.clone();
        Some(async move {
            let ports = ports_of(door, &image).await;
            (name, image, ports)
        })
    });
    let asking: Vec<_> = asking.collect();
    let found: Vec<_> = stream::iter(asking).buffered(ASKED_AT_ONCE).collect().await;
    let before = state
        .deployment(&spec.deployment)
        .and_then(|known| known.current());
    for (name, image, ports) in found {
        let old = before.and_then(|before| before.spec.services.get(&name));
        let endpoints: Vec<Endpoint> = match ports {
            Some(ports) => ports.into_iter().map(endpoint).collect(),
            None => old.map(|old| kept(old, &image)).unwrap_or_default(),
        };
        if let Some(service) = spec.services.get_mut(&name) {
            add(Arc::make_mut(service), endpoints);
        }
    }
}

/// Puts the image's endpoints behind those that the service names itself, which have their ports already.
fn add(service: &mut ServiceSpec, endpoints: Vec<Endpoint>) {
    let allow = service.image_ports.as_ref().and_then(|ports| ports.allow.clone());
    for found in endpoints {
        let is_udp = |endpoint: &Endpoint| endpoint.protocol == Protocol::Udp;
        let is_taken = |own: &Endpoint| {
            own.name == found.name || own.port == found.port && is_udp(own) == is_udp(&found)
        };
        if !service.endpoints.iter().any(is_taken) {
            service.endpoints.push(Endpoint {
                allow: allow.clone(),
                ..found
            });
        }
    }
}

/// The image whose ports a service gets.
fn asked_image(service: &ServiceSpec) -> Option<&ImageSpec> {
    let runs_on = match service.rtype {
        RType::Service | RType::System => true,
        RType::Job | RType::Cron => false,
    };
    let wants = runs_on
        && service.runtime() == Runtime::Container
        && (service.endpoints.is_empty() || service.image_ports.is_some());
    service.image.as_ref().filter(|_| wants)
}

async fn ports_of(door: &dyn NodeDoor, image: &ImageSpec) -> Option<Vec<ImagePort>> {
    let name = match &image.digest {
        Some(digest) if !image.name.contains('@') => format!("{}@{digest}", image.name),
        Some(_) | None => image.name.clone(),
    };
    let mut ports = match tokio::time::timeout(ASK_TIMEOUT, door.image_ports(name)).await {
        Ok(Ok(ports)) => ports,
        Ok(Err(error)) => {
            tracing::info!(image = image.name, %error, "the image's ports are not known");
            return None;
        }
        Err(_) => {
            tracing::info!(image = image.name, "the image's ports were not found in time");
            return None;
        }
    };
    ports.retain(|port| port.port != 0);
    ports.sort_unstable();
    ports.dedup();
    if ports.len() > PORTS_MAX {
        tracing::warn!(
            image = image.name,
            ports = ports.len(),
            "the image has too many ports for endpoints of their own"
        );
        ports.clear();
    }
    Some(ports)
}

fn endpoint(port: ImagePort) -> Endpoint {
    let protocol = match port.is_udp {
        true => Protocol::Udp,
        false => Protocol::Tcp,
    };
    let name = format!("{}-{}", protocol.scheme(), port.port);
    Endpoint::new(name, protocol, port.port)
}

/// What was found for the same image before: endpoints that are just as one of an image is.
fn kept(old: &ServiceSpec, image: &ImageSpec) -> Vec<Endpoint> {
    let is_same = old.image.as_ref().is_some_and(|old| old.name == image.name);
    let of_image = |found: &&Endpoint| {
        let is_udp = found.protocol == Protocol::Udp;
        let port = found.port;
        let plain = Endpoint {
            allow: None,
            ..(*found).clone()
        };
        plain == endpoint(ImagePort { port, is_udp })
    };
    old.endpoints
        .iter()
        .filter(|found| is_same && of_image(found))
        .map(|found| Endpoint {
            allow: None,
            ..found.clone()
        })
        .collect()
}

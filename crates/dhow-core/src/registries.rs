//! Credentials of registries: secrets of the cluster's own, one for each registry, given to the nodes that pull from it.
//!
//! `dhow login` sets one, `dhow logout` removes it. The servers open them, and nodes ask for that of a registry while they
//! pull; a person sees the registry's name and who logged in nowhere but there.

use std::collections::BTreeSet;

use crate::ids::NodeId;
use crate::state::{NodeRole, State};

/// No secret of a person has a `/` in its name.
const OWN: &str = "registry/";
/// Docker Hub by all its names.
const HUB: &str = "docker.io";
const HUB_NAMES: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
/// The longest name of a host, with a port.
const HOST_CHARS_MAX: usize = 262;

/// From this level on the servers of a cluster know them.
pub const SINCE_LEVEL: u32 = 6;

/// Whether a secret is the credentials of a registry.
pub fn is_own(secret: &str) -> bool {
    secret.starts_with(OWN)
}

/// The registry whose credentials a secret holds.
pub fn host_in(secret: &str) -> Option<&str> {
    secret.strip_prefix(OWN)
}

/// The secret with the credentials of a registry.
pub fn secret_of(host: &str) -> String {
    format!("{OWN}{}", one_name(host))
}

/// A registry by one name, whichever of its names was written.
fn one_name(host: &str) -> String {
    let host = host.to_ascii_lowercase();
    match HUB_NAMES.contains(&host.as_str()) {
        true => HUB.to_owned(),
        false => host,
    }
}

/// A registry as people write it: `ghcr.io`, `registry.example:5000`, `https://index.docker.io/v1/`. None where it is none.
pub fn parse_host(text: &str) -> Option<String> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let is_host = (1..=HOST_CHARS_MAX).contains(&host.len()) && host.chars().all(fits);
    (is_host && host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')).then(|| one_name(host))
}

/// The registry that an image comes from; none for one that lies in a file or a folder.
pub fn of_image(image: &str) -> Option<String> {
    if image.starts_with("oci:") || image.starts_with("docker-archive:") {
        return None;
    }
    let first = image.split_once('/').map(|(first, _)| first);
    let host = first.filter(|first| first.contains(['.', ':']) || *first == "localhost");
    Some(one_name(host.unwrap_or(HUB)))
}

/// Whether a node may have the credentials of a registry: a replica of it runs an image from there, or the node is one of
/// those that look up what a name means when somebody deploys it.
pub fn may_have(state: &State, node: NodeId, host: &str) -> bool {
    let Some(known) = state.node(node) else {
        return false;
    };
    if known.info.role != NodeRole::Worker {
        return true;
    }
    images_on(state, node)
        .iter()
        .any(|image| of_image(image).as_deref() == Some(host))
}

fn images_on(state: &State, node: NodeId) -> BTreeSet<String> {
    let mut images = BTreeSet::new();
    let Some(node) = state.node(node) else {
        return images;
    };
    for (id, assigned) in node.assignments.services() {
        let Some(service) = state.service(id) else {
            continue;
        };
        for replica in assigned.replicas.iter() {
            let role = service.role(replica.slot.role);
            let info = service.info(replica.generation);
            if let (Some(role), Some(info)) = (role, info)
                && let Some(image) = info.spec.for_role(role).image
            {
                images.insert(image.name);
            }
        }
    }
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_of_an_image_is_the_one_that_is_asked() {
        for (image, host) in [
            ("nginx", Some("docker.io")),
            ("library/nginx:1.27", Some("docker.io")),
            ("index.docker.io/library/nginx", Some("docker.io")),
            ("ghcr.io/a/b@sha256:00", Some("ghcr.io")),
            ("Registry.Example:5000/a:1", Some("registry.example:5000")),
            ("localhost/a", Some("localhost")),
            ("oci:/srv/a.b/c", None),
            ("docker-archive:/srv/x.tar", None),
        ] {
            assert_eq!(of_image(image).as_deref(), host, "{image}");
        }
    }

    #[test]
    fn hosts_are_read_as_people_write_them() {
        for (text, host) in [
            ("ghcr.io", Some("ghcr.io")),
            ("https://index.docker.io/v1/", Some("docker.io")),
            ("REG.example:5000", Some("reg.example:5000")),
            ("", None),
            ("a b", None),
            ("-x", None),
            ("../etc", None),
        ] {
            assert_eq!(parse_host(text).as_deref(), host, "{text}");
        }
        let secret = secret_of("registry-1.docker.io");
        assert_eq!((host_in(&secret), is_own(&secret)), (Some("docker.io"), true));
        assert!(!is_own("registry"));
    }
}

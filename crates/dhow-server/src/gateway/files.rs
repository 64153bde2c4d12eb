//! Contents of files for a node: the configs and secrets that its replicas see, in the versions that their specs name, and
//! no others.

use std::collections::BTreeSet;

use dhow_core::ids::NodeId;
use dhow_core::spec::{ContentHash, ServiceSpec};
use dhow_core::state::State;
use dhow_wire::grpc::{Refusal, proto};

use super::limits::{FILE_BYTES_MAX, SECRET_NAMES_MAX};
use crate::plane::secrets::SecretBox;

/// As many of what was asked for as one answer has room for, at least one; the node asks for the rest.
pub(super) fn answer(
    secrets: &SecretBox,
    state: &State,
    node: NodeId,
    asked: &proto::FilesRequest,
) -> Result<proto::FilesReply, Refusal> {
    if asked.contents.len() + asked.secrets.len() > SECRET_NAMES_MAX {
        return Err(Refusal::Malformed(format!(
            "at most {SECRET_NAMES_MAX} files are given at a time"
        )));
    }
    let known = Known::of(state, node);
    let mut files: Vec<proto::FileContent> = Vec::new();
    let mut room = FILE_BYTES_MAX;
    for text in &asked.contents {
        let bytes = known.content(state, text)?;
        if !files.is_empty() && bytes.len() > room {
            return Ok(proto::FilesReply { files });
        }
        room = room.saturating_sub(bytes.len());
        files.push(proto::FileContent {
            content: Some(text.clone()),
            secret: None,
            bytes,
        });
    }
    for wanted in &asked.secrets {
        let bytes = known.secret(secrets, state, wanted)?;
        if !files.is_empty() && bytes.len() > room {
            break;
        }
        room = room.saturating_sub(bytes.len());
        files.push(proto::FileContent {
            content: None,
            secret: Some(wanted.clone()),
            bytes,
        });
    }
    Ok(proto::FilesReply { files })
}

/// What the replicas of a node may see.
struct Known {
    node: NodeId,
    contents: BTreeSet<ContentHash>,
    secrets: BTreeSet<(String, u64)>,
    deployments: BTreeSet<dhow_core::ids::DeploymentName>,
}

impl Known {
    fn of(state: &State, id: NodeId) -> Self {
        let mut known = Self {
            node: id,
            contents: BTreeSet::new(),
            secrets: BTreeSet::new(),
            deployments: BTreeSet::new(),
        };
        let Some(node) = state.node(id) else { return known };
        for (service, assigned) in node.assignments.services() {
            let Some(service) = state.service(service) else {
                continue;
            };
            let generations: BTreeSet<_> = assigned
                .replicas
                .iter()
                .map(|replica| replica.generation)
                .collect();
            for info in generations
                .into_iter()
                .filter_map(|generation| service.info(generation))
            {
                known.add(&info.spec);
                if let Some(next) = &info.next {
                    known.add(&next.spec);
                }
            }
            known.deployments.insert(service.key.deployment.clone());
        }
        known
    }

    fn add(&mut self, spec: &ServiceSpec) {
        self.contents
            .extend(spec.configs.iter().filter_map(|mount| mount.content));
        let secrets = spec.secrets.iter();
        self.secrets
            .extend(secrets.filter_map(|mount| Some((mount.source.clone(), mount.version?))));
    }

    fn content(&self, state: &State, text: &str) -> Result<Vec<u8>, Refusal> {
        let hash = ContentHash::parse(text).filter(|hash| self.contents.contains(hash));
        let mut deployments = self.deployments.iter().filter_map(|name| state.deployment(name));
        let found = hash.and_then(|hash| deployments.find_map(|deployment| deployment.contents.get(&hash)));
        match found {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(Refusal::NotGiven(format!(
                "no replica of node {} sees the config with the content {}",
                self.node,
                text.chars().take(64).collect::<String>()
            ))),
        }
    }

    fn secret(
        &self,
        secrets: &SecretBox,
        state: &State,
        wanted: &proto::SecretVersion,
    ) -> Result<Vec<u8>, Refusal> {
        // The name is the caller's own word: it is cut, so that it cannot fill a log.
        let name: String = wanted.name.chars().take(64).collect();
        if !self.secrets.contains(&(wanted.name.clone(), wanted.version)) {
            return Err(Refusal::NotGiven(format!(
                "no replica of node {} sees version {} of the secret `{name}`",
                self.node, wanted.version
            )));
        }
        let secret = state.secrets.get(wanted.name.as_str());
        let sealed = secret.and_then(|secret| secret.sealed_at(wanted.version));
        let Some(sealed) = sealed else {
            return Err(Refusal::NotGiven(format!(
                "there is no secret `{name}`; set it with `dhow secret set {name}`"
            )));
        };
        let opened = secrets.unseal(&wanted.name, sealed);
        opened.map_err(|_| {
            Refusal::NotGiven(format!(
                "secret `{name}` cannot be read; set it again with `dhow secret set {name}`"
            ))
        })
    }
}

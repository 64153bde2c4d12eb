//! `registries`: registries of images that are not to be spoken to as any other.

use std::path::PathBuf;

use dhow_core::spec::check::quoted;
use serde::Serialize;

use super::read::path;
use crate::document::{Decoder, Fields, Node, list, text};

/// How this node reaches registries that its host alone would not trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RegistryConfig {
    /// Registries, as they stand in names of images, that may be spoken to over plain HTTP or with any certificate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub insecure: Vec<String>,
    /// Files with certificates, in PEM form, of authorities to trust besides the host's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authority_files: Vec<PathBuf>,
}

impl RegistryConfig {
    pub fn is_empty(&self) -> bool {
        self.insecure.is_empty() && self.authority_files.is_empty()
    }
}

const HOSTS_HOW: &str = "write them as in the names of images, such as `[lab.example:5000]`";
const FILES_HOW: &str = "write the files with their certificates, such as `[/etc/dhow/registry-ca.pem]`";

pub(super) fn registries(decoder: &mut Decoder, node: &Node) -> Option<RegistryConfig> {
    let mut fields = Fields::open(
        decoder,
        node,
        "`registries`",
        "`{ insecure: [lab.example:5000] }`",
    )?;
    fields.elsewhere(&[
        ("authorities", "write `authority_files`"),
        ("ca_files", "write `authority_files`"),
        ("insecure_registries", "write `insecure`"),
    ]);
    let insecure = fields.optional("insecure", |decoder, node| {
        let expected = "a list of registries";
        list(decoder, node, expected, HOSTS_HOW, || "registry".into(), host)
    });
    let authority_files = fields.optional("authority_files", |decoder, node| {
        let expected = "a list of files";
        list(decoder, node, expected, FILES_HOW, || "file".into(), path)
    });
    let registries = RegistryConfig {
        insecure: insecure.unwrap_or_default(),
        authority_files: authority_files
            .unwrap_or_default()
            .into_iter()
            .map(PathBuf::from)
            .collect(),
    };
    fields.close();
    Some(registries)
}

/// A host, with a port or without: neither a scheme nor a repository is part of it.
fn host(decoder: &mut Decoder, node: &Node) -> Option<String> {
    let host = text(decoder, node)?;
    let is_host = |of: char| of.is_ascii_alphanumeric() || matches!(of, '.' | '-' | ':' | '[' | ']');
    if !host.is_empty() && host.chars().all(is_host) {
        return Some(host);
    }
    let message = format!("{} is no registry", quoted(&host));
    let hint = "write its host, and its port where it has one of its own, as in `lab.example:5000`; no `http://`, no `/`";
    decoder.fail(node.span, message, hint.to_owned())
}

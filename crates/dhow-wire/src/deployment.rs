//! The deployment file: from text to a checked spec, or to everything that is wrong with it.
//!
//! Called by the commands that take a file and by the API, whose bodies are the same language. Reading is
//! strict; `$E:NAME` and `${NAME}` are resolved here, from the environment that the caller passes in, and `$S:name` is left for
//! the node. It opens no file by itself and never resolves a secret.

mod endpoint;
mod env;
mod env_file;
mod files;
mod health;
mod host;
mod jobs;
mod names;
mod placement;
mod reference;
mod rollout;
mod scale;
mod service;
mod storage;
mod surroundings;
mod variables;
mod workload;

pub(crate) use endpoint::ranges;
pub use reference::schema;
pub use surroundings::{Client, FileProblem, Sender};

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::{DeploymentName, ServiceName};
use dhow_core::spec::check::{FieldPath, PathPart, SpecFinding, check_deployment};
use dhow_core::spec::{DeploymentSpec, ServiceSpec, SpecVersion};

use crate::document::{
    Decoder, Fields, Finding, Findings, Node, Source, Value, choice, findings_of, loose_text, parse,
};

use surroundings::Surroundings;

/// What the readers of one file share.
pub(crate) struct Reading<'e> {
    around: &'e Surroundings<'e>,
    /// Rules that need to know what was written rather than what it means.
    found: Vec<SpecFinding>,
    /// Services whose steps stand under `init`.
    inits: Vec<FieldPath>,
}

/// Reads a deployment file that stands alone. `env` gives the client's environment.
pub fn parse_deployment(
    text: &str,
    file_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<DeploymentSpec, Findings> {
    let file = |_: &str| -> Result<Vec<u8>, FileProblem> {
        Err(FileProblem {
            message: "no file stands beside this one".into(),
            hint: "write the `content` itself".into(),
        })
    };
    parse_deployment_beside(text, file_name, &Client { env, file: &file })
}

/// The same with the files that stand beside it.
pub fn parse_deployment_beside(
    text: &str,
    file_name: &str,
    client: &Client<'_>,
) -> Result<DeploymentSpec, Findings> {
    read(text, file_name, &Surroundings::Client(client), &|_| Vec::new())
}

/// Reads what somebody has sent, under rules of the reader's own, whose findings stand with the others.
pub fn parse_deployment_under(
    text: &str,
    file_name: &str,
    sender: Sender,
    rules: &dyn Fn(&DeploymentSpec) -> Vec<SpecFinding>,
) -> Result<DeploymentSpec, Findings> {
    read(text, file_name, &Surroundings::Sent(sender), rules)
}

fn read(
    text: &str,
    file_name: &str,
    around: &Surroundings<'_>,
    rules: &dyn Fn(&DeploymentSpec) -> Vec<SpecFinding>,
) -> Result<DeploymentSpec, Findings> {
    let source = Source::new(file_name, text);
    let mut findings = Findings::of(source.clone());
    let Some(document) = parse(&source, &mut findings) else {
        return Err(findings);
    };
    let Some(mut root) = document.root else {
        findings.add(
            Finding::at(&source, source.span_at(0), "the file is empty")
                .with_hint("a deployment has `version: v1`, `deployment: <name>` and `services:`"),
        );
        return Err(findings);
    };
    let mut decoder = Decoder::new(source, findings);
    variables::fill(&mut decoder, &mut root, around);
    let mut reading = Reading {
        around,
        found: Vec::new(),
        inits: Vec::new(),
    };
    let Some(spec) = read_deployment(&mut decoder, &root, &mut reading) else {
        return Err(decoder.into_findings());
    };
    let mut judged = check_deployment(&spec);
    judged.append(&mut reading.found);
    jobs::point_at_init(&mut judged, &reading.inits);
    judged.append(&mut rules(&spec));
    let names_failed = decoder.any_failed(|path| path.parts().len() == 2);
    judged.retain(|finding| is_decided(&decoder, names_failed, finding));
    findings_of(decoder, &root, judged).or(spec)
}

/// The deployment as a file in JSON that reads back to it, with nothing left for the reader's environment. What every
/// reader fills in by itself is left out: a server of an older version may not know it.
pub fn write_deployment(spec: &DeploymentSpec) -> Result<serde_json::Value, serde_json::Error> {
    let mut file = serde_json::to_value(spec)?;
    variables::escape(&mut file);
    let services = file
        .get_mut("services")
        .and_then(serde_json::Value::as_object_mut);
    for service in services.into_iter().flat_map(|services| services.values_mut()) {
        env::escape(service);
        endpoint::name_orders(service);
        let privileged = service.get("privileged") == Some(&true.into());
        if let Some(fields) = service.as_object_mut()
            && fields.get("no_new_privileges") == Some(&(!privileged).into())
        {
            fields.remove("no_new_privileges");
        }
        let groups = service
            .get_mut("replica_groups")
            .and_then(serde_json::Value::as_array_mut);
        groups.into_iter().flatten().for_each(env::escape);
    }
    Ok(file)
}

fn read_deployment(decoder: &mut Decoder, root: &Node, reading: &mut Reading<'_>) -> Option<DeploymentSpec> {
    const EXAMPLE: &str = "`version: v1`, `deployment: <name>` and `services:`";
    let mut fields = Fields::open(decoder, root, "a deployment file", EXAMPLE)?;
    fields.elsewhere(&[
        ("name", "the deployment's name is `deployment: <name>`"),
        (
            "kind",
            "this is not a Kubernetes object: write `version: v1`, `deployment` and `services`",
        ),
        ("apiVersion", "the version of this language is `version: v1`"),
        (
            "volumes",
            "volumes need no declaration: a service's `storage` names them",
        ),
        ("networks", "services reach each other without one: remove it"),
        (
            "secrets",
            "secrets are kept by `dhow secret set`; a service names them in its own `secrets` or in `env` as `$S:name`",
        ),
    ]);
    let version = fields.required("version", "version: v1", |decoder, node| {
        choice(
            decoder,
            node,
            &[("v1", SpecVersion::V1)],
            &[("1", "v1"), ("1.0", "v1")],
        )
    });
    let deployment = fields.required("deployment", "deployment: shop", |decoder, node| {
        let text = loose_text(decoder, node)?;
        names::checked(decoder, node.span, &text, DeploymentName::new)
    });
    let services = fields.required(
        "services",
        "services: { web: { image: nginx:1.27 } }",
        |decoder, node| read_services(decoder, node, reading),
    );
    let configs = fields.optional("configs", |decoder, node| files::configs(decoder, node, reading));
    fields.close();
    Some(DeploymentSpec {
        version: version.unwrap_or_default(),
        deployment: deployment.unwrap_or_else(DeploymentName::fallback),
        services: services.unwrap_or_default(),
        scaled: Default::default(),
        configs: configs.unwrap_or_default(),
    })
}

fn read_services(
    decoder: &mut Decoder,
    node: &Node,
    reading: &mut Reading<'_>,
) -> Option<BTreeMap<ServiceName, Arc<ServiceSpec>>> {
    const HOW: &str = "write each service below its name: `web: { image: nginx:1.27 }`";
    let Value::Mapping(mapping) = &node.value else {
        return decoder.wrong_type(node, "a map of names and services", HOW);
    };
    let mut services = BTreeMap::new();
    for entry in &mapping.entries {
        let part = PathPart::Key(entry.key.to_string().into());
        let read = decoder.within(part, |decoder| {
            let name = names::checked(decoder, entry.key_span, &entry.key, ServiceName::new);
            let spec = service::read(decoder, &entry.value, reading);
            name.zip(spec)
        });
        if let Some((name, spec)) = read {
            services.insert(name, Arc::new(spec));
        }
    }
    Some(services)
}

/// Whether what a finding rests on is known: a service whose kind could not be read is not judged, and while a
/// service's name is wrong nobody can say who depends on something that is not there.
fn is_decided(decoder: &Decoder, names_failed: bool, finding: &SpecFinding) -> bool {
    let parts = finding.path.parts();
    let [PathPart::Key(root), PathPart::Key(name), rest @ ..] = parts else {
        return true;
    };
    if root != "services" {
        return true;
    }
    let service = FieldPath::of("services").key(name.clone());
    let kind_failed = ["rtype", "runtime", "image"]
        .iter()
        .any(|field| decoder.has_failed(&service.key(*field)));
    let about_others = rest.first() == Some(&PathPart::Key("depends".into()));
    !(kind_failed || about_others && names_failed)
}

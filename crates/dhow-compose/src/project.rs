//! The project as a whole: which services run, who may call whom, who waits for whom, and what all of it comes to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use dhow_core::ids::ServiceName;
use dhow_core::spec::check::{FieldPath, check_deployment, nearest};
use dhow_core::spec::{
    Allowed, Condition, ConfigSpec, Dependency, DeploymentSpec, Endpoint, Expose, ImagePorts, OnTimeout,
    RType, ScaleSpec, ServiceSpec, SpecVersion,
};

use crate::item::{Field, Item};
use crate::load::Loaded;
use crate::networks::Networks;
use crate::report::{Location, Report};
use crate::service::{self, Reader};
use crate::{Around, Asked, Converted, SecretValue, endpoints, files, keys, mentions, mounts, names, pairs};

/// What the services of a project have together.
pub(crate) struct ProjectParts<'p> {
    root: &'p Item,
    /// Volumes that are declared.
    pub volumes: BTreeSet<String>,
    pub configs: BTreeMap<String, ConfigSpec>,
    pub secrets: Vec<SecretValue>,
    pub missing_folders: Vec<PathBuf>,
}

impl<'p> ProjectParts<'p> {
    /// A config or a secret of the top level; one that says nothing is an empty map.
    pub fn top(&self, section: &str, name: &str) -> Option<&'p Item> {
        let fields = self.root.get(section)?.fields()?;
        fields
            .iter()
            .find(|field| &*field.key == name)
            .map(|field| &field.value)
    }
}

/// A service on its way.
struct Draft<'p> {
    written: &'p str,
    name: ServiceName,
    item: &'p Item,
    spec: ServiceSpec,
    endpoints: Vec<(Endpoint, Location)>,
}

pub(crate) fn convert(
    loaded: Loaded,
    asked: &Asked,
    around: &Around<'_>,
    report: &mut Report,
) -> Option<Converted> {
    let root = &loaded.root;
    judge_root(root, report);
    let deployment = match names::deployment(&loaded.name) {
        Ok(name) => Some(name),
        Err(message) => {
            let hint = "name it with `-p NAME`, `COMPOSE_PROJECT_NAME` or `name:` at the top of the file";
            let place = root.get("name").map_or(root.place, |item| item.place);
            report.refuse(place, "name", message, hint);
            None
        }
    };
    let active = active(&loaded, asked, around, report)?;
    let known = names::services(active.iter().map(|field| (&*field.key, &field.value)), report);
    let networks = Networks::read(root, &active, report);
    let mut shared = ProjectParts {
        root,
        volumes: declared_volumes(root, report),
        configs: BTreeMap::new(),
        secrets: Vec::new(),
        missing_folders: Vec::new(),
    };
    let (mut drafts, mut places) =
        read_services(&loaded, &active, &known, (around, &mut *report), &mut shared);
    let all: BTreeSet<&str> = services_of(root).iter().map(|field| &*field.key).collect();
    depends(&mut drafts, &known, &all, report);
    reach(&mut drafts, &networks, report);
    settle(&mut drafts, &mut places);
    let spec = DeploymentSpec {
        version: SpecVersion::V1,
        deployment: deployment?,
        services: drafts
            .into_iter()
            .map(|draft| (draft.name, Arc::new(draft.spec)))
            .collect(),
        scaled: BTreeMap::new(),
        configs: shared.configs,
    };
    judge(&spec, root, &places, report);
    Some(Converted {
        deployment: spec,
        notes: Vec::new(),
        missing_folders: shared.missing_folders,
        secrets: shared.secrets,
    })
}

/// Everything of each service that asks nothing of the others, and where it stands.
fn read_services<'p>(
    loaded: &Loaded,
    active: &[&'p Field],
    known: &BTreeMap<String, ServiceName>,
    (around, report): (&Around<'_>, &mut Report),
    shared: &mut ProjectParts<'p>,
) -> (Vec<Draft<'p>>, Vec<(FieldPath, Location)>) {
    let mut places: Vec<(FieldPath, Location)> = Vec::new();
    let mut drafts: Vec<Draft<'_>> = Vec::new();
    for field in active {
        let mut reader = Reader {
            report: &mut *report,
            around,
            variables: &loaded.variables,
            name: field.key.to_string(),
            project: loaded.name.clone(),
            places: Vec::new(),
        };
        keys::judge(&mut reader, &field.value);
        let mut spec = service::read(&mut reader, &field.value);
        mounts::read(&mut reader, &field.value, &mut spec, shared);
        files::read(&mut reader, &field.value, &mut spec, shared);
        let endpoints = endpoints::read(&mut reader, &field.value);
        let found = std::mem::take(&mut reader.places);
        let Some(name) = known.get(&*field.key) else {
            continue;
        };
        let at = FieldPath::of("services").key(name.to_string());
        places.push((at.clone(), field.key_place));
        places.extend(found.into_iter().map(|(path, place)| {
            let whole = path.parts().iter().fold(at.clone(), |mut whole, part| {
                whole.push(part.clone());
                whole
            });
            (whole, place)
        }));
        drafts.push(Draft {
            written: &field.key,
            name: name.clone(),
            item: &field.value,
            spec,
            endpoints,
        });
    }
    (drafts, places)
}

/// Gives each service its endpoints, and says where they come from.
fn settle(drafts: &mut [Draft<'_>], places: &mut Vec<(FieldPath, Location)>) {
    for draft in drafts {
        for (position, (_, place)) in draft.endpoints.iter().enumerate() {
            let at = FieldPath::of("services")
                .key(draft.name.to_string())
                .key("endpoints");
            places.push((at.index(position), *place));
        }
        draft.spec.endpoints = std::mem::take(&mut draft.endpoints)
            .into_iter()
            .map(|(endpoint, _)| endpoint)
            .collect();
    }
}

fn judge_root(root: &Item, report: &mut Report) {
    const KNOWN: [&str; 8] = [
        "version", "name", "services", "networks", "volumes", "configs", "secrets", "include",
    ];
    for field in root.fields().unwrap_or_default() {
        let key: &str = &field.key;
        if KNOWN.contains(&key) || key.starts_with("x-") {
            continue;
        }
        let (message, hint) = match (key, nearest(key, KNOWN)) {
            ("models", _) => (
                "models are not run".to_owned(),
                "run one as a service with an image".to_owned(),
            ),
            (_, Some(meant)) => (
                format!("a compose file has no `{key}`"),
                format!("did you mean `{meant}`?"),
            ),
            (_, None) => {
                let hint = "remove it, or begin its name with `x-`";
                (format!("a compose file has no `{key}`"), hint.to_owned())
            }
        };
        report.refuse(field.key_place, key, message, hint);
    }
}

fn services_of(root: &Item) -> &[Field] {
    root.get("services").and_then(Item::fields).unwrap_or_default()
}

/// The services that run: those without profiles, and those with one that is asked for.
fn active<'p>(
    loaded: &'p Loaded,
    asked: &Asked,
    around: &Around<'_>,
    report: &mut Report,
) -> Option<Vec<&'p Field>> {
    let services = services_of(&loaded.root);
    if services.is_empty() {
        let place = loaded.root.place;
        report.refuse(
            place,
            "services",
            "there are no services",
            "write each below its name: `web: { image: nginx:1.27 }`",
        );
        return None;
    }
    let mut profiles = asked.profiles.clone();
    let by_variable = loaded
        .variables
        .get(around, "COMPOSE_PROFILES")
        .unwrap_or_default();
    profiles.extend(by_variable.split(',').map(|name| name.trim().to_owned()));
    let is_active = |field: &&Field| {
        let Some(own) = field.value.get("profiles") else {
            return true;
        };
        let mut own = own
            .items()
            .unwrap_or(std::slice::from_ref(own))
            .iter()
            .filter_map(Item::text);
        let wanted = |name: &str| profiles.iter().any(|profile| profile == name || profile == "*");
        own.any(wanted)
    };
    let mut active = Vec::new();
    let mut left_out = Vec::new();
    for field in services {
        if field.value.fields().is_none() {
            let message = format!("a service is a map, found {}", field.value.shown());
            report.refuse(
                field.key_place,
                &format!("services.{}", field.key),
                message,
                "write `image: …` below its name",
            );
        } else if is_active(&field) {
            active.push(field);
        } else {
            left_out.push(&*field.key);
        }
    }
    if let (Some(first), false) = (services.first(), left_out.is_empty()) {
        let message = format!(
            "left out, because no profile of theirs is asked for: {}",
            left_out.join(", ")
        );
        report.note(first.key_place, message);
    }
    if active.is_empty() && !report.is_refused() {
        let hint = "ask for one with `--profile`";
        report.refuse(
            loaded.root.place,
            "services",
            "every service has a profile, and none is asked for",
            hint,
        );
    }
    Some(active)
}

fn declared_volumes(root: &Item, report: &mut Report) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for field in root.get("volumes").and_then(Item::fields).unwrap_or_default() {
        names.insert(field.key.to_string());
        let at = format!("volumes.{}", field.key);
        for inner in field.value.fields().unwrap_or_default() {
            let is_plain = inner.value.is_nothing() || inner.value.fields().is_some_and(<[Field]>::is_empty);
            let text = inner.value.text().unwrap_or_default();
            match &*inner.key {
                "labels" => report.note(inner.key_place, "labels of a volume have no effect"),
                "external" if text == "false" => {}
                "driver" if text == "local" => {}
                "driver_opts" | "name" | "driver" | "external" if is_plain => {}
                "external" => report.refuse(
                    inner.key_place,
                    &at,
                    format!("the volume `{}` is not this file's own", field.key),
                    "remove `external`: a volume belongs to its deployment; what is in another one is copied into it once, or mount its folder as `/path:/data`",
                ),
                "name" => report.refuse(
                    inner.key_place,
                    &at,
                    format!("the volume `{}` cannot be called otherwise on its node", field.key),
                    "remove `name`: a volume belongs to its deployment and has its name there",
                ),
                "driver_opts" | "driver" => report.refuse(
                    inner.key_place,
                    &at,
                    format!("`{}` of a volume cannot be carried out: a volume is a folder of its node", inner.key),
                    "remove it; mount what the driver would mount on the host, and bind it as `/path:/data`",
                ),
                key if key.starts_with("x-") => {}
                key => report.refuse(inner.key_place, &at, format!("a volume has no `{key}`"), "remove it"),
            }
        }
    }
    names
}

/// Says that somebody waits for a service that does not run.
fn absent(field: &Field, at: &str, all: &BTreeSet<&str>, report: &mut Report) {
    let (message, hint) = match all.contains(&*field.key) {
        true => (
            format!(
                "`{}` is left out, because no profile of its own is asked for",
                field.key
            ),
            "ask for it with `--profile`, or write `required: false`".to_owned(),
        ),
        false => (
            format!("there is no service `{}`", field.key),
            nearest(&field.key, all.iter().copied()).map_or_else(
                || "check the name".to_owned(),
                |meant| format!("did you mean `{meant}`?"),
            ),
        ),
    };
    report.refuse(field.key_place, at, message, hint);
}

/// Who waits for whom. Whoever is awaited until it has completed is a job.
fn depends(
    drafts: &mut [Draft<'_>],
    known: &BTreeMap<String, ServiceName>,
    all: &BTreeSet<&str>,
    report: &mut Report,
) {
    let mut jobs: BTreeSet<ServiceName> = BTreeSet::new();
    for draft in drafts.iter_mut() {
        let Some(item) = draft.item.get("depends_on") else {
            continue;
        };
        let map = pairs::named(item.clone());
        let at = format!("services.{}.depends_on", draft.written);
        for field in map.fields().unwrap_or_default() {
            let flag = |name: &str| field.value.get(name).and_then(Item::text);
            let Some(service) = known.get(&*field.key) else {
                if flag("required") != Some("false") {
                    absent(field, &at, all, report);
                }
                continue;
            };
            let condition = match flag("condition") {
                None | Some("service_started") => Condition::Started,
                Some("service_healthy") => Condition::Healthy,
                Some("service_completed_successfully") => {
                    jobs.insert(service.clone());
                    Condition::Completed
                }
                Some(other) => {
                    let hint =
                        "write `service_started`, `service_healthy` or `service_completed_successfully`";
                    report.refuse(field.value.place, &at, format!("`{other}` is no condition"), hint);
                    continue;
                }
            };
            if flag("restart") == Some("true") {
                let message = format!(
                    "{}: it is not started again with `{}`, and has to connect anew by itself",
                    draft.written, field.key
                );
                report.note(field.value.place, message);
            }
            draft.spec.depends.push(Dependency {
                service: service.clone(),
                condition,
                timeout: Dependency::default_timeout(),
                on_timeout: match flag("required") {
                    Some("false") => OnTimeout::Warn,
                    Some(_) | None => OnTimeout::Fail,
                },
            });
        }
    }
    for draft in drafts.iter_mut().filter(|draft| jobs.contains(&draft.name)) {
        draft.spec.rtype = RType::Job;
        if draft.spec.scale == (ScaleSpec::Fixed { replicas: 0 }) {
            draft.spec.scale = ScaleSpec::default();
        }
    }
    // A job that ends cannot be waited for by its health.
    for draft in drafts.iter_mut() {
        let awaited = draft
            .spec
            .depends
            .iter_mut()
            .filter(|depends| jobs.contains(&depends.service));
        awaited.for_each(|depends| depends.condition = Condition::Completed);
    }
}

/// Who reaches whom: names beside the service's own, ports that neighbours call, and who may.
fn reach(drafts: &mut [Draft<'_>], networks: &Networks, report: &mut Report) {
    let count = drafts.len();
    let services: BTreeMap<&str, (ServiceName, &Item)> = drafts
        .iter()
        .map(|draft| (draft.written, (draft.name.clone(), draft.item)))
        .collect();
    let names = networks.names(&services, report);
    let specs: Vec<ServiceSpec> = drafts.iter().map(|draft| draft.spec.clone()).collect();
    let written: Vec<String> = drafts.iter().map(|draft| draft.written.to_owned()).collect();
    let service_names: Vec<ServiceName> = drafts.iter().map(|draft| draft.name.clone()).collect();
    for draft in drafts.iter_mut() {
        let runs_on = matches!(draft.spec.rtype, RType::Service | RType::System);
        let callers: Vec<usize> = (0..count)
            .filter(|other| networks.share(draft.written, &written[*other]))
            .collect();
        let is_open = callers.len() == count;
        if runs_on {
            for caller in &callers {
                let hosts = names
                    .of(&written[*caller], &draft.name)
                    .chain([draft.name.as_str(), draft.written]);
                for port in hosts
                    .flat_map(|host| mentions::ports_of(&specs[*caller], host))
                    .collect::<BTreeSet<_>>()
                {
                    if draft.endpoints.iter().all(|(endpoint, _)| endpoint.port != port) {
                        let message = format!(
                            "{}:{port} is called by {}: it is an endpoint of its own",
                            draft.written, written[*caller]
                        );
                        report.note(draft.item.place, message);
                        draft
                            .endpoints
                            .push((endpoints::internal(port, false), draft.item.place));
                    }
                }
            }
        }
        let allow: Option<Vec<Allowed>> = (!is_open).then(|| {
            let allowed = callers.iter().map(|caller| Allowed {
                deployment: None,
                service: service_names[*caller].clone(),
            });
            allowed.collect()
        });
        for (endpoint, _) in draft
            .endpoints
            .iter_mut()
            .filter(|(endpoint, _)| endpoint.expose == Expose::Internal)
        {
            endpoint.allow = allow.clone();
        }
        if runs_on && (!draft.endpoints.is_empty() || allow.is_some()) {
            draft.spec.image_ports = Some(ImagePorts { allow });
        }
        draft.spec.extra_hosts.extend(names.hosts(draft.written));
    }
}

/// What the rules of deployments find, at the places in the compose files that it comes from.
fn judge(spec: &DeploymentSpec, root: &Item, places: &[(FieldPath, Location)], report: &mut Report) {
    for finding in check_deployment(spec) {
        let parts = finding.path.parts();
        let holders = places.iter().filter(|(path, _)| parts.starts_with(path.parts()));
        let nearest = holders.max_by_key(|(path, _)| path.parts().len());
        let place = nearest.map_or(root.place, |(_, place)| *place);
        report.refuse(
            place,
            &finding.path.to_string(),
            finding.message,
            finding.hint.unwrap_or_default(),
        );
    }
}

//! What an administrator forbids on a node, whatever a deployment file says: a list of rules in the daemon's
//! configuration. The API judges files by it, and each node every replica before its start, since each daemon has
//! its own.

use serde::{Deserialize, Serialize};

use super::check::{FieldPath, SpecFinding, quoted};
use super::{DeploymentSpec, Runtime, ServiceSpec, Storage};

/// What is allowed. Everything, unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Host programs that run as root.
    pub root_processes: bool,
    /// Containers with `privileged`.
    pub privileged: bool,
    /// Containers with `capabilities.add`.
    pub added_capabilities: bool,
    /// Containers with `devices`.
    pub devices: bool,
    /// The folders of the host that `storage` may bind, with all below them; anything where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_binds: Option<Vec<String>>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            root_processes: true,
            privileged: true,
            added_capabilities: true,
            devices: true,
            host_binds: None,
        }
    }
}

/// One of its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    RootProcesses,
    Privileged,
    AddedCapabilities,
    Devices,
    HostBinds,
}

impl Rule {
    /// Its place in the configuration.
    pub fn key(self) -> &'static str {
        match self {
            Self::RootProcesses => "policy.root_processes",
            Self::Privileged => "policy.privileged",
            Self::AddedCapabilities => "policy.added_capabilities",
            Self::Devices => "policy.devices",
            Self::HostBinds => "policy.host_binds",
        }
    }
}

/// What a rule does not let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    pub rule: Rule,
    /// Below the service.
    pub field: FieldPath,
    pub what: String,
    pub hint: String,
}

impl Forbidden {
    fn new(rule: Rule, field: FieldPath, what: String, hint: &str) -> Self {
        let hint = hint.to_owned();
        Self {
            rule,
            field,
            what,
            hint,
        }
    }
}

impl std::fmt::Display for Forbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} (rule `{}` of the daemon's configuration)",
            self.what,
            self.rule.key()
        )
    }
}

/// What only the host knows. The answers of one that cannot know are about the words alone.
pub trait HostFacts {
    /// Whether a program of this user, or of none that is named, runs as root.
    fn is_root(&self, user: Option<&str>) -> bool;
    /// The group that a program of this user runs with and the user is not in. One of these may be as good as root's:
    /// that of the disks, or of those who may start containers.
    fn foreign_group(&self, user: &str) -> Option<String>;
    /// Whether what a bind's source leads to lies in one of these folders.
    fn lies_in(&self, source: &str, folders: &[String]) -> bool;
}

impl Policy {
    /// All that is forbidden of a deployment, by its place in the file.
    pub fn check_deployment(&self, deployment: &DeploymentSpec, host: &dyn HostFacts) -> Vec<SpecFinding> {
        let mut findings = Vec::new();
        for (name, spec) in &deployment.services {
            let at = FieldPath::of("services").key(name.to_string());
            let mut seen: Vec<Forbidden> = Vec::new();
            for role in spec.roles() {
                for found in self.check(&spec.for_role(&role), host) {
                    if !seen.contains(&found) {
                        seen.push(found);
                    }
                }
            }
            findings.extend(seen.into_iter().map(|found| {
                let place = found
                    .field
                    .parts()
                    .iter()
                    .fold(at.clone(), |at, part| at.with(part.clone()));
                SpecFinding::at(place, found.to_string()).hint(found.hint)
            }));
        }
        findings
    }

    /// All that is forbidden of what one role runs.
    pub fn check(&self, spec: &ServiceSpec, host: &dyn HostFacts) -> Vec<Forbidden> {
        let mut found = match spec.runtime() {
            Runtime::Process if !self.root_processes => {
                let mut found = of_root(spec, host);
                found.extend(steps_of_root(spec, host));
                found
            }
            Runtime::Process | Runtime::Container => Vec::new(),
        };
        let mut forbid = |rule, field: FieldPath, what: String, hint: &str| {
            found.push(Forbidden::new(rule, field, what, hint));
        };
        if !self.privileged && spec.privileged {
            forbid(
                Rule::Privileged,
                FieldPath::of("privileged"),
                "`privileged` is forbidden here".to_owned(),
                "remove it; `capabilities` and `devices` give less",
            );
        }
        if !self.added_capabilities && !spec.capabilities.add.is_empty() {
            forbid(
                Rule::AddedCapabilities,
                FieldPath::of("capabilities").key("add"),
                "added capabilities are forbidden here".to_owned(),
                "remove them, or ask the administrator",
            );
        }
        if !self.devices && !spec.devices.is_empty() {
            forbid(
                Rule::Devices,
                FieldPath::of("devices"),
                "devices of the host are forbidden here".to_owned(),
                "remove them, or ask the administrator",
            );
        }
        if let Some(folders) = &self.host_binds {
            for (position, storage) in spec.storage.iter().enumerate() {
                let Storage::Bind { source, .. } = storage else {
                    continue;
                };
                if !host.lies_in(source, folders) {
                    let allowed: Vec<String> = folders.iter().map(|folder| quoted(folder)).collect();
                    let hint = match allowed.as_slice() {
                        [] => "use `named` storage: no folder of the host may be bound".to_owned(),
                        some => format!("bind something below {}, or use `named` storage", some.join(", ")),
                    };
                    forbid(
                        Rule::HostBinds,
                        FieldPath::of("storage").index(position).key("source"),
                        format!("{} must not be bound here", quoted(source)),
                        &hint,
                    );
                }
            }
        }
        found
    }
}

/// What of a host program would make it root, or let it become root.
fn of_root(spec: &ServiceSpec, host: &dyn HostFacts) -> Vec<Forbidden> {
    let forbidden =
        |field, what: String, hint| Forbidden::new(Rule::RootProcesses, FieldPath::of(field), what, hint);
    if host.is_root(spec.user.as_deref()) {
        return vec![forbidden(
            "user",
            "host programs must not run as root here".to_owned(),
            "give the service a `user` that is not root, such as `user: nobody`",
        )];
    }
    let mut found = Vec::new();
    if spec.no_new_privileges == Some(false) {
        found.push(forbidden(
            "no_new_privileges",
            "host programs must not be able to become root here".to_owned(),
            "remove `no_new_privileges: false`: with it a program with the set-user-id bit, which a container can put \
             into a folder of the host, runs as root",
        ));
    }
    let foreign = spec.user.as_deref().and_then(|user| host.foreign_group(user));
    if let Some(group) = foreign {
        found.push(forbidden(
            "user",
            format!(
                "host programs must not run with a group that their user is not in: {}",
                quoted(&group)
            ),
            "leave the group out, or put the user into it; a number that is nobody's has a group that is nobody's too, \
             such as `user: 4242:4242`",
        ));
    }
    found
}

/// The same of its steps that run as another user.
fn steps_of_root(spec: &ServiceSpec, host: &dyn HostFacts) -> Vec<Forbidden> {
    let mut found = Vec::new();
    for (position, step) in spec.init_steps.iter().enumerate() {
        if step.user.is_none() {
            continue;
        }
        let place = FieldPath::of("init_steps").index(position);
        let own = of_root(&spec.for_step(step), host).into_iter();
        let of_user = own.filter(|forbidden| forbidden.field == FieldPath::of("user"));
        found.extend(of_user.map(|forbidden| Forbidden {
            field: place.key("user"),
            ..forbidden
        }));
    }
    found
}

/// A policy for files, before it is known where their replicas run.
#[derive(Clone, Debug)]
pub struct FilePolicy {
    pub policy: Policy,
    pub host: WordsOnly,
}

impl FilePolicy {
    pub fn check(&self, deployment: &DeploymentSpec) -> Vec<SpecFinding> {
        self.policy.check_deployment(deployment, &self.host)
    }
}

/// Judges by the words alone: each node asks its own policy again, and looks closer.
#[derive(Clone, Copy, Debug)]
pub struct WordsOnly {
    /// Whether programs without a `user` run as root.
    pub runs_as_root: bool,
}

impl HostFacts for WordsOnly {
    fn is_root(&self, user: Option<&str>) -> bool {
        let Some(user) = user else {
            return self.runs_as_root;
        };
        let name = user.split(':').next().unwrap_or_default();
        name == "root" || name.parse::<u32>() == Ok(0)
    }

    fn foreign_group(&self, _: &str) -> Option<String> {
        None
    }

    fn lies_in(&self, source: &str, folders: &[String]) -> bool {
        let source = parts(source);
        !source.contains(&"..") && folders.iter().any(|folder| source.starts_with(&parts(folder)))
    }
}

/// The parts of a path that make a difference.
fn parts(path: &str) -> Vec<&str> {
    path.split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::{DeploymentName, ServiceName};
    use crate::spec::{Capabilities, CommandSpec, ImageSpec, SpecVersion};

    fn strict() -> Policy {
        Policy {
            root_processes: false,
            privileged: false,
            added_capabilities: false,
            devices: false,
            host_binds: Some(vec!["/srv/".into()]),
        }
    }

    fn everything() -> ServiceSpec {
        let bind = |source: &str| Storage::Bind {
            source: source.into(),
            target: "/t".into(),
            read_only: false,
        };
        ServiceSpec {
            image: Some(ImageSpec::named("nginx")),
            privileged: true,
            capabilities: Capabilities {
                add: vec!["NET_ADMIN".into()],
                drop: Vec::new(),
            },
            devices: vec!["/dev/fuse".into()],
            storage: vec![
                bind("/srv/data"),
                bind("/srv/../etc"),
                bind("/srvx"),
                bind("/srv"),
            ],
            ..ServiceSpec::default()
        }
    }

    #[test]
    fn each_rule_is_named_with_its_place() {
        let deployment = DeploymentSpec {
            version: SpecVersion::V1,
            deployment: DeploymentName::new("shop").unwrap(),
            services: [(ServiceName::new("web").unwrap(), Arc::new(everything()))].into(),
            scaled: Default::default(),
            configs: Default::default(),
        };
        let host = WordsOnly { runs_as_root: true };
        let found = strict().check_deployment(&deployment, &host);
        let shown: Vec<String> = found
            .iter()
            .map(|finding| format!("{}: {}", finding.path, finding.message))
            .collect();
        assert_eq!(
            shown,
            [
                "services.web.privileged: `privileged` is forbidden here (rule `policy.privileged` of the daemon's \
                 configuration)",
                "services.web.capabilities.add: added capabilities are forbidden here (rule \
                 `policy.added_capabilities` of the daemon's configuration)",
                "services.web.devices: devices of the host are forbidden here (rule `policy.devices` of the daemon's \
                 configuration)",
                "services.web.storage[1].source: `/srv/../etc` must not be bound here (rule `policy.host_binds` of the \
                 daemon's configuration)",
                "services.web.storage[2].source: `/srvx` must not be bound here (rule `policy.host_binds` of the \
                 daemon's configuration)",
            ]
        );
        assert_eq!(Policy::default().check_deployment(&deployment, &host), Vec::new());
    }

    #[test]
    fn root_is_found_under_all_its_names() {
        let process = |user: Option<&str>| ServiceSpec {
            command: Some(CommandSpec {
                args: Some(vec!["/bin/true".into()]),
                ..CommandSpec::default()
            }),
            user: user.map(str::to_owned),
            ..ServiceSpec::default()
        };
        let is_refused = |user, runs_as_root| {
            let found = strict().check(&process(user), &WordsOnly { runs_as_root });
            found.iter().any(|found| found.rule == Rule::RootProcesses)
        };
        for user in ["root", "0", "00", "0:1000", "root:nogroup"] {
            assert!(is_refused(Some(user), false), "{user}");
        }
        let free = |no_new_privileges| ServiceSpec {
            no_new_privileges,
            ..process(Some("nobody"))
        };
        for (chosen, count) in [(Some(false), 1), (Some(true), 0), (None, 0)] {
            let found = strict().check(&free(chosen), &WordsOnly { runs_as_root: true });
            assert_eq!(found.len(), count, "{chosen:?}");
        }
        assert!(is_refused(None, true));
        assert!(!is_refused(None, false));
        assert!(!is_refused(Some("nobody"), true) && !is_refused(Some("1000:0"), true));
        let container = everything();
        let found = strict().check(&container, &WordsOnly { runs_as_root: true });
        assert!(found.iter().all(|found| found.rule != Rule::RootProcesses));
    }
}

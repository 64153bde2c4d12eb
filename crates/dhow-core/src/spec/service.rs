//! One service of a deployment, and the questions that the rest of the system asks of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::command::{CommandSpec, ImageSpec, Resources, Runtime};
use super::endpoint::{Endpoint, ImagePorts};
use super::files::FileMount;
use super::health::{HealthSpec, RestartSpec, StopSpec};
use super::jobs::{Concurrency, InitStep, JobSpec, Missed};
use super::percent::Percent;
use super::placement::{Affinity, NodeMode, NodeSelector, Platform, Reschedule};
use super::rollout::RolloutSpec;
use super::scale::{Dependency, ReplicaGroup, ScaleSpec};
use super::storage::Storage;
use crate::ids::RoleName;

/// What kind of thing a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RType {
    #[default]
    Service,
    /// Runs to completion.
    Job,
    /// A job on a schedule.
    Cron,
    /// One replica on every node that fits.
    System,
}

/// What becomes of replicas on a node that has come back after a reboot, for as long as no server has said that they
/// are still its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Offline {
    /// They wait: they may run elsewhere by now.
    #[default]
    Wait,
    /// They start, even if they then run twice.
    Run,
}

impl Offline {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Rights of root's that a container gets beside the usual ones, or lacks of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<String>,
}

/// A limit of the kernel for the processes of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ulimit {
    pub soft: u64,
    pub hard: u64,
}

fn default_priority() -> u8 {
    50
}

/// Everything that a deployment file says of one service, or of one role of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceSpec {
    #[serde(default)]
    pub rtype: RType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// The ports that its image names are endpoints too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_ports: Option<ImagePorts>,
    /// Left out where it is the default, so that a written spec with groups has no `scale` beside them.
    #[serde(default, skip_serializing_if = "ScaleSpec::is_default")]
    pub scale: ScaleSpec,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replica_groups: Vec<ReplicaGroup>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<Dependency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthSpec>,
    #[serde(default)]
    pub restart: RestartSpec,
    #[serde(default)]
    pub rollout: RolloutSpec,
    #[serde(default)]
    pub stop: StopSpec,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<Storage>,
    #[serde(default)]
    pub node_selector: NodeSelector,
    #[serde(default)]
    pub affinity: Affinity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_by: Option<String>,
    #[serde(default)]
    pub node_mode: NodeMode,
    #[serde(default)]
    pub platform: Platform,
    #[serde(default)]
    pub reschedule: Reschedule,
    #[serde(default = "default_priority")]
    pub priority: u8,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default)]
    pub read_only_root_fs: bool,
    #[serde(default)]
    pub capabilities: Capabilities,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ulimits: BTreeMap<String, Ulimit>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    #[serde(default)]
    pub privileged: bool,
    #[serde(default)]
    pub init: bool,
    /// Nothing that it starts gains rights, as by set-user-id. A reader of files always fills it in; a spec without
    /// it was stored before there was such a field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_new_privileges: Option<bool>,
    #[serde(default, skip_serializing_if = "Offline::is_default")]
    pub offline: Offline,
    /// Configs of the deployment that it sees as files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub configs: Vec<FileMount>,
    /// Secrets of the cluster that it sees as files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<FileMount>,
    #[serde(default, skip_serializing_if = "JobSpec::is_default")]
    pub job: JobSpec,
    /// Where the times of `schedule` are read off the clock, by its IANA name; UTC where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// What runs before its program, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub init_steps: Vec<InitStep>,
    /// No node runs more of its replicas, whatever their version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_node: Option<u32>,
    /// No group of nodes that have a label with the same value runs more of its replicas, by the name of the label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_per: BTreeMap<String, u32>,
    /// How much of it each value of the label of `spread_by` is to have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread_percent: BTreeMap<String, Percent>,
}

impl Default for ServiceSpec {
    fn default() -> Self {
        Self {
            rtype: RType::default(),
            schedule: None,
            runtime: None,
            image: None,
            command: None,
            env: BTreeMap::new(),
            resources: Resources::default(),
            endpoints: Vec::new(),
            image_ports: None,
            scale: ScaleSpec::default(),
            replica_groups: Vec::new(),
            depends: Vec::new(),
            health: None,
            restart: RestartSpec::default(),
            rollout: RolloutSpec::default(),
            stop: StopSpec::default(),
            storage: Vec::new(),
            node_selector: NodeSelector::default(),
            affinity: Affinity::default(),
            spread_by: None,
            node_mode: NodeMode::default(),
            platform: Platform::default(),
            reschedule: Reschedule::default(),
            priority: default_priority(),
            labels: BTreeMap::new(),
            user: None,
            read_only_root_fs: false,
            capabilities: Capabilities::default(),
            ulimits: BTreeMap::new(),
            sysctls: BTreeMap::new(),
            hostname: None,
            dns: Vec::new(),
            extra_hosts: Vec::new(),
            devices: Vec::new(),
            privileged: false,
            init: false,
            no_new_privileges: None,
            offline: Offline::default(),
            configs: Vec::new(),
            secrets: Vec::new(),
            job: JobSpec::default(),
            zone: None,
            concurrency: None,
            missed: None,
            init_steps: Vec::new(),
            max_per_node: None,
            max_per: BTreeMap::new(),
            spread_percent: BTreeMap::new(),
        }
    }
}

impl ServiceSpec {
    /// How its replicas run: as the spec says, else by whether it has an image.
    pub fn runtime(&self) -> Runtime {
        match self.runtime {
            Some(runtime) => runtime,
            None if self.image.is_some() => Runtime::Container,
            None => Runtime::Process,
        }
    }

    /// Whether replicas end by themselves when their work is done.
    pub fn runs_to_completion(&self) -> bool {
        matches!(self.rtype, RType::Job | RType::Cron)
    }

    /// Whether a replica is bound to the node that keeps its volume.
    pub fn has_named_storage(&self) -> bool {
        self.storage
            .iter()
            .any(|storage| matches!(storage, Storage::Named { .. }))
    }

    /// Whether its replicas start on a node that has come back before a server has confirmed them: no other node can
    /// have taken them over, or the user allows that they run twice.
    pub fn starts_unconfirmed(&self) -> bool {
        self.rtype == RType::System || self.has_named_storage() || self.offline == Offline::Run
    }

    /// The roles in the order of the spec; `default` alone without groups.
    pub fn roles(&self) -> Vec<RoleName> {
        if self.replica_groups.is_empty() {
            return vec![RoleName::fallback()];
        }
        self.replica_groups
            .iter()
            .map(|group| group.role.clone())
            .collect()
    }

    /// The group of a role, where the spec has groups.
    pub fn group(&self, role: &RoleName) -> Option<&ReplicaGroup> {
        self.replica_groups.iter().find(|group| group.role == *role)
    }

    /// How many replicas of a role a first deployment asks for.
    pub fn desired_at_first(&self, role: &RoleName) -> u32 {
        if self.replica_groups.is_empty() {
            return match *role == RoleName::fallback() {
                true => self.desired_total_at_first(),
                false => 0,
            };
        }
        self.group(role).map_or(0, |group| group.count)
    }

    /// How many replicas a first deployment asks for over all roles.
    pub fn desired_total_at_first(&self) -> u32 {
        if self.replica_groups.is_empty() {
            let scaled = self.scale.desired_at_first();
            return self.completions().unwrap_or(scaled);
        }
        self.replica_groups
            .iter()
            .fold(0, |sum, group| sum.saturating_add(group.count))
    }

    /// What one replica of a role reserves.
    pub fn resources_of(&self, role: &RoleName) -> Resources {
        self.group(role)
            .and_then(|group| group.resources)
            .unwrap_or(self.resources)
    }

    /// How replicas of a role lie to each other.
    pub fn affinity_of(&self, role: &RoleName) -> Affinity {
        let mut affinity = self
            .group(role)
            .and_then(|group| group.affinity.as_ref())
            .unwrap_or(&self.affinity)
            .clone();
        affinity.spread_by = affinity.spread_by.or_else(|| self.spread_by.clone());
        affinity
    }

    /// How many replicas more than promised a rollout may run. A volume cannot be in two places, and a job's work
    /// is not to be done twice at a time.
    pub fn max_surge(&self) -> u32 {
        self.rollout
            .max_surge
            .unwrap_or(if self.is_one_at_a_time() { 0 } else { 1 })
    }

    /// How many replicas fewer than promised a rollout may leave.
    pub fn max_unavailable(&self) -> u32 {
        self.rollout
            .max_unavailable
            .unwrap_or(if self.is_one_at_a_time() { 1 } else { 0 })
    }

    fn is_one_at_a_time(&self) -> bool {
        self.has_named_storage() || self.runs_to_completion()
    }

    /// The spec as a replica of this role runs it: the group's own image, command, environment and
    /// resources in place of the service's.
    pub fn for_role(&self, role: &RoleName) -> ServiceSpec {
        let mut spec = self.clone();
        spec.replica_groups = Vec::new();
        if let Some(group) = self.group(role) {
            spec.image = group.image.clone().or(spec.image);
            spec.command = group.command.clone().or(spec.command);
            spec.env.extend(group.env.clone());
            spec.resources = group.resources.unwrap_or(spec.resources);
            spec.affinity = group.affinity.clone().unwrap_or(spec.affinity);
        }
        spec
    }

    /// Whether replacing `self` by `next` must replace running replicas, or can be taken over in place.
    /// Counts, deadlines, checks, restart and stop rules, endpoints and priorities apply to what runs.
    pub fn rolls_into(&self, next: &ServiceSpec) -> bool {
        let (mut own, mut other) = (self.template(), next.template());
        own.no_new_privileges = self.known_no_new_privileges();
        other.no_new_privileges = next.known_no_new_privileges();
        if own.no_new_privileges.is_none() || other.no_new_privileges.is_none() {
            // What runs is not replaced for a default that it did not have.
            own.no_new_privileges = None;
            other.no_new_privileges = None;
        }
        own != other
    }

    /// Whether an endpoint says who may call it in words that came with feature level 3.
    pub fn has_callers(&self) -> bool {
        self.endpoints.iter().any(Endpoint::has_callers)
    }

    /// The spec for a reader of a version that does not know those words.
    pub fn without_callers(&self) -> ServiceSpec {
        let endpoints = self.endpoints.iter().map(Endpoint::without_callers);
        ServiceSpec {
            endpoints: endpoints.collect(),
            ..self.clone()
        }
    }

    /// The endpoints whose ports the driver hands to a host program at its start, in that order. A container listens on
    /// its own ports, whatever stands in the file.
    fn ports_by_name(&self) -> Vec<&str> {
        match self.runtime() {
            Runtime::Container => Vec::new(),
            Runtime::Process => self
                .endpoints
                .iter()
                .map(|endpoint| endpoint.name.as_str())
                .collect(),
        }
    }

    /// Whether a deployment replaces them, by the rules of a feature level, so that servers of two versions answer
    /// alike. From level 2 on a host program learns by a new start that it is to listen for an endpoint of another
    /// name.
    pub fn rolls_into_at(&self, next: &ServiceSpec, feature_level: u32) -> bool {
        if feature_level >= 2 {
            return self.rolls_into(next) || self.ports_by_name() != next.ports_by_name();
        }
        let old = |spec: &ServiceSpec| ServiceSpec {
            no_new_privileges: None,
            ..spec.template()
        };
        old(self) != old(next)
    }

    /// Whether nothing that a replica starts gains rights. Processes whose spec does not say so are older than the
    /// field, and keep what they had.
    pub fn has_no_new_privileges(&self) -> bool {
        self.known_no_new_privileges().unwrap_or(false)
    }

    fn known_no_new_privileges(&self) -> Option<bool> {
        match self.runtime() {
            Runtime::Container => Some(self.no_new_privileges.unwrap_or(!self.privileged)),
            Runtime::Process => self.no_new_privileges,
        }
    }

    /// The spec without what can change under a running replica.
    fn template(&self) -> ServiceSpec {
        let plain = ServiceSpec::default();
        let mut groups: Vec<ReplicaGroup> = self.replica_groups.clone();
        for group in &mut groups {
            group.count = 0;
            group.affinity = None;
        }
        groups.sort_by(|a, b| a.role.cmp(&b.role));
        // A group that only names its role runs what the service runs: adding one rolls nothing.
        groups.retain(|group| {
            group.image.is_some()
                || group.command.is_some()
                || group.resources.is_some()
                || !group.env.is_empty()
        });
        ServiceSpec {
            schedule: None,
            job: plain.job,
            zone: None,
            concurrency: None,
            missed: None,
            scale: plain.scale,
            replica_groups: groups,
            depends: plain.depends,
            health: plain.health,
            restart: plain.restart,
            rollout: plain.rollout,
            stop: plain.stop,
            endpoints: plain.endpoints,
            image_ports: plain.image_ports,
            affinity: plain.affinity,
            spread_by: plain.spread_by,
            max_per_node: plain.max_per_node,
            max_per: plain.max_per,
            spread_percent: plain.spread_percent,
            reschedule: plain.reschedule,
            priority: plain.priority,
            offline: plain.offline,
            configs: self.configs.iter().map(FileMount::template).collect(),
            secrets: self.secrets.iter().map(FileMount::template).collect(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(no_new_privileges: Option<bool>) -> ServiceSpec {
        ServiceSpec {
            command: Some(CommandSpec::default()),
            no_new_privileges,
            ..ServiceSpec::default()
        }
    }

    fn container(no_new_privileges: Option<bool>) -> ServiceSpec {
        ServiceSpec {
            image: Some(ImageSpec::named("nginx")),
            no_new_privileges,
            ..ServiceSpec::default()
        }
    }

    #[test]
    fn a_default_that_is_new_rolls_nothing_and_a_choice_does() {
        let (on, off) = (Some(true), Some(false));
        for next in [on, off] {
            assert!(!process(None).rolls_into(&process(next)), "{next:?}");
        }
        assert!(process(on).rolls_into(&process(off)) && process(off).rolls_into(&process(on)));
        assert!(!container(None).rolls_into(&container(on)));
        assert!(container(None).rolls_into(&container(off)));
        // Servers that do not know the field must answer as those that do.
        assert!(!process(on).rolls_into_at(&process(off), 1));
        assert!(process(on).rolls_into_at(&process(off), 2));
        assert!(container(on).rolls_into_at(&process(on), 1));
    }

    #[test]
    fn a_host_program_is_told_of_another_endpoint_by_a_start() {
        let endpoint = |name: &str, port| Endpoint::new(name, super::super::Protocol::Http, port);
        let with = |spec: ServiceSpec, endpoints: &[Endpoint]| ServiceSpec {
            endpoints: endpoints.to_vec(),
            ..spec
        };
        let (http, moved, admin) = (endpoint("http", 80), endpoint("http", 81), endpoint("admin", 90));
        let before = with(process(None), std::slice::from_ref(&http));
        let moved = with(process(None), std::slice::from_ref(&moved));
        assert!(!before.rolls_into_at(&moved, 2));
        let more = with(process(None), &[http.clone(), admin.clone()]);
        assert!(before.rolls_into_at(&more, 2) && !before.rolls_into_at(&more, 1));
        // The first one's port is what `PORT` says.
        let other_order = with(process(None), &[admin.clone(), http.clone()]);
        assert!(more.rolls_into_at(&other_order, 2));
        let in_container = with(container(None), std::slice::from_ref(&http));
        assert!(!in_container.rolls_into_at(&with(container(None), &[http, admin]), 2));
    }

    #[test]
    fn what_was_deployed_before_keeps_what_it_had() {
        assert!(!process(None).has_no_new_privileges());
        assert!(process(Some(true)).has_no_new_privileges());
        assert!(container(None).has_no_new_privileges());
        let privileged = ServiceSpec {
            privileged: true,
            ..container(None)
        };
        assert!(!privileged.has_no_new_privileges());
        let stored: ServiceSpec = serde_json::from_str(r#"{"command":["true"]}"#).unwrap();
        assert_eq!(stored.no_new_privileges, None);
    }
}

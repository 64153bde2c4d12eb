//! One service: every field of the language, in the order of its documentation.

use dhow_core::spec::check::{FieldPath, beside_groups};
use dhow_core::spec::{Offline, ScaleSpec, ServiceSpec};

use super::{
    Reading, endpoint, env, files, health, host, jobs, placement, rollout, scale, storage, workload,
};
use crate::document::{Decoder, Fields, Node, flag, integer, list_of, loose_text, text, text_map};

/// What other tools call it, with what to write here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("build", "images are built elsewhere: name one with `image`"),
    ("cap_add", "write `capabilities: { add: [...] }`"),
    ("cap_drop", "write `capabilities: { drop: [...] }`"),
    ("container_name", "replicas are named by their service: remove it"),
    (
        "concurrencyPolicy",
        "write `concurrency: allow`, `forbid` or `replace`",
    ),
    ("cpus", "write `resources: { cpu: 0.5 }`"),
    ("completions", "write `job: { completions: 10 }`"),
    ("cron", "write `rtype: cron` and `schedule`"),
    ("deadline", "write `job: { deadline: 30m }`"),
    (
        "depends_on",
        "write `depends: [{ service: db, condition: healthy }]`",
    ),
    (
        "deploy",
        "write `scale`, `resources`, `rollout` and `restart` on the service itself",
    ),
    ("entrypoint", "write `command: { entrypoint: [...] }`"),
    ("args", "write `command: { args: [...] }`"),
    ("environment", "write `env`"),
    (
        "expose",
        "write `endpoints: [{ name: http, protocol: http, port: 8080 }]`",
    ),
    (
        "healthcheck",
        "write `health: { check: { type: http, url: /healthz } }`",
    ),
    ("init_containers", "write `init: [{ command: [./migrate] }]`"),
    ("initContainers", "write `init: [{ command: [./migrate] }]`"),
    ("keep", "write `job: { keep: 5 }`"),
    ("mem_limit", "write `resources: { memory: 256Mi }`"),
    ("memory", "write `resources: { memory: 256Mi }`"),
    ("networks", "services reach each other without one: remove it"),
    ("parallelism", "write `job: { parallelism: 2 }`"),
    ("pids_limit", "write `resources: { pids: 200 }`"),
    (
        "ports",
        "write `endpoints: [{ name: http, protocol: http, port: 8080 }]`",
    ),
    (
        "pull_policy",
        "write `image: { name: nginx:1.27, pull_policy: always }`",
    ),
    ("read_only", "write `read_only_root_fs`"),
    ("replicas", "write `scale: { mode: fixed, replicas: 3 }`"),
    ("stop_grace_period", "write `stop: { grace: 10s }`"),
    ("stop_signal", "write `stop: { signal: SIGTERM }`"),
    ("startingDeadlineSeconds", "write `missed: skip`"),
    ("timeZone", "write `zone`"),
    ("time_zone", "write `zone`"),
    ("timezone", "write `zone`"),
    ("tmpfs", "write `storage: [{ type: tmpfs, target: /tmp }]`"),
    ("type", "write `rtype`"),
    ("update", "write `rollout`"),
    ("update_config", "write `rollout`"),
    (
        "volumes",
        "write `storage: [{ type: named, name: data, target: /data }]`",
    ),
    ("working_dir", "write `command: { workdir: /app }`"),
    ("workdir", "write `command: { workdir: /app }`"),
];

pub(super) fn read(decoder: &mut Decoder, node: &Node, reading: &mut Reading<'_>) -> Option<ServiceSpec> {
    let at = decoder.path().clone();
    let mut fields = Fields::open(
        decoder,
        node,
        "a service",
        "its fields below it, such as `image: nginx:1.27`",
    )?;
    fields.elsewhere(ELSEWHERE);
    let mut spec = ServiceSpec::default();
    read_work(&mut fields, &mut spec, reading);
    read_rules(&mut fields, &mut spec);
    read_placement(&mut fields, &mut spec);
    read_host(&mut fields, &mut spec);
    read_init(&mut fields, &mut spec, reading, &at);
    let says_both = fields.has("scale") && fields.has("replica_groups");
    fields.close();
    let before = reading.found.len();
    reading.found.extend(jobs::zone_finding(&at, &spec, before));
    // A `scale` that differs from the default is found by the rules of the spec.
    if says_both && spec.scale == ScaleSpec::default() {
        reading.found.push(beside_groups(&at));
    }
    Some(spec)
}

fn read_work(fields: &mut Fields<'_, '_>, spec: &mut ServiceSpec, reading: &mut Reading<'_>) {
    spec.rtype = fields.or("rtype", spec.rtype, workload::rtype);
    spec.schedule = fields.optional("schedule", text);
    spec.zone = fields.optional("zone", text);
    spec.concurrency = fields.optional("concurrency", jobs::concurrency);
    spec.missed = fields.optional("missed", jobs::missed);
    spec.job = fields.optional("job", jobs::job).unwrap_or_default();
    spec.runtime = fields.optional("runtime", workload::runtime);
    spec.image = fields.optional("image", workload::image);
    spec.command = fields.optional("command", workload::command);
    let env = fields.optional("env", |decoder, node| env::read(decoder, node, reading));
    // What the service says itself has the last word.
    let mut all = fields
        .optional("env_file", |decoder, node| {
            env::read_files(decoder, node, reading)
        })
        .unwrap_or_default();
    all.extend(env.unwrap_or_default());
    spec.env = all;
    spec.resources = fields
        .optional("resources", workload::resources)
        .unwrap_or_default();
    spec.endpoints = fields
        .optional("endpoints", endpoint::endpoints)
        .unwrap_or_default();
    spec.image_ports = fields.optional("image_ports", endpoint::image_ports);
    spec.scale = fields.optional("scale", scale::scale).unwrap_or_default();
    let groups = fields.optional("replica_groups", |decoder, node| {
        scale::groups(decoder, node, reading)
    });
    spec.replica_groups = groups.unwrap_or_default();
}

fn read_rules(fields: &mut Fields<'_, '_>, spec: &mut ServiceSpec) {
    spec.depends = fields.optional("depends", scale::depends).unwrap_or_default();
    spec.health = fields.optional("health", health::health);
    spec.restart = fields.optional("restart", health::restart).unwrap_or_default();
    spec.rollout = fields.optional("rollout", rollout::rollout).unwrap_or_default();
    spec.stop = fields.optional("stop", health::stop).unwrap_or_default();
    spec.storage = fields.optional("storage", storage::storage).unwrap_or_default();
    spec.configs = fields.optional("configs", files::mounts).unwrap_or_default();
    spec.secrets = fields.optional("secrets", files::mounts).unwrap_or_default();
}

fn read_placement(fields: &mut Fields<'_, '_>, spec: &mut ServiceSpec) {
    spec.node_selector = fields
        .optional("node_selector", placement::node_selector)
        .unwrap_or_default();
    spec.affinity = fields
        .optional("affinity", placement::affinity)
        .unwrap_or_default();
    spec.spread_by = fields.optional("spread_by", text);
    spec.spread_percent = fields.or("spread_percent", spec.spread_percent.clone(), placement::shares);
    spec.max_per_node = fields.optional("max_per_node", placement::count);
    spec.max_per = fields.or("max_per", spec.max_per.clone(), placement::max_per);
    spec.node_mode = fields.or("node_mode", spec.node_mode, placement::node_mode);
    spec.platform = fields
        .optional("platform", placement::platform)
        .unwrap_or_default();
    spec.reschedule = fields
        .optional("reschedule", placement::reschedule)
        .unwrap_or_default();
    spec.priority = fields.or("priority", spec.priority, |decoder, node| {
        integer(decoder, node, 1, 100).map(|priority| priority as u8)
    });
}

fn read_init(fields: &mut Fields<'_, '_>, spec: &mut ServiceSpec, reading: &mut Reading<'_>, at: &FieldPath) {
    let init = fields.optional("init", |decoder, node| jobs::init(decoder, node, reading));
    (spec.init, spec.init_steps) = init.unwrap_or_default();
    if !spec.init_steps.is_empty() {
        reading.inits.push(at.clone());
    }
    let steps = fields.optional("init_steps", |decoder, node| jobs::steps(decoder, node, reading));
    if let Some(mut steps) = steps {
        // One list after the other, where somebody writes both.
        spec.init_steps.append(&mut steps);
    }
}

fn read_host(fields: &mut Fields<'_, '_>, spec: &mut ServiceSpec) {
    const ADDRESSES: &str = "such as `[1.1.1.1]`";
    spec.labels = fields.optional("labels", text_map).unwrap_or_default();
    spec.user = fields.optional("user", loose_text);
    spec.read_only_root_fs = fields.or("read_only_root_fs", false, flag);
    spec.capabilities = fields
        .optional("capabilities", host::capabilities)
        .unwrap_or_default();
    spec.ulimits = fields.optional("ulimits", host::ulimits).unwrap_or_default();
    spec.sysctls = fields.optional("sysctls", text_map).unwrap_or_default();
    spec.hostname = fields.optional("hostname", text);
    spec.dns = fields.or("dns", Vec::new(), list_of("a list of addresses", ADDRESSES));
    spec.extra_hosts = fields.or(
        "extra_hosts",
        Vec::new(),
        list_of("a list", "such as `[\"db:10.0.0.5\"]`"),
    );
    spec.devices = fields.or("devices", Vec::new(), list_of("a list", "such as `[/dev/fuse]`"));
    spec.privileged = fields.or("privileged", false, flag);
    let no_new_privileges = fields.optional("no_new_privileges", flag);
    spec.no_new_privileges = Some(no_new_privileges.unwrap_or(!spec.privileged));
    spec.offline = fields.or("offline", Offline::default(), workload::offline);
}

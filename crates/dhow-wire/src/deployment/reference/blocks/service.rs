//! The rows of the file, of a service and of what it runs.

use super::super::Kind;
use super::{Field, row};

pub(super) const FILE: &[Field] = &[
    row(
        "version",
        Kind::Words(&["v1"]),
        "required",
        "The version of this language.",
    ),
    row(
        "deployment",
        Kind::Text,
        "required",
        "The name: 3 to 63 characters, a–z, 0–9 and -, beginning with a letter.",
    ),
    row(
        "services",
        Kind::Map(&Kind::Block("service")),
        "required",
        "Services by name.",
    ),
    row(
        "configs",
        Kind::Map(&Kind::Block("config")),
        "{}",
        "Files that services may mount, by name: docs/configs.md.",
    ),
];

pub(super) const CONFIG: &[Field] = &[
    row("content", Kind::Text, "", "The content as text."),
    row(
        "content_base64",
        Kind::Text,
        "",
        "The content as base64, for what is no text.",
    ),
    row(
        "file",
        Kind::Text,
        "",
        "A file in the folder of the deployment file or below it.",
    ),
];

pub(super) const SERVICE: &[Field] = &[
    row(
        "rtype",
        Kind::Words(&["service", "job", "cron", "system"]),
        "service",
        "`job` runs until its work is done, `cron` is a job on a schedule, `system` is one on every node that fits. A change rolls.",
    ),
    row(
        "schedule",
        Kind::Text,
        "",
        "A cron expression, for `rtype: cron`.",
    ),
    row(
        "zone",
        Kind::Text,
        "(UTC)",
        "The time zone of `schedule`, such as `Europe/Berlin`.",
    ),
    row(
        "concurrency",
        Kind::Words(&["allow", "forbid", "replace"]),
        "forbid",
        "What a due time does while an earlier run is under way.",
    ),
    row(
        "missed",
        Kind::Words(&["skip", "once"]),
        "once",
        "What becomes of due times at which no server could start a run.",
    ),
    row(
        "job",
        Kind::Block("job"),
        "{}",
        "How much a job does, and for how long.",
    ),
    row(
        "runtime",
        Kind::Words(&["container", "process"]),
        "(by `image`)",
        "How it runs: a container, or a program of the host. A change rolls.",
    ),
    row(
        "image",
        Kind::Any(&[Kind::Text, Kind::Block("image")]),
        "",
        "The image: a name, or a name with its policy. A change rolls.",
    ),
    row(
        "command",
        Kind::Any(&[Kind::List(&Kind::Text), Kind::Block("command")]),
        "(the image's)",
        "The arguments, or the parts by name. A change rolls.",
    ),
    row(
        "env",
        Kind::Map(&Kind::Text),
        "{}",
        "Variables; `$S:name` is a secret, `$E:NAME` is taken from your environment. A change rolls.",
    ),
    row(
        "env_file",
        Kind::Any(&[Kind::Text, Kind::List(&Kind::Text)]),
        "",
        "Files of variables; `env` has the last word. A change rolls.",
    ),
    row(
        "resources",
        Kind::Block("resources"),
        "{}",
        "What is reserved for each replica, and its limit. A change rolls.",
    ),
    row(
        "endpoints",
        Kind::List(&Kind::Block("endpoint")),
        "[]",
        "Where it is reached: docs/network.md.",
    ),
    row(
        "image_ports",
        Kind::Block("image_ports"),
        "",
        "The ports that the image exposes are endpoints beside `endpoints`. Without endpoints they are anyway.",
    ),
    row(
        "scale",
        Kind::Block("scale"),
        "(one replica)",
        "How many replicas.",
    ),
    row(
        "replica_groups",
        Kind::List(&Kind::Block("group")),
        "[]",
        "Roles with counts and overrides of their own. A change rolls.",
    ),
    row(
        "depends",
        Kind::List(&Kind::Block("depends")),
        "[]",
        "Whom it waits for before its first start.",
    ),
    row(
        "health",
        Kind::Block("health"),
        "(healthy while it runs)",
        "How its health is known.",
    ),
    row(
        "restart",
        Kind::Any(&[
            Kind::Words(&["always", "on_failure", "never"]),
            Kind::Block("restart"),
        ]),
        "always",
        "When a replica that has ended is started again.",
    ),
    row(
        "rollout",
        Kind::Block("rollout"),
        "{}",
        "How a new version replaces the old one.",
    ),
    row(
        "stop",
        Kind::Block("stop"),
        "{}",
        "How a replica is asked to end.",
    ),
    row(
        "storage",
        Kind::List(&Kind::Block("storage")),
        "[]",
        "What is mounted. A change rolls.",
    ),
    row(
        "configs",
        Kind::List(&Kind::Any(&[Kind::Text, Kind::Block("mount")])),
        "[]",
        "Configs that it sees as files. A change rolls.",
    ),
    row(
        "secrets",
        Kind::List(&Kind::Any(&[Kind::Text, Kind::Block("mount")])),
        "[]",
        "Secrets that it sees as files. A change rolls.",
    ),
    row(
        "node_selector",
        Kind::Block("node_selector"),
        "{}",
        "Labels of the nodes that it may run on. A change rolls.",
    ),
    row(
        "affinity",
        Kind::Any(&[Kind::Words(&["spread", "pack", "pin"]), Kind::Block("affinity")]),
        "spread",
        "How its replicas lie to each other.",
    ),
    row(
        "spread_by",
        Kind::Text,
        "",
        "The label to spread over first, such as `zone`.",
    ),
    row(
        "spread_percent",
        Kind::Map(&Kind::Text),
        "{}",
        "How much of it each value of that label is to have, such as `{ a: 70%, b: 30% }`.",
    ),
    row(
        "max_per_node",
        Kind::Integer(1, u32::MAX as u64),
        "no bound",
        "No node runs more of its replicas.",
    ),
    row(
        "max_per",
        Kind::Map(&Kind::Integer(1, u32::MAX as u64)),
        "{}",
        "No group of nodes with one value of a label runs more of its replicas, such as `{ zone: 3 }`.",
    ),
    row(
        "node_mode",
        Kind::Words(&["shared", "dedicated", "exclusive"]),
        "shared",
        "With whom it shares a node. A change rolls.",
    ),
    row(
        "platform",
        Kind::Block("platform"),
        "{}",
        "The operating system and architecture that it needs. A change rolls.",
    ),
    row(
        "reschedule",
        Kind::Block("reschedule"),
        "{}",
        "What becomes of replicas of a lost node.",
    ),
    row(
        "priority",
        Kind::Integer(1, 100),
        "50",
        "Higher ones are placed first and may displace those that are lower by 10 or more.",
    ),
    row(
        "labels",
        Kind::Map(&Kind::Text),
        "{}",
        "Labels of the service. A change rolls.",
    ),
    row(
        "user",
        Kind::Text,
        "(the image's)",
        "`user` or `user:group`, by name or number. A change rolls.",
    ),
    row(
        "read_only_root_fs",
        Kind::Flag,
        "false",
        "The root file system cannot be written to. A change rolls.",
    ),
    row(
        "capabilities",
        Kind::Block("capabilities"),
        "{}",
        "Rights beside the usual ones, or lacks of them. A change rolls.",
    ),
    row(
        "ulimits",
        Kind::Map(&Kind::Any(&[
            Kind::Integer(0, u64::MAX),
            Kind::Text,
            Kind::Block("ulimit"),
        ])),
        "{}",
        "Limits of the kernel for its processes. A change rolls.",
    ),
    row(
        "sysctls",
        Kind::Map(&Kind::Text),
        "{}",
        "Settings of the kernel in its namespaces. A change rolls.",
    ),
    row(
        "hostname",
        Kind::Text,
        "(the replica's id)",
        "The name that it has for itself. A change rolls.",
    ),
    row(
        "dns",
        Kind::List(&Kind::Text),
        "(the node's)",
        "Addresses of name servers in place of the node's. A change rolls.",
    ),
    row(
        "extra_hosts",
        Kind::List(&Kind::Text),
        "[]",
        "`name:address` pairs; an address may also be `host-gateway`, or `@service` of the same deployment. A change rolls.",
    ),
    row(
        "devices",
        Kind::List(&Kind::Text),
        "[]",
        "Devices of the host: `/dev/fuse`, `/dev/sda:/dev/xvda:r`. A change rolls.",
    ),
    row(
        "privileged",
        Kind::Flag,
        "false",
        "All rights of root on the host. A change rolls.",
    ),
    row(
        "init",
        Kind::Any(&[Kind::Flag, Kind::List(&Kind::Block("step"))]),
        "false",
        "A first process that looks after orphans and passes signals on; or a list of steps before the program. A change rolls.",
    ),
    row(
        "init_steps",
        Kind::List(&Kind::Block("step")),
        "[]",
        "Steps before the program, beside an `init` that is no list. A change rolls.",
    ),
    row(
        "no_new_privileges",
        Kind::Flag,
        "(unless privileged)",
        "Nothing that it starts gains rights. A change rolls.",
    ),
    row(
        "offline",
        Kind::Words(&["wait", "run"]),
        "wait",
        "What becomes of replicas on a node that came back and cannot ask a server.",
    ),
];

pub(super) const IMAGE: &[Field] = &[
    row(
        "name",
        Kind::Text,
        "required",
        "A reference of a registry, `oci:<layout dir>[:tag]` or `docker-archive:<file>`.",
    ),
    row(
        "pull_policy",
        Kind::Words(&["if_not_present", "always", "never"]),
        "if_not_present",
        "When it is fetched.",
    ),
    row("digest", Kind::Text, "", "What the name is to mean."),
];

pub(super) const COMMAND: &[Field] = &[
    row(
        "entrypoint",
        Kind::List(&Kind::Text),
        "(the image's)",
        "The program and its first words.",
    ),
    row(
        "args",
        Kind::List(&Kind::Text),
        "(the image's)",
        "The words behind it.",
    ),
    row("workdir", Kind::Text, "(the image's)", "Where it starts."),
];

pub(super) const RESOURCES: &[Field] = &[
    row("cpu", Kind::Number, "", "Cores, such as `0.5`."),
    row("memory", Kind::Size, "", "Memory, such as `256Mi`."),
    row("pids", Kind::Integer(1, 4194304), "", "Processes and threads."),
];

pub(super) const GROUP: &[Field] = &[
    row("role", Kind::Text, "required", "Its name."),
    row("count", Kind::Integer(0, 1000000), "required", "Its replicas."),
    row(
        "image",
        Kind::Any(&[Kind::Text, Kind::Block("image")]),
        "(the service's)",
        "The image.",
    ),
    row(
        "env",
        Kind::Map(&Kind::Text),
        "{}",
        "Variables over those of the service.",
    ),
    row(
        "command",
        Kind::Any(&[Kind::List(&Kind::Text), Kind::Block("command")]),
        "(the service's)",
        "The command.",
    ),
    row(
        "resources",
        Kind::Block("resources"),
        "(the service's)",
        "The resources.",
    ),
    row(
        "affinity",
        Kind::Any(&[Kind::Words(&["spread", "pack", "pin"]), Kind::Block("affinity")]),
        "(the service's)",
        "How its replicas lie to each other.",
    ),
];

pub(super) const JOB: &[Field] = &[
    row(
        "completions",
        Kind::Integer(1, 1_000_000),
        "(as `scale` says)",
        "How many replicas have to complete.",
    ),
    row(
        "parallelism",
        Kind::Integer(1, 1_000_000),
        "(all)",
        "How many of them are under way at a time.",
    ),
    row("deadline", Kind::Duration, "", "How long a run may take."),
    row(
        "keep",
        Kind::Integer(1, u32::MAX as u64),
        "3",
        "How many ended runs of a schedule are kept with their logs.",
    ),
];

pub(super) const STEP: &[Field] = &[
    row("name", Kind::Text, "(its number)", "What it is called."),
    row(
        "image",
        Kind::Any(&[Kind::Text, Kind::Block("image")]),
        "(the service's)",
        "The image.",
    ),
    row(
        "command",
        Kind::Any(&[Kind::List(&Kind::Text), Kind::Block("command")]),
        "",
        "What runs to its end.",
    ),
    row(
        "env",
        Kind::Map(&Kind::Text),
        "{}",
        "Variables beside those of the service.",
    ),
    row("user", Kind::Text, "(the service's)", "As whom it runs."),
];

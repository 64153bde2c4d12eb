//! The rows of the blocks of a service.

use super::super::Kind;
use super::{Field, row};

pub(super) const ENDPOINT: &[Field] = &[
    row("name", Kind::Text, "required", "Its name."),
    row(
        "protocol",
        Kind::Words(&["http", "https", "tcp", "udp", "websocket"]),
        "required",
        "What is spoken there.",
    ),
    row(
        "port",
        Kind::Integer(1, 65535),
        "required",
        "The port that callers use.",
    ),
    row(
        "target_port",
        Kind::Integer(1, 65535),
        "(`port`)",
        "The port inside the replica.",
    ),
    row(
        "expose",
        Kind::Words(&["internal", "cluster", "public"]),
        "internal",
        "Who may call: the deployment, every deployment, everybody.",
    ),
    row("path", Kind::Text, "", "The start of the paths that it takes."),
    row("host", Kind::Text, "", "The host that it is for."),
    row("target_role", Kind::Text, "", "Just the replicas of this role."),
    row(
        "allow",
        Kind::List(&Kind::Text),
        "",
        "Just these services may call: `web` or `other/web`.",
    ),
    row(
        "tls",
        Kind::Block("tls"),
        "",
        "Requests from outside come over TLS.",
    ),
    row(
        "strip_prefix",
        Kind::Flag,
        "false",
        "The replica does not see `path`.",
    ),
    row(
        "allow_from",
        Kind::List(&Kind::Text),
        "(everywhere)",
        "Ranges of addresses that may call.",
    ),
    row(
        "sticky",
        Kind::Words(&["cookie", "ip"]),
        "",
        "What keeps a client with the same replica.",
    ),
    row(
        "request_timeout",
        Kind::Duration,
        "",
        "How long a replica may take until it begins to answer.",
    ),
    row(
        "idle_timeout",
        Kind::Duration,
        "",
        "How long nothing need pass before it is cut.",
    ),
    row(
        "proxy_protocol",
        Kind::Words(&["v1", "v2"]),
        "",
        "The replica is told who calls by a PROXY header.",
    ),
    row(
        "access_log",
        Kind::Flag,
        "false",
        "A line for each request in the log of the proxy.",
    ),
];

pub(super) const TLS: &[Field] = &[
    row("secret", Kind::Text, "", "The secret with certificates and key."),
    row("acme", Kind::Flag, "false", "The cluster orders the certificate."),
    row(
        "redirect",
        Kind::Flag,
        "true",
        "Plain requests for the host are sent to HTTPS.",
    ),
];

pub(super) const IMAGE_PORTS: &[Field] = &[row(
    "allow",
    Kind::List(&Kind::Text),
    "(the deployment)",
    "Just these services may call them.",
)];

pub(super) const SCALE: &[Field] = &[
    row(
        "mode",
        Kind::Words(&["fixed", "manual", "adaptive"]),
        "required",
        "`manual` is set by `dhow scale`, `adaptive` by the load.",
    ),
    row(
        "replicas",
        Kind::Integer(0, 1000000),
        "",
        "The count, of `fixed`.",
    ),
    row(
        "min",
        Kind::Integer(0, 1000000),
        "",
        "Of `adaptive`: never fewer.",
    ),
    row("max", Kind::Integer(0, 1000000), "", "Of `adaptive`: never more."),
    row(
        "cooldown",
        Kind::Duration,
        "30s",
        "Of `adaptive`: fewer only where nothing called for more for so long.",
    ),
    row(
        "targets",
        Kind::Block("targets"),
        "",
        "Of `adaptive`: what each replica is to have, at least one of them.",
    ),
    row(
        "cold_start",
        Kind::Duration,
        "",
        "With `min: 0`: how long a request waits for the first replica; 30s where it is left out.",
    ),
];

pub(super) const TARGETS: &[Field] = &[
    row("cpu", Kind::Number, "", "Percent of `resources.cpu`."),
    row("memory", Kind::Number, "", "Percent of `resources.memory`."),
    row("rps", Kind::Number, "", "Requests a second, over all endpoints."),
    row(
        "in_flight",
        Kind::Number,
        "",
        "Requests and connections under way at a time.",
    ),
];

pub(super) const DEPENDS: &[Field] = &[
    row(
        "service",
        Kind::Text,
        "required",
        "The service, of the same deployment.",
    ),
    row(
        "condition",
        Kind::Words(&["healthy", "started", "ready", "completed"]),
        "healthy",
        "What it has to be; `completed` is for jobs.",
    ),
    row("timeout", Kind::Duration, "300s", "How long it is waited for."),
    row(
        "on_timeout",
        Kind::Words(&["fail", "warn", "continue"]),
        "fail",
        "What happens then.",
    ),
];

pub(super) const HEALTH: &[Field] = &[
    row("check", Kind::Block("check"), "required", "What is asked."),
    row(
        "start_grace",
        Kind::Duration,
        "5s",
        "Failures count only after it.",
    ),
    row("interval", Kind::Duration, "10s", "The pause between two checks."),
    row("timeout", Kind::Duration, "5s", "How long an answer may take."),
    row(
        "retries",
        Kind::Integer(1, u32::MAX as u64),
        "3",
        "Failures in a row that make it unhealthy.",
    ),
];

pub(super) const CHECK: &[Field] = &[
    row(
        "type",
        Kind::Words(&["tcp", "http", "command"]),
        "required",
        "The kind of check.",
    ),
    row("port", Kind::Integer(1, 65535), "", "Of `tcp`."),
    row("url", Kind::Text, "", "Of `http`: a path, or a whole address."),
    row("expect_status", Kind::Integer(100, 599), "200", "Of `http`."),
    row(
        "command",
        Kind::Any(&[Kind::List(&Kind::Text), Kind::Text]),
        "",
        "Of `command`: a list, or a text for the shell inside.",
    ),
];

pub(super) const RESTART: &[Field] = &[
    row(
        "policy",
        Kind::Words(&["always", "on_failure", "never"]),
        "always",
        "Whether it is.",
    ),
    row(
        "max_attempts",
        Kind::Integer(0, u32::MAX as u64),
        "(no bound)",
        "How often.",
    ),
    row(
        "interval",
        Kind::Duration,
        "(until it has run for 60s)",
        "How long attempts are counted, from the first failure on; then anew.",
    ),
    row("backoff", Kind::Block("backoff"), "{}", "The pauses between."),
];

pub(super) const BACKOFF: &[Field] = &[
    row("initial", Kind::Duration, "1s", "The first."),
    row("max", Kind::Duration, "60s", "The longest."),
];

pub(super) const ROLLOUT: &[Field] = &[
    row(
        "max_surge",
        Kind::Integer(0, u32::MAX as u64),
        "(1; 0 with a volume)",
        "Replicas more than promised.",
    ),
    row(
        "max_unavailable",
        Kind::Integer(0, u32::MAX as u64),
        "(0; 1 with a volume)",
        "Replicas fewer than promised.",
    ),
    row(
        "canary",
        Kind::Integer(0, u32::MAX as u64),
        "0",
        "So many replicas of the new version are tried first.",
    ),
    row(
        "promote",
        Kind::Words(&["auto", "manual"]),
        "auto",
        "What happens when the canary is good: `manual` waits for `dhow rollout promote`.",
    ),
    row(
        "min_healthy",
        Kind::Duration,
        "10s",
        "How long a new replica must be healthy to count.",
    ),
    row(
        "healthy_deadline",
        Kind::Duration,
        "5m",
        "By when each must be healthy.",
    ),
    row(
        "progress_deadline",
        Kind::Duration,
        "10m",
        "By when something must have moved.",
    ),
    row(
        "on_failure",
        Kind::Words(&["revert", "pause"]),
        "revert",
        "What a failure leads to.",
    ),
    row(
        "observe",
        Kind::Duration,
        "5m",
        "How long a canary is given to get the requests that it is judged by.",
    ),
    row(
        "failure_ratio",
        Kind::Text,
        "0%",
        "The share of the replicas that may fail without the version being given up.",
    ),
];

pub(super) const STOP: &[Field] = &[
    row("signal", Kind::Text, "SIGTERM", "The first signal."),
    row("grace", Kind::Duration, "10s", "Then SIGKILL."),
];

pub(super) const STORAGE: &[Field] = &[
    row(
        "type",
        Kind::Words(&["named", "bind", "tmpfs", "ephemeral"]),
        "required",
        "A volume that lasts, a folder of the node, memory, or a folder that goes with the replica.",
    ),
    row("name", Kind::Text, "", "The volume, of `named`."),
    row("source", Kind::Text, "", "The path on the node, of `bind`."),
    row("target", Kind::Text, "required", "The path inside."),
    row("read_only", Kind::Flag, "false", "Of `named` and `bind`."),
    row(
        "nocopy",
        Kind::Flag,
        "false",
        "Of `named`: what the image has there is not copied into a new volume.",
    ),
    row(
        "size",
        Kind::Size,
        "(`tmpfs`: half of the memory)",
        "How much may be in it. Of `named` and `ephemeral` only where the node's file system can hold it to that.",
    ),
];

pub(super) const MOUNT: &[Field] = &[
    row("source", Kind::Text, "required", "The config or the secret."),
    row(
        "target",
        Kind::Text,
        "(`/NAME`, `/run/secrets/NAME`)",
        "The path inside.",
    ),
    row("mode", Kind::Text, "0444", "In octal."),
    row("uid", Kind::Integer(0, u32::MAX as u64), "(root)", "Whose it is."),
    row(
        "gid",
        Kind::Integer(0, u32::MAX as u64),
        "(root)",
        "Whose group has it.",
    ),
    row(
        "on_change",
        Kind::Words(&["restart", "signal", "none"]),
        "restart",
        "What another content leads to.",
    ),
    row("signal", Kind::Text, "", "Of `on_change: signal`."),
];

pub(super) const NODE_SELECTOR: &[Field] = &[
    row("labels", Kind::Map(&Kind::Text), "{}", "A node must have them."),
    row(
        "prefer_labels",
        Kind::Map(&Kind::Text),
        "{}",
        "A node should have them.",
    ),
    row(
        "where",
        Kind::List(&Kind::Text),
        "[]",
        "Comparisons that must hold: `cores >= 8`, `disk in [ssd, nvme]`, `gpu exists`.",
    ),
];

pub(super) const AFFINITY: &[Field] = &[
    row(
        "mode",
        Kind::Words(&["spread", "pack", "pin"]),
        "spread",
        "Over many nodes, few, or those of the selector.",
    ),
    row("spread_by", Kind::Text, "", "The label to spread over first."),
    row(
        "near",
        NEIGHBOURS,
        "[]",
        "Services of the deployment that must run where it is to run.",
    ),
    row(
        "away_from",
        NEIGHBOURS,
        "[]",
        "Services of the deployment that must not run where it runs.",
    ),
];

const NEIGHBOURS: Kind = Kind::List(&Kind::Any(&[Kind::Text, Kind::Block("neighbour")]));

pub(super) const NEIGHBOUR: &[Field] = &[
    row("service", Kind::Text, "required", "Which one."),
    row(
        "by",
        Kind::Text,
        "",
        "Nodes with the same value of this label are one place; else each node is one.",
    ),
    row("prefer", Kind::Flag, "false", "Other places merely come last."),
];

pub(super) const PLATFORM: &[Field] = &[
    row("os", Kind::Text, "", "Such as `linux`."),
    row("arch", Kind::Text, "", "Such as `amd64`."),
];

pub(super) const RESCHEDULE: &[Field] = &[
    row(
        "enabled",
        Kind::Flag,
        "true",
        "Whether they are placed elsewhere.",
    ),
    row("delay", Kind::Duration, "0s", "How long after they are given up."),
    row(
        "lost_after",
        Kind::Duration,
        "0s",
        "How long the node is waited for.",
    ),
];

pub(super) const CAPABILITIES: &[Field] = &[
    row("add", Kind::List(&Kind::Text), "[]", "Such as `NET_ADMIN`."),
    row("drop", Kind::List(&Kind::Text), "[]", "Such as `ALL`."),
];

pub(super) const ULIMIT: &[Field] = &[
    row(
        "soft",
        Kind::Any(&[Kind::Integer(0, u64::MAX), Kind::Text]),
        "required",
        "What holds.",
    ),
    row(
        "hard",
        Kind::Any(&[Kind::Integer(0, u64::MAX), Kind::Text]),
        "required",
        "How far it may be raised.",
    ),
];

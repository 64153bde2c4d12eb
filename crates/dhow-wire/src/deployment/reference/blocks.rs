//! The blocks of the table, one row for each field that a reader takes.

mod parts;
mod service;

use super::Kind;

/// A block of fields.
pub(super) struct Block {
    pub name: &'static str,
    pub text: &'static str,
    pub fields: &'static [Field],
}

/// A field of a block.
pub(super) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    /// `required`, empty for none, in parentheses where it depends on something, else as it is written.
    pub default: &'static str,
    pub text: &'static str,
}

const fn row(name: &'static str, kind: Kind, default: &'static str, text: &'static str) -> Field {
    Field {
        name,
        kind,
        default,
        text,
    }
}

pub(super) const BLOCKS: &[Block] = &[
    Block {
        name: "file",
        text: "The whole file.",
        fields: service::FILE,
    },
    Block {
        name: "config",
        text: "One config: just one of these.",
        fields: service::CONFIG,
    },
    Block {
        name: "service",
        text: "What runs in a number of replicas.",
        fields: service::SERVICE,
    },
    Block {
        name: "image",
        text: "An image with its policy.",
        fields: service::IMAGE,
    },
    Block {
        name: "command",
        text: "The parts of a command.",
        fields: service::COMMAND,
    },
    Block {
        name: "resources",
        text: "One amount: reserved, and the limit.",
        fields: service::RESOURCES,
    },
    Block {
        name: "endpoint",
        text: "A port at which requests are taken for a service.",
        fields: parts::ENDPOINT,
    },
    Block {
        name: "tls",
        text: "The certificate of an endpoint.",
        fields: parts::TLS,
    },
    Block {
        name: "image_ports",
        text: "The ports of the image.",
        fields: parts::IMAGE_PORTS,
    },
    Block {
        name: "scale",
        text: "How many replicas.",
        fields: parts::SCALE,
    },
    Block {
        name: "targets",
        text: "What adaptive scaling aims at, for each replica. What calls for the most counts.",
        fields: parts::TARGETS,
    },
    Block {
        name: "group",
        text: "A role of a service.",
        fields: service::GROUP,
    },
    Block {
        name: "depends",
        text: "A service that has to be there first.",
        fields: parts::DEPENDS,
    },
    Block {
        name: "health",
        text: "A check and its rhythm.",
        fields: parts::HEALTH,
    },
    Block {
        name: "check",
        text: "What is asked.",
        fields: parts::CHECK,
    },
    Block {
        name: "restart",
        text: "When a replica that has ended is started again.",
        fields: parts::RESTART,
    },
    Block {
        name: "backoff",
        text: "Pauses that double, with jitter.",
        fields: parts::BACKOFF,
    },
    Block {
        name: "rollout",
        text: "How a new version replaces the old one.",
        fields: parts::ROLLOUT,
    },
    Block {
        name: "stop",
        text: "How a replica is asked to end.",
        fields: parts::STOP,
    },
    Block {
        name: "storage",
        text: "One mount.",
        fields: parts::STORAGE,
    },
    Block {
        name: "mount",
        text: "A config or a secret as a file.",
        fields: parts::MOUNT,
    },
    Block {
        name: "node_selector",
        text: "Labels of nodes.",
        fields: parts::NODE_SELECTOR,
    },
    Block {
        name: "affinity",
        text: "How replicas lie to each other.",
        fields: parts::AFFINITY,
    },
    Block {
        name: "neighbour",
        text: "Another service, and what counts as one place.",
        fields: parts::NEIGHBOUR,
    },
    Block {
        name: "platform",
        text: "What a node must be.",
        fields: parts::PLATFORM,
    },
    Block {
        name: "reschedule",
        text: "What becomes of replicas of a lost node.",
        fields: parts::RESCHEDULE,
    },
    Block {
        name: "capabilities",
        text: "Rights of root.",
        fields: parts::CAPABILITIES,
    },
    Block {
        name: "job",
        text: "What a job does.",
        fields: service::JOB,
    },
    Block {
        name: "step",
        text: "A command that runs to its end before the program, each time that this starts.",
        fields: service::STEP,
    },
    Block {
        name: "ulimit",
        text: "A limit with two bounds.",
        fields: parts::ULIMIT,
    },
];

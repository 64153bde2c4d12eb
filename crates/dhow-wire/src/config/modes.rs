//! The `cluster` block, mode by mode.

use std::net::{Ipv4Addr, SocketAddr};

use super::cluster_mode::{ClusterMode, WorkerTierRole};
use super::peer::{RaftPeer, StaticPeer};
use super::read::{address, path};
use crate::document::{
    Decoder, Fields, Kind, Node, choice, integer, list, list_of, scalar_text, text, text_map, whole_seconds,
};

#[derive(Clone, Copy)]
enum Mode {
    SingleNode,
    Raft,
    Static,
    WorkerTier,
}

/// Stands in for an address that could not be read; no rule is heard about it.
const UNREAD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

pub(super) fn cluster(decoder: &mut Decoder, node: &Node) -> Option<ClusterMode> {
    if node.kind() == Kind::Text {
        let name = scalar_text(node).map_or("raft", |scalar| &scalar.text);
        let hint = format!(
            "write `cluster: {{ mode: {} }}`",
            name.chars().take(16).collect::<String>()
        );
        return decoder.wrong_type(node, "a map with its `mode`", hint);
    }
    let mut fields = Fields::open(decoder, node, "`cluster`", "`{ mode: single-node }`")?;
    let example = match (
        fields.has("role"),
        fields.has("peers"),
        fields.has("heartbeat_interval"),
    ) {
        (true, _, _) => "mode: worker-tier",
        (false, _, true) => "mode: static",
        (false, true, false) => "mode: raft",
        (false, false, false) => "mode: single-node",
    };
    let mode = fields.required("mode", example, |decoder, node| {
        let allowed = [
            ("single-node", Mode::SingleNode),
            ("raft", Mode::Raft),
            ("static", Mode::Static),
            ("worker-tier", Mode::WorkerTier),
        ];
        let synonyms = [
            ("single", "single-node"),
            ("standalone", "single-node"),
            ("worker", "worker-tier"),
            ("ha", "raft"),
        ];
        choice(decoder, node, &allowed, &synonyms)
    });
    let cluster = match mode {
        None => {
            fields.ignore_rest();
            None
        }
        Some(Mode::SingleNode) => {
            const OTHER: &str =
                "a single node has no peers: `mode` is `raft`, `static` or `worker-tier` with this";
            fields.call("`cluster` with `mode: single-node`");
            fields.elsewhere(&[
                ("peers", OTHER),
                ("node_id", OTHER),
                ("role", OTHER),
                ("servers", OTHER),
            ]);
            Some(ClusterMode::SingleNode {})
        }
        Some(Mode::Raft) => Some(raft(&mut fields)),
        Some(Mode::Static) => Some(static_peers(&mut fields)),
        Some(Mode::WorkerTier) => worker_tier(&mut fields),
    };
    fields.close();
    cluster
}

fn id(decoder: &mut Decoder, node: &Node) -> Option<u64> {
    integer(decoder, node, 0, u64::MAX)
}

fn raft(fields: &mut Fields<'_, '_>) -> ClusterMode {
    const OF_STATIC: &str = "that is a field of `mode: static`";
    fields.call("`cluster` with `mode: raft`");
    fields.elsewhere(&[
        ("heartbeat_interval", OF_STATIC),
        ("failure_threshold", OF_STATIC),
        ("role", "that is a field of `mode: worker-tier`"),
        ("id", "write `node_id`"),
        ("labels", "write `labels` beside `cluster`"),
        ("nodes", "write `peers`"),
        ("members", "write `peers`"),
    ]);
    let node_id = fields.required("node_id", "node_id: 1", id);
    let peers = fields.required(
        "peers",
        "peers: [{ id: 1, raft_addr: …, api_addr: … }]",
        raft_peers,
    );
    ClusterMode::Raft {
        node_id: node_id.unwrap_or(0),
        peers: peers.unwrap_or_default(),
    }
}

fn raft_peers(decoder: &mut Decoder, node: &Node) -> Option<Vec<RaftPeer>> {
    const EXAMPLE: &str = "`{ id: 1, raft_addr: 10.0.0.1:3671, api_addr: 10.0.0.1:3669 }`";
    list(
        decoder,
        node,
        "a list of peers",
        "write `- ` and the fields of each",
        || RaftPeer {
            id: 0,
            raft_addr: UNREAD,
            api_addr: UNREAD,
        },
        |decoder, node| {
            let mut fields = Fields::open(decoder, node, "a raft peer", EXAMPLE)?;
            fields.elsewhere(&[
                ("node_id", "write `id`"),
                ("addr", "write `raft_addr` and `api_addr`"),
                ("os", "only peers of `mode: static` have it"),
                ("labels", "write `labels` in that node's own configuration"),
            ]);
            let id = fields.required("id", "id: 1", id);
            let raft_addr = fields.required("raft_addr", "raft_addr: 10.0.0.1:3671", address);
            let api_addr = fields.required("api_addr", "api_addr: 10.0.0.1:3669", address);
            fields.close();
            Some(RaftPeer {
                id: id.unwrap_or(0),
                raft_addr: raft_addr.unwrap_or(UNREAD),
                api_addr: api_addr.unwrap_or(UNREAD),
            })
        },
    )
}

fn static_peers(fields: &mut Fields<'_, '_>) -> ClusterMode {
    const EXAMPLE: &str = "`{ id: 1, api_addr: 10.0.0.1:3669 }`";
    fields.call("`cluster` with `mode: static`");
    fields.elsewhere(&[
        ("id", "write `node_id`"),
        (
            "labels",
            "write `labels` inside this node's peer, or beside `cluster`",
        ),
        ("role", "that is a field of `mode: worker-tier`"),
        ("nodes", "write `peers`"),
    ]);
    let node_id = fields.required("node_id", "node_id: 1", id);
    let peers = fields.required("peers", "peers: [{ id: 1, api_addr: … }]", |decoder, node| {
        list(
            decoder,
            node,
            "a list of peers",
            "write `- ` and the fields of each",
            || StaticPeer {
                id: 0,
                api_addr: UNREAD,
                os: StaticPeer::default_os(),
                labels: Default::default(),
            },
            |decoder, node| {
                let mut fields = Fields::open(decoder, node, "a static peer", EXAMPLE)?;
                fields.elsewhere(&[
                    ("node_id", "write `id`"),
                    ("addr", "write `api_addr`"),
                    ("raft_addr", "only peers of `mode: raft` have it"),
                ]);
                let id = fields.required("id", "id: 1", id);
                let api_addr = fields.required("api_addr", "api_addr: 10.0.0.1:3669", address);
                let peer = StaticPeer {
                    id: id.unwrap_or(0),
                    api_addr: api_addr.unwrap_or(UNREAD),
                    os: fields.or("os", StaticPeer::default_os(), text),
                    labels: fields.optional("labels", text_map).unwrap_or_default(),
                };
                fields.close();
                Some(peer)
            },
        )
    });
    ClusterMode::Static {
        node_id: node_id.unwrap_or(0),
        peers: peers.unwrap_or_default(),
        heartbeat_interval: fields.or(
            "heartbeat_interval",
            ClusterMode::default_heartbeat_interval(),
            whole_seconds,
        ),
        failure_threshold: fields.or(
            "failure_threshold",
            ClusterMode::default_failure_threshold(),
            whole_seconds,
        ),
    }
}

fn worker_tier(fields: &mut Fields<'_, '_>) -> Option<ClusterMode> {
    fields.call("`cluster` with `mode: worker-tier`");
    fields.elsewhere(&[
        ("id", "write `node_id`"),
        (
            "heartbeat_interval",
            "write `heartbeat_min_ttl` and `heartbeat_max_ttl`",
        ),
        ("grpc_addr", "write `worker_grpc_addr`"),
        (
            "token",
            "write the token into a file and its path as `token_file`",
        ),
        ("server", "write `servers`, a list"),
    ]);
    let example = if fields.has("servers") {
        "role: worker"
    } else {
        "role: server"
    };
    let role = fields.required("role", example, |decoder, node| {
        let allowed = [
            ("server", WorkerTierRole::Server),
            ("worker", WorkerTierRole::Worker),
        ];
        choice(
            decoder,
            node,
            &allowed,
            &[
                ("leader", "server"),
                ("manager", "server"),
                ("agent", "worker"),
                ("client", "worker"),
            ],
        )
    });
    // Without its role nothing can be said about what the rest of it needs, but it is read all the same.
    let cluster = tier_of(role.unwrap_or(WorkerTierRole::Server), fields);
    role.map(|_| cluster)
}

fn tier_of(role: WorkerTierRole, fields: &mut Fields<'_, '_>) -> ClusterMode {
    const HOW: &str = "such as `[10.0.0.1:3670, 10.0.0.2:3670]`";
    ClusterMode::WorkerTier {
        role,
        node_id: fields.optional("node_id", id),
        peers: fields.optional("peers", raft_peers).unwrap_or_default(),
        worker_grpc_addr: fields.or(
            "worker_grpc_addr",
            ClusterMode::default_worker_grpc_addr(),
            address,
        ),
        servers: fields.or("servers", Vec::new(), list_of("a list of addresses", HOW)),
        token_file: fields.optional("token_file", path),
        identity_dir: fields.optional("identity_dir", path),
        worker_ca_dir: fields.optional("worker_ca_dir", path),
        heartbeat_min_ttl: fields.or(
            "heartbeat_min_ttl",
            ClusterMode::default_heartbeat_min_ttl(),
            whole_seconds,
        ),
        heartbeat_max_ttl: fields.or(
            "heartbeat_max_ttl",
            ClusterMode::default_heartbeat_max_ttl(),
            whole_seconds,
        ),
        heartbeat_grace: fields.or(
            "heartbeat_grace",
            ClusterMode::default_heartbeat_grace(),
            whole_seconds,
        ),
        max_heartbeats_per_second: fields.or(
            "max_heartbeats_per_second",
            ClusterMode::default_max_heartbeats_per_second(),
            |decoder, node| integer(decoder, node, 0, u64::from(u32::MAX)).map(|rate| rate as u32),
        ),
        failover_heartbeat_ttl: fields.or(
            "failover_heartbeat_ttl",
            ClusterMode::default_failover_heartbeat_ttl(),
            whole_seconds,
        ),
        labels: fields.optional("labels", text_map).unwrap_or_default(),
    }
}

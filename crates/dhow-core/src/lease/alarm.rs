//! Why expiry is held: signs that it is the leader that is ill, not the nodes.

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseAlarm {
    #[error(
        "{silent} of {nodes} nodes fell silent within one grace: more likely this leader has lost its network \
         than they their lives. No node is given up for now; check this server's links"
    )]
    ManySilent { silent: usize, nodes: usize },
    #[error(
        "the lease timer of this leader ran {late_ms} ms late: it was suspended or is overloaded, and has \
         missed heartbeats. No node is given up for now; check this server's load"
    )]
    LateTimer { late_ms: u64 },
}

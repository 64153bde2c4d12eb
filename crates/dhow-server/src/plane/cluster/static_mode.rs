//! A static cluster: the peers of the configuration, led by the lowest that is healthy. No consensus: what that cannot
//! promise is told by `notices`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use dhow_core::ids::NodeId;
use dhow_wire::ClusterModeName;
use dhow_wire::api::{HealthDocument, PeerHealthDocument};
use futures_util::future::BoxFuture;

use super::{BarrierError, Cluster, Member, MembershipError, Newcomer, latest};
use crate::plane::log::Log;
use crate::plane::log::copied::CopiedLog;
use crate::plane::runtime::RuntimeView;
use crate::plane::scale::ScaleDesk;

const HINT: &str =
    "its peers are those of the configuration: change `peers` on every one of them, then restart them";

/// The mode of the peers of a configuration, with a copied log.
pub struct StaticCluster {
    pub node: NodeId,
    /// All of the configuration.
    pub peers: BTreeMap<u64, SocketAddr>,
    pub log: CopiedLog,
    pub view: RuntimeView,
    pub desk: ScaleDesk,
}

impl StaticCluster {
    fn fixed() -> MembershipError {
        MembershipError::Fixed {
            mode: ClusterModeName::Static,
            hint: HINT,
        }
    }

    /// The same at all peers that have the same in their configuration.
    fn peers_hash(&self) -> u32 {
        let listed: String = self
            .peers
            .iter()
            .map(|(id, addr)| format!("{id} {addr}\n"))
            .collect();
        let [a, b, c, d, ..] = *blake3::hash(listed.as_bytes()).as_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

impl Cluster for StaticCluster {
    fn mode(&self) -> ClusterModeName {
        ClusterModeName::Static
    }

    fn node_id(&self) -> NodeId {
        self.node
    }

    fn members(&self) -> Vec<Member> {
        let health = self.log.peers();
        let is_reachable = |id: u64| health.iter().any(|peer| peer.node == id && peer.is_reachable);
        let peers = self.peers.iter().map(|(id, api_addr)| Member {
            node: NodeId(*id),
            api_addr: Some(*api_addr),
            raft_addr: None,
            is_voter: false,
            is_reachable: *id == self.node.0 || is_reachable(*id),
        });
        peers.collect()
    }

    /// What is acknowledged here is seen here. A leader that was cut off and does not know it yet cannot promise more.
    fn barrier(&self) -> BoxFuture<'_, Result<(), BarrierError>> {
        Box::pin(latest(&self.view))
    }

    fn add(&self, _: Newcomer) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::ready(Err(Self::fixed())))
    }

    fn remove(&self, _: NodeId, _: bool) -> BoxFuture<'_, Result<(), MembershipError>> {
        Box::pin(std::future::ready(Err(Self::fixed())))
    }

    fn hand_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.log.leave())
    }

    fn health(&self) -> HealthDocument {
        let beat = self.log.beat();
        HealthDocument {
            peer: Some(PeerHealthDocument {
                node_id: self.node.0,
                epoch: beat.epoch,
                revision: beat.index,
                promised: beat.promised,
                leads: beat.leads,
                leader_id: self.log.status().leadership.leader,
                leaving: beat.leaving,
                peers_hash: Some(self.peers_hash()),
            }),
            ..HealthDocument::ok()
        }
    }

    fn desk(&self) -> Option<&ScaleDesk> {
        Some(&self.desk)
    }

    fn notices(&self) -> Vec<String> {
        let mut notices = vec![
            "static mode has no consensus: peers that cannot reach each other both go on, each with its own leader, and \
             run replicas twice; what the losing half wrote is kept in `dhow history` as conflicted"
                .to_owned(),
        ];
        let members = self.members();
        let silent = members.iter().filter(|member| !member.is_reachable);
        notices.extend(silent.map(|member| format!("peer {} cannot be reached from here", member.node)));
        let leads = self.log.status().leadership.is_here;
        let there: Vec<_> = self
            .log
            .peers()
            .into_iter()
            .filter(|peer| peer.is_reachable)
            .collect();
        let differ = there.iter().filter(|peer| {
            let told = peer.beat.and_then(|beat| beat.peers_hash);
            told.is_some_and(|told| told != self.peers_hash())
        });
        notices.extend(differ.map(|peer| {
            format!(
                "peer {} has other `peers` in its configuration than this one: make them the same on every peer, then \
                 restart them",
                peer.node
            )
        }));
        for peer in there.iter().filter(|_| leads) {
            let node = peer.node;
            if self.log.behind().contains(&node) {
                notices.push(format!(
                    "peer {node} does not take copies: it lacks the last writes"
                ));
            }
            if peer.beat.is_some_and(|beat| beat.leads) {
                notices.push(format!("peer {node} leads too: the cluster was divided"));
            }
        }
        let lost = self.log.kept_lost().all();
        if !lost.is_empty() {
            notices.push(format!(
                "{} revisions that were written here while the cluster was divided wait to be told to the leader",
                lost.revisions.len()
            ));
        }
        notices
    }
}

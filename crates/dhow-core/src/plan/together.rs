//! Services of one deployment that share a volume run on one node, because the volume is a folder of that node.
//!
//! The first of them that is placed chooses the node, one that fits them all; from then on the volume binds the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Planner;
use super::report::{Mate, Why};
use super::view::View;
use crate::ids::{NodeId, RoleId, ServiceId, Slot};
use crate::placement::{Ask, NodeTable, Rules};
use crate::spec::RType;
use crate::state::Service;
use crate::step::VOLUMES_LEVEL;

/// Where a service's unbound replicas may go.
pub(super) enum Home {
    /// Wherever there is room.
    Anywhere,
    /// Where its volumes are.
    On(NodeId),
    /// The volumes that it shares are nowhere yet: not on these nodes, which do not fit all who share them.
    Unsettled(Vec<NodeId>),
    /// No node fits all of them.
    Nowhere(Why),
}

/// One of the services that share a volume, with the replicas of each role that it is to have.
struct Member {
    service: Arc<Service>,
    wanted: Vec<(RoleId, u32)>,
    present: BTreeMap<NodeId, u32>,
}

impl Planner<'_> {
    /// The node that the slot's volumes are on, what this plan places included.
    pub(super) fn bound_node(&self, service: &Service, slot: Slot) -> Option<NodeId> {
        let known = self.state.volume_home(service, slot);
        known.or_else(|| self.homes.get(&service.id).copied())
    }

    pub(super) fn home(&self, view: &View<'_>) -> Home {
        let service = view.service;
        if view.spec().binding_volumes().is_empty() || self.state.feature_level < VOLUMES_LEVEL {
            return Home::Anywhere;
        }
        let planned = || self.homes.get(&service.id).copied();
        if let Some(node) = self.state.shared_home(service).or_else(planned) {
            return Home::On(node);
        }
        let mates = self.state.volume_mates(service);
        if mates.is_empty() {
            return match view.spec().rtype {
                RType::Cron => Home::Unsettled(Vec::new()),
                RType::Service | RType::Job | RType::System => Home::Anywhere,
            };
        }
        let members: Vec<Member> = mates.into_iter().map(|mate| self.member(mate)).collect();
        let fitting = self.fitting_each(&members);
        let (fit, unfit): (Vec<NodeId>, Vec<NodeId>) = self
            .cache
            .table
            .nodes()
            .map(|row| row.id)
            .partition(|node| fitting.contains(node) && self.takes_all(&members, *node));
        match fit.is_empty() {
            true => Home::Nowhere(self.nowhere(service, &members)),
            false => Home::Unsettled(unfit),
        }
    }

    /// The replicas that were placed first have chosen the node for all who share the volume.
    pub(super) fn settle_home(&mut self, service: &Service, node: NodeId) {
        for mate in self.state.volume_mates(service) {
            self.homes.insert(mate.id, node);
        }
        self.homes.insert(service.id, node);
    }

    fn member(&self, service: Arc<Service>) -> Member {
        let counts = service.counts.iter().enumerate();
        let counts = counts.filter_map(|(role, count)| Some((RoleId(u16::try_from(role).ok()?), *count)));
        // Of work that comes in turns there is room for one.
        let wanted = match service.rtype() {
            RType::Service | RType::System => counts.collect(),
            RType::Job => counts.map(|(role, count)| (role, count.min(1))).collect(),
            RType::Cron => vec![(RoleId(0), 1)],
        };
        let mut present: BTreeMap<NodeId, u32> = BTreeMap::new();
        for (_, replica) in self.state.replicas_of(service.id) {
            if replica.reserves() {
                *present.entry(replica.node).or_default() += 1;
            }
        }
        Member {
            service,
            wanted,
            present,
        }
    }

    /// Nodes that take one replica of each.
    fn fitting_each(&self, members: &[Member]) -> BTreeSet<NodeId> {
        let mut fitting: Option<BTreeSet<NodeId>> = None;
        for member in members {
            let present: Vec<(NodeId, u32)> = member
                .present
                .iter()
                .map(|(node, count)| (*node, *count))
                .collect();
            for ask in member.asks(&present) {
                let found: BTreeSet<NodeId> = self.cache.table.fitting(&ask.0).into_iter().collect();
                fitting = Some(match fitting {
                    None => found,
                    Some(known) => known.intersection(&found).copied().collect(),
                });
            }
        }
        // Who is to have no replica asks for nothing.
        fitting.unwrap_or_else(|| self.cache.table.nodes().map(|row| row.id).collect())
    }

    /// Whether one node takes all replicas of all of them, beside what it has.
    fn takes_all(&self, members: &[Member], node: NodeId) -> bool {
        let Some(row) = self.cache.table.get(node) else {
            return false;
        };
        let mut alone = NodeTable::new();
        alone.upsert(row.clone());
        members.iter().all(|member| {
            let mut here = member.present.get(&node).copied().unwrap_or_default();
            let present = [(node, here)];
            member.asks(&present).all(|(ask, wanted)| {
                let known = wanted.min(here);
                here -= known;
                let missing = wanted - known;
                alone.place(&ask, missing).len() == missing as usize
            })
        })
    }

    fn nowhere(&self, service: &Service, members: &[Member]) -> Why {
        let mates = members.iter().filter_map(|member| {
            let present: Vec<(NodeId, u32)> = member
                .present
                .iter()
                .map(|(node, count)| (*node, *count))
                .collect();
            let (ask, _) = member.asks(&present).next()?;
            Some(Mate {
                service: member.service.key.service.clone(),
                unplaced: self.cache.table.why_not(&ask),
            })
        });
        let own = service
            .spec()
            .map(|spec| spec.binding_volumes())
            .unwrap_or_default();
        let others = members.iter().filter(|member| member.service.id != service.id);
        let shared = others
            .filter_map(|member| member.service.spec())
            .flat_map(|spec| spec.binding_volumes())
            .find(|volume| own.contains(volume));
        Why::NoNodeForAll {
            volume: shared.unwrap_or_default().to_owned(),
            mates: mates.collect(),
        }
    }
}

impl Member {
    /// What is asked for one replica of each role, and how many there are to be.
    fn asks<'a>(&'a self, present: &'a [(NodeId, u32)]) -> impl Iterator<Item = (Ask<'a>, u32)> {
        let service = &self.service;
        self.wanted
            .iter()
            .filter(|(_, wanted)| *wanted > 0)
            .filter_map(move |(role_id, wanted)| {
                let ask = Ask {
                    service: service.id,
                    spec: service.spec()?,
                    role: service.role(*role_id)?,
                    demand: service.demand(service.target, *role_id),
                    present,
                    bound_to: None,
                    avoid: &[],
                    // Who shares a volume fits together first; its rules are asked when it is placed.
                    rules: Rules::default(),
                };
                Some((ask, *wanted))
            })
    }
}

/// Where this plan puts volumes that were nowhere, by the services that mount them.
pub(super) type Homes = BTreeMap<ServiceId, NodeId>;

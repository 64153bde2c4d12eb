//! What the records of a ledger amount to: the node's replicas, and its events with their numbers. No file: the keeper's
//! core decides on it, and the ledger's file is written from it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dhow_core::assignment::AssignedSettings;
use dhow_core::ids::{ReplicaName, SettingsId};
use dhow_core::replica::{Machine, ReplicaEvent};
use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::PortBinding;

use super::record::{Record, VERSION};
use crate::limits::{LEDGER_KEPT_MAX, LEDGER_PENDING_MAX};

/// What the ledger knows of a replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tracked {
    /// Absent where the replica was found and the ledger had no word of it.
    pub spec: Option<Arc<ServiceSpec>>,
    pub ports: Vec<PortBinding>,
    pub machine: Machine,
    /// Settings that it tries, and the last ones that it has passed.
    pub next: Option<AssignedSettings>,
    pub passed: Option<SettingsId>,
}

/// An event that is not known to be durable at the control plane, or was lately.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingEvent {
    pub seq: u64,
    pub name: ReplicaName,
    pub event: ReplicaEvent,
}

/// The account of a node's replicas and events. The keeper's core owns it, and takes in each record that it has written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    incarnation: u64,
    seq: u64,
    durable_seq: u64,
    boot_id: Option<String>,
    replicas: BTreeMap<ReplicaName, Tracked>,
    pending: VecDeque<PendingEvent>,
}

impl Account {
    /// The same account in a life of the node that begins now.
    pub fn of_life(self, incarnation: u64) -> Self {
        Self {
            incarnation: incarnation.max(1),
            ..self
        }
    }

    /// Which life of the node's memory this is; 0 where nothing was read.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The start of the host in which a server last confirmed what this node runs.
    pub fn confirmed_boot(&self) -> Option<&str> {
        self.boot_id.as_deref()
    }

    /// A server has confirmed what this node runs since this start of the host.
    pub fn confirm_boot(&mut self, boot_id: String) {
        self.boot_id = Some(boot_id);
    }

    /// The number of the last event.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Everything up to here is durable elsewhere.
    pub fn durable_seq(&self) -> u64 {
        self.durable_seq
    }

    pub fn replicas(&self) -> &BTreeMap<ReplicaName, Tracked> {
        &self.replicas
    }

    /// Events after a number, at most `max` of them; none where they are no longer all here.
    pub fn events_after(&self, seq: u64, max: usize) -> Option<Vec<PendingEvent>> {
        if seq > self.seq {
            return None;
        }
        let first_held = self.seq - self.pending.len() as u64;
        let skip = usize::try_from(seq.checked_sub(first_held)?).ok()?;
        Some(self.pending.iter().skip(skip).take(max).cloned().collect())
    }

    /// How many records it is worth.
    pub(super) fn live(&self) -> usize {
        self.replicas.len().saturating_add(self.pending.len())
    }

    /// Takes in a record that is written, or that the file has.
    pub fn take(&mut self, record: &Record) {
        match record {
            Record::Begin {
                version: _,
                incarnation,
                seq,
                durable_seq,
                boot_id,
            } => {
                (self.incarnation, self.seq, self.durable_seq) = (*incarnation, *seq, *durable_seq);
                self.boot_id = boot_id.clone();
            }
            Record::Track {
                name,
                spec,
                ports,
                machine,
                next,
                passed,
            } => {
                let tracked = self.replicas.entry(name.clone()).or_default();
                tracked.spec = spec.clone().or(tracked.spec.take());
                tracked.ports = ports.clone();
                (tracked.next, tracked.passed) = (next.clone(), *passed);
                if let Some(machine) = machine {
                    tracked.machine = machine.clone();
                }
            }
            Record::Event {
                seq,
                name,
                event,
                machine,
            } => {
                self.seq = *seq;
                if let Some(machine) = machine {
                    self.replicas.entry(name.clone()).or_default().machine = machine.clone();
                }
                self.pending.push_back(PendingEvent {
                    seq: *seq,
                    name: name.clone(),
                    event: event.clone(),
                });
                if self.pending.len() > LEDGER_PENDING_MAX {
                    self.pending.pop_front();
                }
            }
            Record::Forget { name } => {
                self.replicas.remove(name);
            }
            Record::Durable { seq } => self.take_durable(*seq),
        }
    }

    fn take_durable(&mut self, durable_seq: u64) {
        if durable_seq > self.seq {
            // A power cut took the end of the file: numbers go on above those that were told, and what happened
            // since has some of theirs.
            self.seq = durable_seq;
            self.pending.clear();
        }
        self.durable_seq = durable_seq;
        while self.pending.len() > LEDGER_KEPT_MAX
            && self.pending.front().is_some_and(|event| event.seq <= durable_seq)
        {
            self.pending.pop_front();
        }
    }

    /// The shortest ledger with this account.
    pub fn records(&self) -> Vec<Record> {
        let before_pending = self.seq - self.pending.len() as u64;
        let begin = Record::Begin {
            version: VERSION,
            incarnation: self.incarnation,
            seq: before_pending,
            durable_seq: self.durable_seq,
            boot_id: self.boot_id.clone(),
        };
        let tracked = self.replicas.iter().map(|(name, tracked)| Record::Track {
            name: name.clone(),
            spec: tracked.spec.clone(),
            ports: tracked.ports.clone(),
            machine: Some(tracked.machine.clone()),
            next: tracked.next.clone(),
            passed: tracked.passed,
        });
        let pending = self.pending.iter().map(|pending| Record::Event {
            seq: pending.seq,
            name: pending.name.clone(),
            event: pending.event.clone(),
            // The machines above are those after all events.
            machine: None,
        });
        std::iter::once(begin).chain(tracked).chain(pending).collect()
    }
}

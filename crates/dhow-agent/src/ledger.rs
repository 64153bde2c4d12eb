//! The node's own account of what happened, written before it is told: a daemon that is killed goes on where it
//! was, and no event is lost or invented. Owned by the keeper; nothing else writes it.
//!
//! A file of lines, each `checksum json`. Lines are appended without a sync: they have to outlive the daemon, not
//! the machine. After a reboot nothing runs any more, and a power cut costs at most the end of the file. A new file
//! takes the place of an old one durably, so that it never costs all of it. Where the beginning is lost all the
//! same, the node begins a new life ([`Ledger::incarnation`]) and tells everything it has.

mod file;
mod record;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dhow_core::assignment::AssignedSettings;
use dhow_core::ids::{ReplicaName, SettingsId};
use dhow_core::replica::{Machine, ReplicaEvent};
use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::PortBinding;

pub use file::LedgerError;
pub use record::Record;

use crate::limits::{LEDGER_COMPACT_BYTES, LEDGER_KEPT_MAX, LEDGER_PENDING_MAX};
use file::LedgerFile;

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

/// What the records of a ledger amount to.
#[derive(Debug, Default)]
struct Account {
    incarnation: u64,
    seq: u64,
    durable_seq: u64,
    boot_id: Option<String>,
    replicas: BTreeMap<ReplicaName, Tracked>,
    pending: VecDeque<PendingEvent>,
}

/// The open ledger of a node: its file, and in memory the account of replicas and events that the file amounts to. The
/// keeper appends to it and reads from it what it reports.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: LedgerFile,
    account: Account,
}

impl Ledger {
    /// Opens the ledger of a directory, or begins one. `fresh_incarnation` is used where there was none. Blocks.
    pub fn open(dir: &Path, fresh_incarnation: u64) -> Result<Self, LedgerError> {
        let path = dir.join("ledger");
        let (file, records) = LedgerFile::open(&path)?;
        let mut account = Account::default();
        for record in records {
            account.take(record);
        }
        let mut ledger = Self { path, file, account };
        if ledger.account.incarnation == 0 {
            ledger.account.incarnation = fresh_incarnation.max(1);
            ledger.rewrite()?;
        }
        Ok(ledger)
    }

    /// Which life of the node's memory this is.
    pub fn incarnation(&self) -> u64 {
        self.account.incarnation
    }

    /// The start of the host in which a server last confirmed what this node runs.
    pub fn confirmed_boot(&self) -> Option<&str> {
        self.account.boot_id.as_deref()
    }

    /// A server has confirmed what this node runs since this start of the host. Blocks.
    pub fn confirm_boot(&mut self, boot_id: &str) -> Result<(), LedgerError> {
        let before = self.account.boot_id.replace(boot_id.to_owned());
        let written = self.rewrite();
        if written.is_err() {
            self.account.boot_id = before;
        }
        written
    }

    /// The number of the last event.
    pub fn seq(&self) -> u64 {
        self.account.seq
    }

    pub fn replicas(&self) -> &BTreeMap<ReplicaName, Tracked> {
        &self.account.replicas
    }

    /// Events after a number, at most `max` of them; none where they are no longer all here.
    pub fn events_after(&self, seq: u64, max: usize) -> Option<Vec<PendingEvent>> {
        if seq > self.account.seq {
            return None;
        }
        let held = self.account.pending.len() as u64;
        let first_held = self.account.seq - held;
        let skip = usize::try_from(seq.checked_sub(first_held)?).ok()?;
        Some(
            self.account
                .pending
                .iter()
                .skip(skip)
                .take(max)
                .cloned()
                .collect(),
        )
    }

    /// Everything up to here is durable elsewhere.
    pub fn durable_seq(&self) -> u64 {
        self.account.durable_seq
    }

    /// Writes records and takes them into the account. Blocks.
    pub fn append(&mut self, records: Vec<Record>) -> Result<(), LedgerError> {
        self.file.append(&records)?;
        for record in records {
            self.account.take(record);
        }
        let live = self
            .account
            .replicas
            .len()
            .saturating_add(self.account.pending.len());
        // A record is some hundred bytes; a file of which little is alive is written anew.
        if self.file.bytes() > LEDGER_COMPACT_BYTES && self.file.records() > live.saturating_mul(4) {
            // A disk without room for a second file keeps the first one, which has everything.
            let _ = self.rewrite();
        }
        Ok(())
    }

    fn rewrite(&mut self) -> Result<(), LedgerError> {
        self.file = LedgerFile::replace(&self.path, &self.account.records())?;
        Ok(())
    }
}

impl Account {
    fn take(&mut self, record: Record) {
        match record {
            Record::Begin {
                version: _,
                incarnation,
                seq,
                durable_seq,
                boot_id,
            } => {
                (self.incarnation, self.seq, self.durable_seq) = (incarnation, seq, durable_seq);
                self.boot_id = boot_id;
            }
            Record::Track {
                name,
                spec,
                ports,
                machine,
                next,
                passed,
            } => {
                let tracked = self.replicas.entry(name).or_default();
                tracked.spec = spec.or(tracked.spec.take());
                tracked.ports = ports;
                (tracked.next, tracked.passed) = (next, passed);
                if let Some(machine) = machine {
                    tracked.machine = machine;
                }
            }
            Record::Event {
                seq,
                name,
                event,
                machine,
            } => {
                self.seq = seq;
                if let Some(machine) = machine {
                    self.replicas.entry(name.clone()).or_default().machine = machine;
                }
                self.pending.push_back(PendingEvent { seq, name, event });
                if self.pending.len() > LEDGER_PENDING_MAX {
                    self.pending.pop_front();
                }
            }
            Record::Forget { name } => {
                self.replicas.remove(&name);
            }
            Record::Durable { seq } => {
                if seq > self.seq {
                    // A power cut took the end of the file: numbers go on above those that were told, and what happened
                    // since has some of theirs.
                    self.seq = seq;
                    self.pending.clear();
                }
                self.durable_seq = seq;
                let durable_seq = self.durable_seq;
                while self.pending.len() > LEDGER_KEPT_MAX
                    && self.pending.front().is_some_and(|event| event.seq <= durable_seq)
                {
                    self.pending.pop_front();
                }
            }
        }
    }

    /// The shortest ledger with this account.
    fn records(&self) -> Vec<Record> {
        let before_pending = self.seq - self.pending.len() as u64;
        let begin = Record::Begin {
            version: record::VERSION,
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

#[cfg(test)]
mod tests;

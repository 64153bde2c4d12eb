//! The ledger: what it keeps, what a torn or rotten file costs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::limits::LEDGER_KEPT_MAX;
use dhow_core::ids::ReplicaName;
use dhow_core::ids::{DeploymentName, Generation, RoleName, ServiceName};
use dhow_core::replica::{Machine, ReplicaEvent, ReplicaState};
use dhow_core::spec::ServiceSpec;

/// A ledger and its account, as the keeper has them.
struct Opened {
    ledger: Ledger,
    account: Account,
}

impl Opened {
    fn open(dir: &Path, incarnation: u64) -> Result<Self, LedgerError> {
        let (ledger, account) = Ledger::open(dir, incarnation)?;
        Ok(Self { ledger, account })
    }

    fn append(&mut self, records: Vec<Record>) -> Result<(), LedgerError> {
        for record in &records {
            self.account.take(record);
        }
        self.ledger.append(&records)?;
        if self.ledger.is_mostly_history(&self.account) {
            self.ledger.replace(&self.account.records())?;
        }
        Ok(())
    }

    fn incarnation(&self) -> u64 {
        self.account.incarnation()
    }

    fn seq(&self) -> u64 {
        self.account.seq()
    }

    fn durable_seq(&self) -> u64 {
        self.account.durable_seq()
    }

    fn replicas(&self) -> &BTreeMap<ReplicaName, Tracked> {
        self.account.replicas()
    }

    fn events_after(&self, seq: u64, max: usize) -> Option<Vec<PendingEvent>> {
        self.account.events_after(seq, max)
    }
}

fn name(index: u32) -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index,
        generation: Generation(1),
    }
}

fn track(index: u32) -> Record {
    Record::Track {
        name: name(index),
        spec: Some(Arc::new(ServiceSpec::default())),
        ports: Vec::new(),
        machine: None,
        next: None,
        passed: None,
    }
}

fn event(seq: u64, index: u32) -> Record {
    let machine = Machine {
        state: ReplicaState::Running,
        pid: Some(7),
        ..Machine::default()
    };
    Record::Event {
        seq,
        name: name(index),
        event: ReplicaEvent::Started { pid: 7 },
        machine: Some(machine),
    }
}

#[test]
fn what_was_written_is_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Opened::open(dir.path(), 42).unwrap();
    ledger
        .append(vec![track(0), event(1, 0), track(1), event(2, 1), event(3, 0)])
        .unwrap();
    ledger.append(vec![Record::Durable { seq: 2 }]).unwrap();
    ledger.append(vec![Record::Forget { name: name(1) }]).unwrap();
    drop(ledger);
    let ledger = Opened::open(dir.path(), 99).unwrap();
    assert_eq!(
        (ledger.incarnation(), ledger.seq(), ledger.durable_seq()),
        (42, 3, 2)
    );
    assert_eq!(ledger.replicas().keys().collect::<Vec<_>>(), [&name(0)]);
    assert_eq!(ledger.replicas()[&name(0)].machine.pid, Some(7));
    let seqs = |after| -> Option<Vec<u64>> {
        let events = ledger.events_after(after, 10)?;
        Some(events.iter().map(|event| event.seq).collect())
    };
    assert_eq!(seqs(2), Some(vec![3]));
    assert_eq!(seqs(3), Some(vec![]));
    assert_eq!(
        seqs(1),
        Some(vec![2, 3]),
        "what is durable may be asked for again"
    );
    assert_eq!(seqs(4), None, "it never happened");
}

#[test]
fn of_what_is_durable_the_newest_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Opened::open(dir.path(), 42).unwrap();
    let count = LEDGER_KEPT_MAX as u64 + 10;
    let events = (1..=count).map(|seq| event(seq, 0));
    ledger
        .append(std::iter::once(track(0)).chain(events).collect())
        .unwrap();
    ledger.append(vec![Record::Durable { seq: 5 }]).unwrap();
    assert!(ledger.events_after(4, 1).is_none() && ledger.events_after(5, 1).is_some());
    ledger.append(vec![Record::Durable { seq: count }]).unwrap();
    drop(ledger);
    let ledger = Opened::open(dir.path(), 42).unwrap();
    assert_eq!((ledger.seq(), ledger.durable_seq()), (count, count));
    assert!(ledger.events_after(9, 1).is_none(), "the oldest have gone");
    let kept = ledger.events_after(10, usize::MAX).unwrap();
    assert_eq!((kept.len(), kept[0].seq), (LEDGER_KEPT_MAX, 11));
}

#[test]
fn a_torn_end_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Opened::open(dir.path(), 1).unwrap();
    ledger.append(vec![track(0), event(1, 0), event(2, 0)]).unwrap();
    drop(ledger);
    let path = dir.path().join("ledger");
    let whole = std::fs::read(&path).unwrap();
    let first_lines = whole.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(first_lines, 4);
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let mut ledger = Opened::open(dir.path(), 5).unwrap();
        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        let seq = lines.saturating_sub(2) as u64;
        assert_eq!(ledger.seq(), seq, "cut at {cut}");
        assert_eq!(ledger.incarnation(), if lines == 0 { 5 } else { 1 });
        ledger.append(vec![event(seq + 1, 0)]).unwrap();
        drop(ledger);
        assert_eq!(Opened::open(dir.path(), 5).unwrap().seq(), seq + 1);
    }
}

#[test]
fn a_flipped_byte_never_becomes_another_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Opened::open(dir.path(), 1).unwrap();
    ledger.append(vec![track(0), event(1, 0)]).unwrap();
    let known = ledger.replicas().clone();
    drop(ledger);
    let path = dir.path().join("ledger");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        let mut account = Account::default();
        let (records, _) = file::read(&damaged);
        records.iter().for_each(|record| account.take(record));
        assert!(account.seq() <= 1);
        if account.seq() == 1 {
            // Only the case of a checksum's letter can be changed without being noticed.
            assert_eq!(account.replicas(), &known, "at {at}");
        }
    }
}

#[test]
fn a_damaged_ledger_is_put_aside_and_an_unfinished_line_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Opened::open(dir.path(), 1).unwrap();
    ledger.append(vec![track(0), event(1, 0)]).unwrap();
    drop(ledger);
    let path = dir.path().join("ledger");
    let aside = dir.path().join("ledger.unreadable-1");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    drop(Opened::open(dir.path(), 2).unwrap());
    assert!(
        !aside.exists(),
        "a line was never finished: there is nothing to keep"
    );
    // The line in the middle is damaged: what follows it would be lost for good.
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x20;
    std::fs::write(&path, &damaged).unwrap();
    let ledger = Opened::open(dir.path(), 3).unwrap();
    assert_eq!(ledger.seq(), 0);
    assert_eq!(std::fs::read(&aside).unwrap(), damaged);
    drop(ledger);
    // All of it is of a form that nobody here knows.
    std::fs::write(&path, "a newer form\n").unwrap();
    let ledger = Opened::open(dir.path(), 4).unwrap();
    assert_eq!(ledger.incarnation(), 4);
    let second = dir.path().join("ledger.unreadable-2");
    assert_eq!(std::fs::read(second).unwrap(), b"a newer form\n");
}

#[test]
fn a_long_history_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Opened::open(dir.path(), 1).unwrap();
    ledger.append(vec![track(0)]).unwrap();
    let rounds = 40;
    let batch = 1_000;
    for round in 0..rounds {
        let first = round * batch + 1;
        ledger
            .append((first..first + batch).map(|seq| event(seq, 0)).collect())
            .unwrap();
        ledger
            .append(vec![Record::Durable {
                seq: first + batch - 1,
            }])
            .unwrap();
    }
    let bytes = std::fs::metadata(dir.path().join("ledger")).unwrap().len();
    assert!(bytes < 2 * LEDGER_COMPACT_BYTES, "{bytes}");
    drop(ledger);
    let ledger = Opened::open(dir.path(), 2).unwrap();
    assert_eq!(
        (ledger.seq(), ledger.durable_seq()),
        (rounds * batch, rounds * batch)
    );
    assert_eq!(ledger.replicas().len(), 1);
    assert_eq!(ledger.incarnation(), 1);
}

#[test]
fn numbers_go_on_above_what_was_told_before_the_end_was_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = Opened::open(dir.path(), 42).unwrap();
    ledger.append(vec![track(0), event(1, 0), event(2, 0)]).unwrap();
    ledger.append(vec![Record::Durable { seq: 7 }]).unwrap();
    assert_eq!((ledger.seq(), ledger.durable_seq()), (7, 7));
    assert_eq!(ledger.events_after(7, 9).unwrap(), []);
    assert!(
        ledger.events_after(6, 9).is_none(),
        "nobody knows any more what that was"
    );
    ledger.append(vec![event(8, 0)]).unwrap();
    drop(ledger);
    let ledger = Opened::open(dir.path(), 43).unwrap();
    let told = (ledger.incarnation(), ledger.seq(), ledger.durable_seq());
    assert_eq!(told, (42, 8, 7));
    assert_eq!(ledger.events_after(7, 9).unwrap().len(), 1);
    assert_eq!(ledger.replicas().len(), 1, "what it runs it knows");
}

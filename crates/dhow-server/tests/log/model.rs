//! Random sequences of steps and reopenings, against a log in a `BTreeMap`.

use std::collections::BTreeMap;

use bytes::Bytes;
use dhow_server::plane::log::store::{
    Batch, Entry, LogPosition, MetaKey, Op, SegmentStore, StoreError, StoreOptions,
};
use proptest::prelude::*;

use super::support::{long, memory_dir, open, payload, read_all, small};

#[derive(Debug, Clone)]
enum Step {
    Append { count: usize, len: usize },
    AppendAt { ahead: u64 },
    Truncate { back: u64 },
    Purge { ahead: u64 },
    Meta { key: MetaKey, len: usize },
    Mixed { len: usize, back: u64 },
    Read { from: u64, max_bytes: usize },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..6usize, 0..1200usize).prop_map(|(count, len)| Step::Append { count, len }),
        1 => (0..3u64).prop_map(|ahead| Step::AppendAt { ahead }),
        2 => (0..8u64).prop_map(|back| Step::Truncate { back }),
        2 => (0..12u64).prop_map(|ahead| Step::Purge { ahead }),
        1 => (proptest::sample::select(&MetaKey::ALL[..]), 0..1024usize).prop_map(|(key, len)| Step::Meta { key, len }),
        1 => (0..400usize, 0..4u64).prop_map(|(len, back)| Step::Mixed { len, back }),
        2 => (0..20u64, 0..3000usize).prop_map(|(from, max_bytes)| Step::Read { from, max_bytes }),
        1 => Just(Step::Reopen),
    ]
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    purged: Option<LogPosition>,
    metas: BTreeMap<MetaKey, Bytes>,
    made: u64,
}

impl Model {
    fn first(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    fn append(&mut self, len: usize) -> Op {
        self.made += 1;
        let entry = Entry {
            index: self.next,
            term: self.made,
            payload: payload(self.made, len),
        };
        self.entries.insert(self.next, entry.clone());
        self.next += 1;
        match self.made % 2 {
            0 => Op::Append(entry),
            _ => Op::AppendNext {
                term: entry.term,
                payload: entry.payload,
            },
        }
    }

    fn truncate(&mut self, back: u64) -> Op {
        let from = self.next.saturating_sub(back).max(self.first());
        self.entries.split_off(&from);
        self.next = from;
        Op::Truncate { from }
    }

    fn purge(&mut self, ahead: u64) -> Op {
        let index = (self.first() + ahead).saturating_sub(1);
        let at = LogPosition { index, term: 3 };
        if self.purged.is_none_or(|purged| purged.index < index) {
            self.purged = Some(at);
            self.entries = self.entries.split_off(&(index + 1));
            self.next = self.next.max(index + 1);
        }
        Op::Purge(at)
    }
}

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 2000,
        ..small()
    }
}

fn check(store: &SegmentStore, model: &Model) {
    let bounds = store.bounds();
    assert_eq!(
        (bounds.first_index, bounds.next_index, bounds.purged),
        (model.first(), model.next, model.purged)
    );
    let last = model
        .entries
        .values()
        .next_back()
        .map(Entry::position)
        .or(model.purged);
    assert_eq!(bounds.last, last);
    assert_eq!(
        read_all(store),
        model.entries.values().cloned().collect::<Vec<_>>()
    );
    for key in MetaKey::ALL {
        assert_eq!(store.meta(key), model.metas.get(&key).cloned());
    }
}

fn run(dir: &std::path::Path, steps: Vec<Step>) {
    let mut store = open(dir, options());
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Append { count, len } => {
                let ops = (0..count.min(4096 / len.max(1)).max(1))
                    .map(|_| model.append(len))
                    .collect();
                store.commit(Batch::new(ops)).unwrap();
            }
            Step::AppendAt { ahead } => append_at(&store, &mut model, ahead),
            Step::Truncate { back } => drop(store.commit(Batch::of(model.truncate(back))).unwrap()),
            Step::Purge { ahead } => drop(store.commit(Batch::of(model.purge(ahead))).unwrap()),
            Step::Meta { key, len } => {
                let value = payload(model.made, len);
                model.metas.insert(key, value.clone());
                store.commit(Batch::of(Op::Meta { key, value })).unwrap();
            }
            Step::Mixed { len, back } => {
                let ops = vec![model.append(len), model.truncate(back), model.append(len)];
                store.commit(Batch::new(ops)).unwrap();
            }
            Step::Read { from, max_bytes } => {
                let from = model.first() + from;
                let got = store.read(from..model.next, max_bytes).unwrap();
                let wanted: Vec<_> = model
                    .entries
                    .range(from..)
                    .take(got.len())
                    .map(|(_, e)| e.clone())
                    .collect();
                assert_eq!(got, wanted);
                assert_eq!(got.is_empty(), from >= model.next);
            }
            Step::Reopen => {
                drop(store);
                store = open(dir, options());
                check(&store, &model);
            }
        }
    }
    check(&store, &model);
    drop(store);
    check(&open(dir, options()), &model);
}

/// Appends two entries of which the second follows the first only where `ahead` is 0; else neither may stay.
fn append_at(store: &SegmentStore, model: &mut Model, ahead: u64) {
    let entry = |index| Entry {
        index,
        term: 9,
        payload: Bytes::new(),
    };
    let first = entry(model.next);
    let second = entry(model.next + 1 + ahead);
    match store.commit(Batch::new(vec![
        Op::Append(first.clone()),
        Op::Append(second.clone()),
    ])) {
        Ok(_) => {
            assert_eq!(ahead, 0);
            model.next = second.index + 1;
            model
                .entries
                .extend([(first.index, first), (second.index, second)]);
        }
        Err(StoreError::NotNext { expected, got }) => {
            assert_ne!(ahead, 0);
            assert_eq!((expected, got), (first.index + 1, second.index));
        }
        Err(other) => panic!("{other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if long() { 2000 } else { 48 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_is_what_the_model_is(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = memory_dir();
        run(dir.path(), steps);
    }
}

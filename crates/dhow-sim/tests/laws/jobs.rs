//! What holds of runs after every entry: no due time begins two, no job has more under way than it may, and what is kept of
//! runs has its bounds.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::change::{Change, ChangeSink, ServiceChange};
use dhow_core::command::Entry;
use dhow_core::ids::{ServiceId, Slot};
use dhow_core::state::{Service, State, Wanted};
use dhow_core::step::step;

/// The due times for which a run began.
#[derive(Default)]
struct Began(BTreeSet<(ServiceId, i64)>);

impl ChangeSink for Began {
    fn tell(&mut self, _: &State, change: Change<'_>) {
        if let Change::Service(
            id,
            ServiceChange::RunBegan {
                due_unix_secs: Some(due),
                ..
            },
        ) = change
        {
            assert!(self.0.insert((id, due)), "two runs of service {id} are for {due}");
        }
    }
}

pub fn check(log: &[Entry]) {
    let (mut state, mut began) = (State::default(), Began::default());
    for entry in log {
        let _ = step(&mut state, entry, &mut began);
        for service in state.services.values() {
            check_parallelism(&state, service);
            check_runs(service);
        }
    }
}

fn check_parallelism(state: &State, service: &Service) {
    let Some(most) = service.spec().and_then(|spec| spec.parallelism()) else {
        return;
    };
    let mut under_way: BTreeMap<Option<u32>, BTreeSet<Slot>> = BTreeMap::new();
    for (key, replica) in state.replicas_of(service.id) {
        let counts =
            replica.reserves() && replica.wanted == Wanted::Run && service.is_current(key.generation);
        if counts {
            let run = service.run_of(key.slot).map(|run| run.number);
            under_way.entry(run).or_default().insert(key.slot);
        }
    }
    for (run, slots) in under_way {
        assert!(
            slots.len() <= most as usize,
            "{}, run {run:?}: {slots:?}",
            service.key
        );
    }
}

fn check_runs(service: &Service) {
    let open = service.open_runs().count();
    assert!(
        open <= State::OPEN_RUNS_MAX,
        "{} has {open} open runs",
        service.key
    );
    let numbers: Vec<u32> = service.runs.iter().map(|run| run.number).collect();
    assert!(numbers.is_sorted() && numbers.last().is_none_or(|last| *last == service.cron_runs));
    let bases: Vec<u32> = service.runs.iter().map(|run| run.base).collect();
    assert!(bases.is_sorted(), "{} has {bases:?}", service.key);
}

//! Schedules by a clock that is moved by hand.

use std::collections::BTreeSet;
use std::sync::Arc;

use dhow_core::change::{Change, ChangeSink, ServiceChange};
use dhow_core::command::{Command, DeploymentCommand, Entry, Outcome};
use dhow_core::ids::{DeploymentName, ServiceName};
use dhow_core::plan::Plan;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::State;
use dhow_core::step::step;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::FakeClock;
use crate::plane::runtime::{RuntimeHandle, RuntimeOptions, spawn_with};

/// 2027-01-15 08:00:00 UTC.
const EIGHT: i64 = 1_800_000_000;
const HOUR_MS: i64 = 3_600_000;

struct World {
    clock: FakeClock,
    handle: RuntimeHandle,
    cancel: CancellationToken,
    ticks: u64,
}

impl World {
    fn new(state: State, wall_unix_secs: i64) -> Self {
        let (cancel, clock) = (CancellationToken::new(), FakeClock::new(wall_unix_secs * 1_000));
        let options = RuntimeOptions {
            planner: Arc::new(|_, _, _| Plan::default()),
            ..RuntimeOptions::default()
        };
        // The runtime has a clock of its own, so that only the schedules sleep on this one.
        let still = Arc::new(FakeClock::new(wall_unix_secs * 1_000));
        let handle = spawn_with(cancel.clone(), state, still, options);
        Self {
            clock,
            handle,
            cancel,
            ticks: 0,
        }
    }

    async fn deploy(&self, schedule: &str) {
        let text = format!(
            r#"{{"version":"v1","deployment":"shop","services":{{"nightly":{{"rtype":"cron","schedule":"{schedule}","image":"job:1"}}}}}}"#
        );
        let spec: DeploymentSpec = serde_json::from_str(&text).unwrap();
        let command = DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "test".into(),
            wall_unix_secs: self.clock.wall_unix_ms() / 1_000,
            force: false,
        };
        let input = self.handle.input();
        input.write(Command::Deployment(command), None).await.unwrap();
    }

    async fn start(&mut self) {
        let (view, input) = (self.handle.view(), self.handle.input());
        view.leaderships().wait_for(|leads| leads.is_here).await.unwrap();
        let clock = Arc::new(self.clock.clone());
        tokio::spawn(run(view, input, clock, self.cancel.clone()));
        self.settle().await;
    }

    /// Waits until the schedules have been looked at once more.
    async fn settle(&mut self) {
        self.ticks += 1;
        self.clock.wait_for_sleeps_begun(self.ticks).await;
    }

    async fn pass(&mut self, wall_ms: i64) {
        self.clock.step_wall(wall_ms);
        self.clock.step_monotonic(TICK_MS);
        self.settle().await;
    }

    fn runs(&self) -> u32 {
        let state = self.handle.view().state();
        let name = ServiceName::new("nightly").unwrap();
        let deployment = DeploymentName::new("shop").unwrap();
        state.service_named(&deployment, &name).unwrap().cron_runs
    }
}

fn ended(state: &State) -> State {
    // Nothing is placed in these tests, so that a run would wait for ever: it is taken as done.
    let mut state = state.clone();
    let ids: Vec<ServiceId> = state.services.keys().copied().collect();
    for id in ids {
        let service = Arc::make_mut(state.services.get_mut(&id).unwrap());
        service.done = service.wanted_slots().collect();
    }
    state
}

#[tokio::test]
async fn fires_at_its_time_and_not_again_when_the_clock_steps_back() {
    let mut world = World::new(State::default(), EIGHT);
    world.deploy("30 * * * *").await;
    world.start().await;
    assert_eq!(world.runs(), 0);
    world.pass(HOUR_MS / 2 - 1_000).await;
    assert_eq!(world.runs(), 0, "a second before");
    world.pass(1_000).await;
    assert_eq!(world.runs(), 1);
    world.pass(-600_000).await;
    world.pass(600_000).await;
    world.pass(1_000).await;
    assert_eq!(world.runs(), 1, "the same half hour again");
}

#[tokio::test]
async fn a_run_that_has_not_ended_is_named_as_what_the_next_one_waits_for() {
    let mut world = World::new(State::default(), EIGHT);
    world.deploy("30 * * * *").await;
    world.start().await;
    world.pass(HOUR_MS / 2).await;
    assert_eq!(world.runs(), 1);
    let state = world.handle.view().state();
    world.cancel.cancel();
    let service = state.services.values().next().unwrap();
    let nine = EIGHT + 3_600;
    let before = outlook(&state, service, nine).unwrap();
    assert_eq!(
        (before.left_out_unix_secs, before.next_unix_secs),
        (None, Some(nine + 1_800))
    );
    let late = outlook(&state, service, nine + 2 * 3_600).unwrap();
    assert_eq!(
        (late.left_out_unix_secs, late.next_unix_secs),
        (Some(nine + 1_800), Some(nine + 2 * 3_600 + 1_800))
    );
    let over = ended(&state);
    let service = over.services.values().next().unwrap();
    let over = outlook(&over, service, nine + 2 * 3_600).unwrap();
    assert_eq!(over.left_out_unix_secs, None);
}

#[tokio::test]
async fn a_clock_that_was_hours_ahead_is_told_of_and_not_waited_for() {
    let mut world = World::new(State::default(), EIGHT);
    world.deploy("30 * * * *").await;
    world.start().await;
    world.pass(10 * HOUR_MS).await;
    assert_eq!(world.runs(), 1, "17:30 by a clock that is wrong");
    let state = ended(&world.handle.view().state());
    world.cancel.cancel();
    let service = state.services.values().next().unwrap().clone();
    let fired = EIGHT + 9 * 3_600 + 1_800;

    let minutes_back = outlook(&state, &service, fired - 600).unwrap();
    assert_eq!(minutes_back.waits_for_unix_secs, Some(fired));
    assert_eq!(minutes_back.next_unix_secs, Some(fired + 3_600));
    let hours_back = outlook(&state, &service, EIGHT).unwrap();
    assert_eq!(hours_back.waits_for_unix_secs, None);
    assert_eq!(hours_back.next_unix_secs, Some(EIGHT + 1_800));

    let mut right = World::new(state, EIGHT);
    right.start().await;
    right.pass(HOUR_MS / 2).await;
    assert_eq!(right.runs(), 2, "08:30 by the clock that was set right");
}

#[tokio::test]
async fn what_was_missed_is_made_up_for_once_and_nothing_twice_after_a_restart() {
    let mut world = World::new(State::default(), EIGHT);
    world.deploy("30 * * * *").await;
    world.start().await;
    world.pass(HOUR_MS / 2).await;
    assert_eq!(world.runs(), 1);
    let state = ended(&world.handle.view().state());
    world.cancel.cancel();

    let mut same = World::new(state.clone(), EIGHT + 1_900);
    same.start().await;
    assert_eq!(same.runs(), 1, "08:30 has been fired before the restart");

    let mut late = World::new(state, EIGHT + 5 * 3_600);
    late.start().await;
    assert_eq!(late.runs(), 2, "09:30 to 12:30 were missed, and are one run");
    late.pass(1_000).await;
    assert_eq!(late.runs(), 2);
}

#[tokio::test]
async fn a_run_that_a_person_began_takes_the_place_of_no_due_time() {
    let state = State {
        feature_level: State::FEATURE_LEVEL,
        ..State::default()
    };
    let world = World::new(state, EIGHT);
    world.deploy("30 * * * *").await;
    let command = DeploymentCommand::StartRun {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("nightly").unwrap(),
    };
    let input = world.handle.input();
    input.write(Command::Deployment(command), None).await.unwrap();
    assert_eq!(world.runs(), 1);
    let state = world.handle.view().state();
    world.cancel.cancel();
    // Nobody led at half past eight: whoever leads at nine makes up for it.
    let due = Table::default().look(&state, EIGHT + 3_600);
    let times: Vec<i64> = due.iter().map(|due| due.scheduled_unix_secs).collect();
    assert_eq!(times, [EIGHT + 1_800]);
    assert_eq!(Table::default().look(&state, EIGHT + 1_799), []);
}

#[tokio::test]
async fn a_new_schedule_looks_ahead_and_a_clock_that_was_years_ahead_is_forgotten() {
    let mut world = World::new(State::default(), EIGHT);
    world.deploy("0 0 1 1 *").await;
    world.start().await;
    world.pass(1_000).await;
    world.deploy("*/5 * * * *").await;
    world.pass(1_000).await;
    assert_eq!(world.runs(), 0, "nothing is due when a schedule begins");

    let mut table = Table::default();
    let state = ended(&world.handle.view().state());
    let ahead = EIGHT + 10 * 365 * 86_400;
    let due = table.look(&state, ahead);
    assert_eq!(due.len(), 1);
    table.fired(due[0], ahead);
    for minutes in [0, 4, 5, 9] {
        let again = table.look(&state, ahead - 600 + minutes * 60);
        assert_eq!(again, [], "the clock stepped back by minutes");
    }
    assert_eq!(table.look(&state, EIGHT + 60), []);
    let due = table.look(&state, EIGHT + 300);
    assert_eq!(due[0].scheduled_unix_secs, EIGHT + 300);
}

/// Hears which runs begin.
#[derive(Default)]
struct Began(Vec<i64>);

impl ChangeSink for Began {
    fn tell(&mut self, _: &State, change: Change<'_>) {
        if let Change::Service(_, ServiceChange::RunBegan { due_unix_secs, .. }) = change {
            self.0.extend(due_unix_secs);
        }
    }
}

/// What leaders with clocks of their own do to one state, without tasks.
struct Leaders {
    state: State,
    table: Table,
    began: Began,
    now_unix_secs: i64,
}

impl Leaders {
    fn new(schedule: &str, zone: &str, missed: &str) -> Self {
        let text = format!(
            r#"{{"version":"v1","deployment":"shop","services":{{"nightly":{{"rtype":"cron","schedule":"{schedule}","zone":"{zone}","missed":"{missed}","concurrency":"allow","image":"job:1","scale":{{"mode":"fixed","replicas":0}}}}}}}}"#
        );
        let mut leaders = Self {
            state: State {
                feature_level: State::FEATURE_LEVEL,
                ..State::default()
            },
            table: Table::default(),
            began: Began::default(),
            now_unix_secs: EIGHT,
        };
        let command = DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_str(&text).unwrap()),
            author: "test".into(),
            wall_unix_secs: EIGHT,
            force: false,
        };
        leaders.apply(Command::Deployment(command)).unwrap();
        leaders
    }

    fn apply(&mut self, command: Command) -> Result<Outcome, Refused> {
        let entry = Entry {
            time: self.state.time,
            term: self.state.term,
            request: None,
            command,
        };
        step(&mut self.state, &entry, &mut self.began)
    }

    /// The leader looks; an entry may be written without its knowing.
    fn look(&mut self, hears: bool) {
        for due in self.table.look(&self.state, self.now_unix_secs) {
            let (command, _) = command_of(due, State::FEATURE_LEVEL);
            let result = self.apply(Command::Plan(command)).map(|_| ());
            if hears && is_settled(due, result.map_err(WriteError::Refused)) {
                self.table.fired(due, self.now_unix_secs);
            }
        }
    }
}

/// What happens to a cluster with a schedule.
#[derive(Clone, Debug)]
enum Op {
    Pass(i64),
    /// The clock is set, or another leader has another one.
    Set(i64),
    AnotherLeads,
    Look {
        hears: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1..7_200_i64).prop_map(Op::Pass),
        2 => prop_oneof![-1_200..1_200_i64, -200_000..200_000_i64].prop_map(Op::Set),
        2 => Just(Op::AnotherLeads),
        6 => prop::bool::weighted(0.8).prop_map(|hears| Op::Look { hears }),
    ]
}

proptest! {
    /// Over changes of the leader, clocks that are set and answers that are lost.
    #[test]
    fn a_due_time_begins_one_run_at_most(
        schedule in prop_oneof![Just("*/7 * * * *"), Just("30 2 * * *"), Just("0 */3 * * *")],
        zone in prop_oneof![Just("UTC"), Just("Europe/Berlin"), Just("Australia/Lord_Howe")],
        missed in prop_oneof![Just("once"), Just("skip")],
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut leaders = Leaders::new(schedule, zone, missed);
        for op in &ops {
            match op {
                Op::Pass(secs) | Op::Set(secs) => leaders.now_unix_secs += secs,
                Op::AnotherLeads => leaders.table = Table::default(),
                Op::Look { hears } => leaders.look(*hears),
            }
        }
        let began = &leaders.began.0;
        let moments: BTreeSet<&i64> = began.iter().collect();
        prop_assert_eq!(moments.len(), began.len(), "{:?} after {:?}", began, ops);
    }

    /// While somebody leads and the clock runs on, every due time begins its run, whoever that is.
    #[test]
    fn while_the_clock_runs_on_every_due_time_has_its_run(changes in prop::collection::vec(any::<bool>(), 600)) {
        let mut leaders = Leaders::new("*/7 * * * *", "UTC", "skip");
        for changes in &changes {
            leaders.now_unix_secs += 30;
            if *changes {
                leaders.table = Table::default();
            }
            leaders.look(true);
        }
        let mut due = coming(leaders.state.services.values().next().unwrap(), EIGHT, 100);
        due.retain(|due| *due <= leaders.now_unix_secs);
        prop_assert_eq!(&leaders.began.0, &due);
    }
}

#[test]
fn what_was_missed_is_made_up_for_or_not_as_the_service_says() {
    for (missed, runs) in [("once", 1), ("skip", 0)] {
        let mut leaders = Leaders::new("30 * * * *", "UTC", missed);
        leaders.look(true);
        leaders.now_unix_secs += 5 * 3_600;
        leaders.table = Table::default();
        leaders.look(true);
        assert_eq!(leaders.began.0.len(), runs, "{missed}");
        // Whoever leads next finds it dealt with.
        leaders.table = Table::default();
        leaders.look(true);
        assert_eq!(leaders.began.0.len(), runs, "{missed}");
        leaders.now_unix_secs += 1_830;
        leaders.look(true);
        assert_eq!(
            leaders.began.0.len(),
            runs + 1,
            "{missed}: the next one is on time"
        );
    }
}

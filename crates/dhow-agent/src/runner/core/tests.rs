//! What a runner decides in every state, whatever is wished.

use std::sync::Arc;

use dhow_core::assignment::AssignedSettings;
use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceName, SettingsId};
use dhow_core::replica::{Exit, Machine, ReplicaEvent, ReplicaState};
use dhow_core::spec::{ContentHash, FileMount, InitStep, OnChange, ServiceSpec};

use super::*;
use crate::ledger::Tracked;
use crate::wish::{Assigned, Wish};

const STATES: [ReplicaState; 9] = [
    ReplicaState::Pending,
    ReplicaState::Pulling,
    ReplicaState::Starting,
    ReplicaState::Running,
    ReplicaState::Backoff,
    ReplicaState::Stopping,
    ReplicaState::Exited,
    ReplicaState::Failed,
    ReplicaState::Lost,
];

fn name() -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::fallback(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index: 0,
        generation: Generation(1),
    }
}

fn assigned(next: Option<u32>) -> Assigned {
    Assigned {
        spec: Arc::new(ServiceSpec::default()),
        next: next.map(|id| AssignedSettings {
            id: SettingsId(id),
            spec: Arc::new(ServiceSpec::default()),
        }),
    }
}

fn core_in(state: ReplicaState) -> RunnerCore {
    let machine = Machine {
        state,
        failures: 1,
        ..Machine::default()
    };
    let tracked = Tracked {
        spec: Some(assigned(None).spec),
        machine,
        ..Tracked::default()
    };
    RunnerCore::new(name(), tracked)
}

#[test]
fn one_that_may_run_elsewhere_is_not_started_and_one_that_runs_is_watched() {
    for state in STATES {
        let mut core = core_in(state);
        core.take_wish(Wish::Confirmed(assigned(None)));
        let confirmed = core.task();
        core.take_wish(Wish::Run(assigned(None)));
        let run = core.task();
        core.take_wish(Wish::Stop);
        assert_eq!(core.task(), RunnerTask::EndForGood, "{state:?}");
        match state {
            ReplicaState::Running => assert_eq!((confirmed, run), (RunnerTask::Watch, RunnerTask::Watch)),
            ReplicaState::Stopping => {
                assert_eq!((confirmed, run), (RunnerTask::FinishStop, RunnerTask::FinishStop));
            }
            ReplicaState::Pending | ReplicaState::Pulling | ReplicaState::Starting => {
                assert_eq!(confirmed, RunnerTask::Rest, "{state:?}");
                assert!(matches!(run, RunnerTask::Start(_)), "{state:?}");
            }
            ReplicaState::Backoff => {
                assert_eq!(confirmed, RunnerTask::Rest);
                assert!(matches!(run, RunnerTask::StartAfter(..)));
            }
            ReplicaState::Exited | ReplicaState::Failed | ReplicaState::Lost => {
                assert_eq!(
                    (confirmed, run),
                    (RunnerTask::Rest, RunnerTask::Rest),
                    "{state:?}"
                );
            }
        }
    }
}

/// Whatever an event of the core is made for, its machine takes it.
#[test]
fn what_is_decided_is_legal_in_every_state() {
    let left = [
        LeftBehind::Runs { pid: 7 },
        LeftBehind::Ended {
            exit: Exit::Code(1),
            oom: false,
        },
        LeftBehind::Nothing,
    ];
    for state in STATES {
        let core = core_in(state);
        let resumed = left.iter().filter_map(|left| core.resume(*left));
        let all = resumed.chain(core.stop_begins());
        for event in all {
            core.clone().happen(event).unwrap();
        }
        if matches!(
            core_in(state).started().task(),
            RunnerTask::Start(_) | RunnerTask::StartAfter(..)
        ) {
            for mut events in [
                core.could_not_start("no".into()),
                core.could_not_fetch("no".into()),
            ] {
                let mut failing = core.clone();
                // What has begun to start is not fetched any more.
                if state == ReplicaState::Starting {
                    events.retain(|event| *event != ReplicaEvent::PullBegan);
                }
                for event in events {
                    failing.happen(event).unwrap();
                }
            }
        }
    }
}

impl RunnerCore {
    fn started(mut self) -> Self {
        self.take_wish(Wish::Run(assigned(None)));
        self
    }
}

#[test]
fn what_counts_already_asks_for_nothing_and_other_settings_are_tried() {
    let mut core = core_in(ReplicaState::Running);
    assert_eq!(
        core.take_wish(Wish::Run(assigned(None))),
        AssignedChange::default()
    );
    let change = core.take_wish(Wish::Run(assigned(Some(3))));
    assert!(change.is_tracked && change.has_other_trial && !change.gives_up_trial);
    assert_eq!(core.tries().map(|next| next.id), Some(SettingsId(3)));

    assert!(core.pass(SettingsId(3)).is_some());
    let passed = ReplicaEvent::SettingsPassed {
        settings: SettingsId(3),
    };
    assert_eq!(core.passes(SettingsId(3)), [passed, ReplicaEvent::BecameHealthy]);
    assert!(core.tries().is_none() && core.passed().is_some());

    let change = core.take_wish(Wish::Run(assigned(Some(4))));
    assert!(change.gives_up_trial);
    assert_eq!(core.tries().map(|next| next.id), Some(SettingsId(4)));
}

#[test]
fn a_sick_run_has_failed_however_it_ended() {
    let core = core_in(ReplicaState::Running);
    let ended = |exit| ReplicaEvent::Ended { exit, oom: false };
    assert_eq!(
        core.sick_ends(Some((Exit::Code(0), false))),
        ended(Exit::Signal(15))
    );
    assert_eq!(core.sick_ends(None), ended(Exit::Signal(15)));
    assert_eq!(core.sick_ends(Some((Exit::Code(3), false))), ended(Exit::Code(3)));
}

#[test]
fn files_of_settings_are_shown_while_they_are_tried_and_taken_back_with_them() {
    let with = |content: &[u8]| {
        let mount = FileMount {
            source: "app.conf".into(),
            content: Some(ContentHash::of(content)),
            on_change: OnChange::Signal,
            ..FileMount::default()
        };
        Arc::new(ServiceSpec {
            configs: vec![mount],
            ..ServiceSpec::default()
        })
    };
    let wish = |next: Option<&[u8]>| {
        Wish::Run(Assigned {
            spec: with(b"one"),
            next: next.map(|content| AssignedSettings {
                id: SettingsId(3),
                spec: with(content),
            }),
        })
    };
    let mut core = core_in(ReplicaState::Running);
    assert!(core.take_wish(wish(None)).has_other_files);
    assert!(!core.take_wish(wish(None)).has_other_files);
    assert_eq!(core.files_failed("no room".into()), None, "it tries nothing");

    assert!(core.take_wish(wish(Some(b"two"))).has_other_files);
    assert_eq!(core.showing(), Some(&with(b"two")));
    let failed = ReplicaEvent::SettingsFailed {
        settings: SettingsId(3),
        message: "no room".into(),
    };
    assert_eq!(core.files_failed("no room".into()), Some(failed));

    assert!(core.pass(SettingsId(3)).is_some());
    assert_eq!(
        core.showing(),
        Some(&with(b"two")),
        "it goes on to see what it has passed"
    );
    assert_eq!(core.files_failed("no room".into()), None);

    assert!(core.take_wish(wish(None)).has_other_files);
    assert_eq!(core.showing(), Some(&with(b"one")));
}

#[test]
fn what_is_found_before_the_program_has_run_may_be_a_step() {
    for state in STATES {
        let mut core = core_in(state);
        core.replica.spec = Some(Arc::new(ServiceSpec {
            init_steps: vec![InitStep::default()],
            ..ServiceSpec::default()
        }));
        let found = core.resume(LeftBehind::Runs { pid: 7 });
        let has_run = matches!(
            state,
            ReplicaState::Running | ReplicaState::Stopping | ReplicaState::Lost
        );
        assert_eq!(found.is_some(), has_run, "{state:?}");
        assert_eq!(
            core_in(state).resume(LeftBehind::Runs { pid: 7 }).is_some(),
            !state.is_ended()
        );
    }
}

//! The table of what may happen in which state, and what comes of it.

use super::{EventKind, Machine, ReplicaEvent, ReplicaState, RestartRule};

/// An event that cannot happen in that state: the sender and the mirror have lost each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a replica that is {}", state.word())]
pub struct Illegal {
    pub state: ReplicaState,
    pub event: EventKind,
}

/// What a legal event does.
enum Move {
    To(ReplicaState),
    /// Legal, and nothing about the state changes.
    Stay,
    /// The process is gone: the restart rule says where to.
    End,
}

/// Complete by construction: every state lists every event, and the compiler keeps it so.
fn legal(state: ReplicaState, event: EventKind) -> Option<Move> {
    use EventKind as E;
    use Move::{End, Stay, To};
    use ReplicaState as S;
    match (state, event) {
        (S::Pending | S::Backoff, E::PullBegan) => Some(To(S::Pulling)),
        (S::Pending | S::Pulling | S::Backoff, E::StartBegan) => Some(To(S::Starting)),
        (S::Starting, E::Started) => Some(To(S::Running)),
        (S::Running, E::BecameHealthy | E::BecameUnhealthy | E::RanSteadily) => Some(Stay),
        (S::Starting | S::Running | S::Lost, E::Ended) => Some(End),
        (S::Stopping, E::Ended) => Some(To(S::Exited)),
        (S::Pending | S::Pulling | S::Starting, E::CouldNotStart) => Some(End),
        (S::Stopping, E::CouldNotStart) => Some(To(S::Exited)),
        (S::Pending | S::Backoff, E::StopBegan) => Some(To(S::Exited)),
        (S::Pulling | S::Starting | S::Running | S::Lost, E::StopBegan) => Some(To(S::Stopping)),
        (S::Stopping | S::Exited | S::Failed, E::StopBegan) => Some(Stay),
        (S::Pending | S::Pulling | S::Starting | S::Running | S::Backoff | S::Lost, E::Adopted) => {
            Some(To(S::Running))
        }
        (S::Stopping, E::Adopted) => Some(Stay),
        (
            S::Pending | S::Pulling | S::Starting | S::Running | S::Backoff | S::Stopping | S::Lost,
            E::NodeLost,
        ) => Some(To(S::Lost)),
        (S::Exited | S::Failed, E::NodeLost) => Some(Stay),
        // Said of its settings and not of its run: however late, it is no sign of a mirror that has gone astray.
        (
            S::Pending
            | S::Pulling
            | S::Starting
            | S::Running
            | S::Backoff
            | S::Stopping
            | S::Exited
            | S::Failed
            | S::Lost,
            E::SettingsPassed | E::SettingsFailed,
        ) => Some(Stay),

        (
            S::Pulling | S::Starting | S::Running | S::Stopping | S::Exited | S::Failed | S::Lost,
            E::PullBegan,
        )
        | (S::Starting | S::Running | S::Stopping | S::Exited | S::Failed | S::Lost, E::StartBegan)
        | (
            S::Pending | S::Pulling | S::Running | S::Backoff | S::Stopping | S::Exited | S::Failed | S::Lost,
            E::Started,
        )
        | (
            S::Pending
            | S::Pulling
            | S::Starting
            | S::Backoff
            | S::Stopping
            | S::Exited
            | S::Failed
            | S::Lost,
            E::BecameHealthy | E::BecameUnhealthy | E::RanSteadily,
        )
        | (S::Pending | S::Pulling | S::Backoff | S::Exited | S::Failed, E::Ended)
        | (S::Running | S::Backoff | S::Exited | S::Failed | S::Lost, E::CouldNotStart)
        | (S::Exited | S::Failed, E::Adopted) => None,
    }
}

/// Moves the machine by one event, or refuses it and leaves the machine as it was.
pub fn step(machine: &mut Machine, event: &ReplicaEvent, rule: &RestartRule) -> Result<(), Illegal> {
    let kind = event.kind();
    let next = legal(machine.state, kind).ok_or(Illegal {
        state: machine.state,
        event: kind,
    })?;
    let before = machine.state;
    record(machine, event);
    match next {
        Move::Stay => {}
        Move::To(state) => machine.state = state,
        Move::End => {
            let exit = machine.exit.unwrap_or(super::Exit::Unknown);
            // A process that failed to start has no exit of its own: it counts as a failure all the same.
            let exit = if kind == EventKind::CouldNotStart {
                super::Exit::Unknown
            } else {
                exit
            };
            machine.failures = machine.failures.saturating_add(1);
            machine.state = rule.after(exit, machine.failures);
        }
    }
    if machine.state != ReplicaState::Running {
        machine.healthy = false;
    }
    if before == ReplicaState::Backoff
        && matches!(machine.state, ReplicaState::Pulling | ReplicaState::Starting)
    {
        machine.restarts = machine.restarts.saturating_add(1);
    }
    Ok(())
}

/// What the event says about the replica, apart from where it moves.
fn record(machine: &mut Machine, event: &ReplicaEvent) {
    match event {
        ReplicaEvent::PullBegan
        | ReplicaEvent::StopBegan
        | ReplicaEvent::NodeLost
        | ReplicaEvent::SettingsPassed { .. }
        | ReplicaEvent::SettingsFailed { .. } => {}
        ReplicaEvent::StartBegan => machine.pid = None,
        ReplicaEvent::Started { pid } => {
            machine.pid = Some(*pid);
            machine.exit = None;
            machine.oom = false;
        }
        ReplicaEvent::Adopted { pid } => machine.pid = Some(*pid),
        ReplicaEvent::BecameHealthy => {
            machine.healthy = true;
            machine.message = None;
        }
        ReplicaEvent::BecameUnhealthy { message } => {
            machine.healthy = false;
            machine.message = Some(message.clone());
        }
        ReplicaEvent::RanSteadily => machine.failures = 0,
        ReplicaEvent::Ended { exit, oom } => {
            machine.pid = None;
            machine.exit = Some(*exit);
            machine.oom = *oom;
        }
        ReplicaEvent::CouldNotStart { message } => {
            machine.pid = None;
            machine.exit = None;
            machine.message = Some(message.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SettingsId;
    use crate::replica::Exit;
    use crate::spec::{RestartPolicy, RestartSpec};

    fn sample(kind: EventKind) -> ReplicaEvent {
        match kind {
            EventKind::PullBegan => ReplicaEvent::PullBegan,
            EventKind::StartBegan => ReplicaEvent::StartBegan,
            EventKind::Started => ReplicaEvent::Started { pid: 7 },
            EventKind::BecameHealthy => ReplicaEvent::BecameHealthy,
            EventKind::BecameUnhealthy => ReplicaEvent::BecameUnhealthy {
                message: "503".into(),
            },
            EventKind::RanSteadily => ReplicaEvent::RanSteadily,
            EventKind::Ended => ReplicaEvent::Ended {
                exit: Exit::Code(1),
                oom: false,
            },
            EventKind::CouldNotStart => ReplicaEvent::CouldNotStart {
                message: "no such file".into(),
            },
            EventKind::StopBegan => ReplicaEvent::StopBegan,
            EventKind::Adopted => ReplicaEvent::Adopted { pid: 8 },
            EventKind::NodeLost => ReplicaEvent::NodeLost,
            EventKind::SettingsPassed => ReplicaEvent::SettingsPassed {
                settings: SettingsId(1),
            },
            EventKind::SettingsFailed => ReplicaEvent::SettingsFailed {
                settings: SettingsId(1),
                message: "404".into(),
            },
        }
    }

    /// The whole table as text: what a reader checks, and what a change must show.
    #[test]
    fn the_table_reads_as_it_should() {
        let mut lines = Vec::new();
        for state in ReplicaState::ALL {
            let mut cells = Vec::new();
            for kind in EventKind::ALL {
                let mut machine = Machine {
                    state,
                    ..Machine::default()
                };
                if step(&mut machine, &sample(kind), &RestartRule::default()).is_ok() {
                    cells.push(format!("{kind:?}→{:?}", machine.state));
                }
            }
            lines.push(format!("{state:?}: {}", cells.join(" ")));
        }
        assert_eq!(lines.join("\n"), include_str!("table.golden").trim_end());
    }

    #[test]
    fn an_illegal_event_changes_nothing() {
        for state in ReplicaState::ALL {
            for kind in EventKind::ALL {
                let before = Machine {
                    state,
                    pid: Some(3),
                    restarts: 2,
                    failures: 1,
                    ..Machine::default()
                };
                let mut after = before.clone();
                if step(&mut after, &sample(kind), &RestartRule::default()).is_err() {
                    assert_eq!(before, after, "{state:?} {kind:?}");
                }
            }
        }
    }

    #[test]
    fn ended_states_are_final() {
        for state in [ReplicaState::Exited, ReplicaState::Failed] {
            for kind in EventKind::ALL {
                let mut machine = Machine {
                    state,
                    ..Machine::default()
                };
                let _ = step(&mut machine, &sample(kind), &RestartRule::default());
                assert_eq!(machine.state, state, "{kind:?}");
            }
        }
    }

    #[test]
    fn restart_policies() {
        let ended = |policy, completes, max_attempts, failures, exit| {
            let restart = RestartSpec {
                policy,
                max_attempts,
                ..RestartSpec::default()
            };
            let mut machine = Machine {
                state: ReplicaState::Running,
                failures,
                ..Machine::default()
            };
            let event = ReplicaEvent::Ended { exit, oom: false };
            step(&mut machine, &event, &RestartRule { restart, completes }).unwrap();
            machine.state
        };
        use ReplicaState::{Backoff, Exited, Failed};
        use RestartPolicy::{Always, Never, OnFailure};
        let (good, bad) = (Exit::Code(0), Exit::Code(1));
        assert_eq!(ended(Always, false, None, 0, good), Backoff);
        assert_eq!(ended(Always, false, None, 99, bad), Backoff);
        assert_eq!(ended(Always, true, None, 0, good), Exited);
        assert_eq!(ended(Always, true, None, 0, bad), Backoff);
        assert_eq!(ended(OnFailure, false, None, 0, good), Exited);
        assert_eq!(ended(OnFailure, false, None, 0, bad), Backoff);
        assert_eq!(ended(OnFailure, false, Some(3), 2, bad), Backoff);
        assert_eq!(ended(OnFailure, false, Some(3), 3, bad), Failed);
        assert_eq!(ended(Never, false, None, 0, good), Exited);
        assert_eq!(ended(Never, false, None, 0, Exit::Signal(9)), Failed);
        assert_eq!(ended(Always, false, None, u32::MAX, bad), Backoff);
    }

    #[test]
    fn want_of_memory_is_told_with_every_end() {
        let mut machine = Machine {
            state: ReplicaState::Running,
            ..Machine::default()
        };
        assert_eq!(machine.trouble(), None);
        let end = |oom| ReplicaEvent::Ended {
            exit: Exit::Signal(9),
            oom,
        };
        step(&mut machine, &end(true), &RestartRule::default()).unwrap();
        let told = "it ran out of memory and was ended by signal 9";
        assert_eq!(machine.trouble().as_deref(), Some(told));
        machine.message = Some("503".into());
        assert_eq!(machine.trouble(), Some(format!("{told}: 503")));
        machine.oom = false;
        assert_eq!(machine.trouble().as_deref(), Some("503"));
        machine.message = None;
        assert_eq!(machine.trouble().as_deref(), Some("it was ended by signal 9"));
    }

    #[test]
    fn a_crash_and_a_restart_are_counted() {
        let rule = RestartRule::default();
        let mut machine = Machine::default();
        for event in [
            ReplicaEvent::StartBegan,
            ReplicaEvent::Started { pid: 1 },
            ReplicaEvent::BecameHealthy,
            ReplicaEvent::Ended {
                exit: Exit::Signal(9),
                oom: true,
            },
        ] {
            step(&mut machine, &event, &rule).unwrap();
        }
        assert_eq!(
            (machine.state, machine.healthy, machine.failures),
            (ReplicaState::Backoff, false, 1)
        );
        assert_eq!(
            (machine.exit.and_then(Exit::code), machine.oom, machine.pid),
            (Some(137), true, None)
        );
        for event in [
            ReplicaEvent::StartBegan,
            ReplicaEvent::Started { pid: 2 },
            ReplicaEvent::RanSteadily,
        ] {
            step(&mut machine, &event, &rule).unwrap();
        }
        assert_eq!((machine.restarts, machine.failures, machine.exit), (1, 0, None));
    }
}

//! Shutdown by drop: the reducer owns one sender for each child task and never sends on it. When the reducer
//! ends, for whatever reason, the senders are dropped and each child's token resolves. What hangs beyond its
//! deadline is aborted, never detached.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::error::RuntimeFailure;
use super::limits::FLUSH_DEADLINE_MS;
use crate::clock::Clock;

/// Resolves when the reducer has ended.
#[derive(Debug)]
pub struct ShutdownToken {
    ended: oneshot::Receiver<()>,
}

/// Held by the reducer: dropping it ends one child.
#[derive(Debug)]
pub struct ShutdownSender {
    _ends: oneshot::Sender<()>,
}

impl ShutdownToken {
    pub fn pair() -> (ShutdownSender, ShutdownToken) {
        let (sender, ended) = oneshot::channel();
        (ShutdownSender { _ends: sender }, ShutdownToken { ended })
    }

    /// Waits for the end. May be dropped and called again; resolved once, it stays resolved.
    pub async fn ended(&mut self) {
        if !self.ended.is_terminated() {
            // A value and a dropped sender mean the same.
            let _ = (&mut self.ended).await;
        }
    }
}

/// The tasks of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskName {
    Reducer,
    Applier,
    Directory,
    EventLogWriter,
    PlanTick,
    ManifestPoll,
    PastWriter,
}

impl std::fmt::Display for TaskName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reducer => "reducer",
            Self::Applier => "applier",
            Self::Directory => "directory",
            Self::EventLogWriter => "event log writer",
            Self::PlanTick => "plan tick",
            Self::ManifestPoll => "manifest poll",
            Self::PastWriter => "writer of the past",
        })
    }
}

/// A task and what it ends with.
#[derive(Debug)]
pub struct RuntimeTask {
    pub name: TaskName,
    pub handle: JoinHandle<Result<(), Arc<RuntimeFailure>>>,
}

/// How the tasks ended.
#[derive(Debug, Default)]
pub struct Drained {
    /// Those that had to be aborted at their deadline.
    pub aborted: Vec<TaskName>,
    /// Those that panicked.
    pub panicked: Vec<TaskName>,
    /// Why the reducer ended, where it failed.
    pub failure: Option<Arc<RuntimeFailure>>,
}

impl Drained {
    pub fn is_clean(&self) -> bool {
        self.aborted.is_empty() && self.panicked.is_empty() && self.failure.is_none()
    }
}

/// Waits for all tasks. The reducer is aborted at the deadline; the others, which end when it does, have a little
/// longer to write what they hold.
pub async fn drain(tasks: Vec<RuntimeTask>, clock: &dyn Clock, deadline_ms: u64) -> Drained {
    let deadline_ms = clock.monotonic_ms().saturating_add(deadline_ms);
    let mut drained = Drained::default();
    let (reducer, children): (Vec<_>, Vec<_>) =
        tasks.into_iter().partition(|task| task.name == TaskName::Reducer);
    for task in reducer {
        wait_or_abort(task, clock, deadline_ms, &mut drained).await;
    }
    let flush_deadline_ms = clock.monotonic_ms().saturating_add(FLUSH_DEADLINE_MS);
    for task in children {
        wait_or_abort(task, clock, flush_deadline_ms, &mut drained).await;
    }
    drained
}

async fn wait_or_abort(mut task: RuntimeTask, clock: &dyn Clock, at_ms: u64, drained: &mut Drained) {
    let ended = tokio::select! {
        biased;
        ended = &mut task.handle => ended,
        () = clock.sleep_until_monotonic(at_ms) => {
            tracing::error!(task = %task.name, "the task did not end in time and is aborted");
            task.handle.abort();
            task.handle.await
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => drained.failure = Some(failure),
        Err(error) if error.is_cancelled() => drained.aborted.push(task.name),
        Err(_) => drained.panicked.push(task.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;

    #[tokio::test]
    async fn a_token_resolves_when_its_sender_is_dropped_and_stays_so() {
        let (sender, mut token) = ShutdownToken::pair();
        tokio::select! {
            biased;
            () = token.ended() => panic!("nobody has ended"),
            () = std::future::ready(()) => {}
        }
        drop(sender);
        token.ended().await;
        token.ended().await;
    }

    #[tokio::test]
    async fn what_hangs_is_aborted_at_the_deadline_and_not_detached() {
        struct Dropped(tokio::sync::watch::Sender<bool>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.send_replace(true);
            }
        }
        let dropped = tokio::sync::watch::Sender::new(false);
        let held = Dropped(dropped.clone());
        let tasks = vec![
            RuntimeTask {
                name: TaskName::Reducer,
                handle: tokio::spawn(async move {
                    let _held = held;
                    std::future::pending().await
                }),
            },
            RuntimeTask {
                name: TaskName::Applier,
                handle: tokio::spawn(async { Ok(()) }),
            },
        ];
        let clock = FakeClock::new(0);
        let drain = {
            let clock = clock.clone();
            tokio::spawn(async move { drain(tasks, &clock, 5_000).await })
        };
        clock.wait_for_sleepers(1).await;
        clock.advance(5_000);
        let drained = drain.await.unwrap();
        assert_eq!(drained.aborted, [TaskName::Reducer]);
        assert!(
            *dropped.borrow(),
            "the task's values are gone when the drain returns"
        );
    }
}

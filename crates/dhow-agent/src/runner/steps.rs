//! What runs before the program of a replica, one after the other, each to its end: under the replica's name, so that what
//! it writes stands in the replica's log, and with what the replica mounts. The replica counts as starting meanwhile.

use std::sync::Arc;

use dhow_core::spec::{InitStep, Runtime, ServiceSpec};
use dhow_driver::driver::{ExitKind, ReplicaStart, ReplicaStatus, error_chain};

use super::{Runner, settled};
use crate::environment;
use crate::wish::Wish;

/// What came of the steps.
pub(super) enum Steps {
    Done,
    Failed(String),
    /// What one of them is made from could not be fetched.
    NotFetched(String),
    /// Something else is wished.
    Interrupted,
}

impl Runner {
    /// Runs all steps of a replica that is ready to start. The first one that does not end well ends the attempt.
    pub(super) async fn run_steps(&mut self, spec: &Arc<ServiceSpec>, start: &ReplicaStart) -> Steps {
        if spec.init_steps.is_empty() {
            return Steps::Done;
        }
        // A daemon before this one may have been killed in the middle of them.
        self.end_what_is_left().await;
        let steps: Vec<(String, Arc<ServiceSpec>, &InitStep)> = spec
            .init_steps
            .iter()
            .zip(1..)
            .map(|(step, number): (&InitStep, u32)| {
                let name = step.name.clone().unwrap_or_else(|| number.to_string());
                (name, Arc::new(spec.for_step(step)), step)
            })
            .collect();
        for (name, spec, step) in &steps {
            if step.image.is_none() {
                continue;
            }
            match self.prepare(spec).await {
                None => return Steps::Interrupted,
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    let why = format!("its step `{name}`: {}", error_chain(&*error.cause));
                    return match spec.runtime() {
                        Runtime::Container => Steps::NotFetched(why),
                        Runtime::Process => Steps::Failed(why),
                    };
                }
            }
        }
        let event = self.core.start_begins();
        self.happen_all(event).await;
        for (name, spec, step) in steps {
            match self.run_step(&name, spec, step, start).await {
                Steps::Done => {}
                other => return other,
            }
        }
        Steps::Done
    }

    async fn run_step(
        &mut self,
        name: &str,
        spec: Arc<ServiceSpec>,
        step: &InitStep,
        start: &ReplicaStart,
    ) -> Steps {
        let failed = |why: String| Steps::Failed(format!("its step `{name}` {why}"));
        let session = Arc::clone(&self.context.session);
        let ready = environment::for_step(start, spec, &step.env, &*session).await;
        let ready = match ready {
            Ok(ready) => ready,
            Err(error) => return failed(format!("could not be started: {}", error_chain(&error))),
        };
        let context = Arc::clone(&self.context);
        let permit = tokio::select! {
            permit = context.work.acquire() => permit,
            () = self.wish_changed() => return Steps::Interrupted,
        };
        tracing::info!(replica = %self.name(), step = name, "a step before its program begins");
        // Not cut off whatever is wished: what has begun is finished, and then ended in order.
        let started = self.driver.start(&ready).await;
        drop(permit);
        if let Err(error) = started {
            return failed(format!("could not be started: {}", error_chain(&*error.cause)));
        }
        let (driver, replica) = (Arc::clone(&self.driver), self.name().clone());
        let ending = driver.wait(&replica);
        tokio::pin!(ending);
        loop {
            tokio::select! {
                biased;
                exit = &mut ending => return match exit {
                    Ok(exit) if exit.kind == ExitKind::Code(0) => Steps::Done,
                    Ok(exit) => failed(format!("failed: {exit}")),
                    Err(error) => failed(format!("cannot be watched: {}", error_chain(&error))),
                },
                () = self.wish_changed() => {
                    // What changes in place is taken when the program has started.
                    if matches!(*self.wish.borrow(), Wish::Stop) {
                        return Steps::Interrupted;
                    }
                }
            }
        }
    }

    async fn end_what_is_left(&mut self) {
        let driver = Arc::clone(&self.driver);
        if let Some(ReplicaStatus::Running(_)) = settled(&*driver, self.name()).await {
            self.end_workload().await;
        }
    }
}

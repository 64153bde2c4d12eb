//! The keeper's work that takes its time: calls to the control plane, each after its pause, and preparations for rollouts.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::assignment::Assignment;
use dhow_core::ids::Revision;
use tokio::task::JoinHandle;

use super::core::CoreInput;
use crate::drivers::Drivers;
use crate::rollouts;
use crate::session::{
    Heartbeat, HeartbeatAnswer, OpenRollout, Orders, Report, ReportAnswer, RolloutId, Session, SessionError,
};

type Call<T> = Pin<Box<dyn Future<Output = Result<T, SessionError>> + Send>>;

/// The calls and preparations under way, at most one of each kind. The keeper waits for them beside everything else.
pub(super) struct Calls {
    session: Arc<dyn Session>,
    orders: Arc<dyn Orders>,
    drivers: Drivers,
    report: Option<Call<ReportAnswer>>,
    beat: Option<Call<HeartbeatAnswer>>,
    ask: Option<Call<Assignment>>,
    prepare: Option<JoinHandle<Vec<RolloutId>>>,
}

impl Calls {
    pub fn new(session: Arc<dyn Session>, orders: Arc<dyn Orders>, drivers: Drivers) -> Self {
        Self {
            session,
            orders,
            drivers,
            report: None,
            beat: None,
            ask: None,
            prepare: None,
        }
    }

    pub fn report(&mut self, pause: Duration, report: Report) {
        let session = Arc::clone(&self.session);
        self.report = Some(Box::pin(async move {
            wait(pause).await;
            session.report(report).await
        }));
    }

    pub fn beat(&mut self, beat: Heartbeat) {
        let session = Arc::clone(&self.session);
        self.beat = Some(Box::pin(async move { session.heartbeat(beat).await }));
    }

    pub fn ask(&mut self, pause: Duration, last: Option<Revision>) {
        let orders = Arc::clone(&self.orders);
        self.ask = Some(Box::pin(async move {
            wait(pause).await;
            orders.assignments(last).await
        }));
    }

    pub fn prepare(&mut self, open: Vec<OpenRollout>) {
        self.prepare = Some(tokio::spawn(rollouts::prepare(self.drivers.clone(), open)));
    }

    /// Waits for what is under way. May be dropped and called again.
    pub async fn answered(&mut self) -> CoreInput {
        tokio::select! {
            answer = answer_of(&mut self.report) => CoreInput::Reported(answer),
            answer = answer_of(&mut self.beat) => CoreInput::Beaten(answer),
            answer = answer_of(&mut self.ask) => CoreInput::Told(answer),
            prepared = prepared(&mut self.prepare) => CoreInput::Prepared(prepared),
        }
    }

    /// Gives up what is prepared: it is begun again by the next daemon.
    pub fn end(&mut self) {
        if let Some(task) = self.prepare.take() {
            task.abort();
        }
    }
}

async fn wait(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

async fn answer_of<T>(call: &mut Option<Call<T>>) -> Result<T, SessionError> {
    let Some(under_way) = call else {
        return std::future::pending().await;
    };
    let answer = under_way.await;
    *call = None;
    answer
}

async fn prepared(task: &mut Option<JoinHandle<Vec<RolloutId>>>) -> Vec<RolloutId> {
    let Some(under_way) = task else {
        return std::future::pending().await;
    };
    // One that panicked has prepared for nothing.
    let prepared = under_way.await.unwrap_or_default();
    *task = None;
    prepared
}

//! Tells others what goes wrong: notices to addresses that an administrator has named, signed, in order, at least once.
//!
//! The leader goes through the event log behind the place that the state keeps for each target, and sends what the target
//! wants to hear of; when a notice was taken, or given up, the place is written into the state, where the next leader goes
//! on. So the event log is the queue, and it has its own bounds. A target that does not answer holds nobody up but itself.

mod board;
mod line;
mod notice;
mod post;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::command::{ClusterCommand, Command};
use dhow_core::state::{EventPlace, NotifyTarget};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::plane::runtime::{EventId, EventRecord, InputSender, RuntimeView};
use crate::plane::secrets::SecretBox;

pub use board::{NotifyBoard, TargetFigures};
use line::{Line, Next};
pub use notice::{Address, NoticeDocument, seal_name};
pub use post::{Post, PostError};

/// Events that are looked at in one go.
const EVENTS_AT_ONCE: usize = 256;
/// And so often in a row, where nothing of it is to be told: 65,536 events, then the other targets have their turn.
const LOOKS_MAX: usize = 256;
/// The safety net: a notice that is to be tried again, a target that was changed.
const TICK_MS: u64 = 1_000;
/// A write of how far a target was told that takes longer is made with the next one.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the API has of it: how notices fare, and the way to send one.
#[derive(Clone, Debug, Default)]
pub struct NotifyDesk {
    pub board: NotifyBoard,
    pub post: Post,
}

/// What the task works with.
pub struct Notifier {
    pub view: RuntimeView,
    pub input: InputSender,
    pub secrets: Arc<SecretBox>,
    pub clock: Arc<dyn Clock>,
    pub desk: NotifyDesk,
}

/// What became of one notice.
type Ended = (Arc<str>, Result<(), PostError>);

impl Notifier {
    /// Runs until it is cancelled.
    pub async fn run(self, cancel: CancellationToken) {
        let mut lines: BTreeMap<Arc<str>, Line> = BTreeMap::new();
        let mut under_way: FuturesUnordered<BoxFuture<'static, Ended>> = FuturesUnordered::new();
        let mut newest = self.view.events().newest();
        loop {
            newest.borrow_and_update();
            match self.view.leadership().is_here {
                true => self.begin(&mut lines).await,
                false => {
                    // Whoever leads sends; what is under way here may come twice.
                    lines.clear();
                    under_way.clear();
                    self.desk.board.clear();
                }
            }
            let now_ms = self.clock.monotonic_ms();
            let begun = lines.iter_mut().filter_map(|(name, line)| {
                let record = line.start(now_ms)?;
                Some(self.send(name, line, record))
            });
            under_way.extend(begun.collect::<Vec<_>>());
            let tick_ms = self.clock.monotonic_ms().saturating_add(TICK_MS);
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.input.closed() => return,
                Some((name, result)) = under_way.next(), if !under_way.is_empty() => {
                    self.take(&mut lines, &name, result).await;
                }
                _ = newest.changed() => {}
                () = self.clock.sleep_until_monotonic(tick_ms) => {}
            }
        }
    }

    /// Brings the lines to what the state has, and looks for what each is to be told next.
    async fn begin(&self, lines: &mut BTreeMap<Arc<str>, Line>) {
        let state = self.view.state();
        lines.retain(|name, _| state.notify.contains_key(name));
        self.desk.board.keep(|name| state.notify.contains_key(name));
        let now_ms = self.clock.monotonic_ms();
        for (name, target) in &state.notify {
            let line = lines
                .entry(Arc::clone(name))
                .or_insert_with(|| Line::new(target.done));
            line.settings = Some(Arc::clone(target));
            let mut is_behind = true;
            for _ in 0..LOOKS_MAX {
                if !is_behind || !line.wants_events(now_ms) {
                    break;
                }
                let found = self.events(line.place()).await;
                is_behind = found.len() == EVENTS_AT_ONCE;
                line.look(found, now_ms);
            }
        }
    }

    /// The next events behind a place; where some are not kept any more, from the oldest on that is.
    async fn events(&self, place: EventPlace) -> Vec<Arc<EventRecord>> {
        let after = EventId {
            revision: place.revision,
            part: place.part,
        };
        let hub = self.view.events();
        let too_old = match hub.since(after, EVENTS_AT_ONCE) {
            Ok(records) => return records,
            Err(too_old) => too_old,
        };
        let Some(reader) = self.view.event_reader().cloned() else {
            return hub.since(too_old.up_to, EVENTS_AT_ONCE).unwrap_or_default();
        };
        let read = tokio::task::spawn_blocking(move || {
            let found = reader.since(after, EVENTS_AT_ONCE);
            // From the beginning means all that is kept.
            found.or_else(|_| reader.since(EventId::default(), EVENTS_AT_ONCE))
        });
        match read.await {
            Ok(Ok(records)) if !records.is_empty() => records.into_iter().map(Arc::new).collect(),
            Ok(_) | Err(_) => hub.since(too_old.up_to, EVENTS_AT_ONCE).unwrap_or_default(),
        }
    }

    fn send(&self, name: &Arc<str>, line: &Line, record: Arc<EventRecord>) -> BoxFuture<'static, Ended> {
        let (name, post) = (Arc::clone(name), self.desk.post.clone());
        let cluster_id = self.view.state().cluster_id.clone().unwrap_or_default();
        let address = line.settings.as_ref().map(|target| self.address(&name, target));
        let now_unix_secs = self.clock.wall_unix_ms().div_euclid(1_000);
        Box::pin(async move {
            let sent = match address {
                Some(Ok(address)) => {
                    let document = NoticeDocument::of(&cluster_id, &name, &record);
                    post.send(&address, &document, now_unix_secs).await
                }
                Some(Err(error)) => Err(error),
                None => Err(PostError::Unsealed),
            };
            (name, sent)
        })
    }

    fn address(&self, name: &str, target: &NotifyTarget) -> Result<Address, PostError> {
        Address::unseal(&self.secrets, name, &target.settings.sealed)
    }

    /// Notes what became of a notice, and writes how far its target was told.
    async fn take(
        &self,
        lines: &mut BTreeMap<Arc<str>, Line>,
        name: &Arc<str>,
        result: Result<(), PostError>,
    ) {
        let Some(line) = lines.get_mut(name) else {
            return;
        };
        let (now_ms, now_unix_secs) = (
            self.clock.monotonic_ms(),
            self.clock.wall_unix_ms().div_euclid(1_000),
        );
        let told = result.as_ref().err().map(PostError::told);
        match line.ended(&result, now_ms) {
            Next::Told => self.desk.board.sent(name, now_unix_secs),
            Next::GivenUp => self.desk.board.given_up(name, told),
            Next::Again => {
                self.desk.board.failed(name, told);
                return;
            }
        }
        let command = Command::Cluster(ClusterCommand::NotifyTold {
            name: Arc::clone(name),
            done: line.place(),
        });
        // What is not written comes again after a change of the leader, with the same id.
        let _ = tokio::time::timeout(WRITE_TIMEOUT, self.input.write(command, None)).await;
    }
}

#[cfg(test)]
mod tests;

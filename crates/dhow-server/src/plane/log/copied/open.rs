//! Opens a copied log.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::CopiedLog;
use super::epoch::EpochRule;
use super::kept_lost::KeptLost;
use super::limits::{EVENTS_MAX, PROPOSALS_MAX};
use super::log_state::CopiedLogState;
use super::network::CopyNetwork;
use super::peer_table::PeerTable;
use super::stand::{Role, Stand};
use super::task::CopiedLogTask;
use crate::clock::Clock;
use crate::plane::log::LogEvent;
use crate::plane::log::store::{
    Action, Batch, LogPosition, MetaKey, Op, Recovery, SegmentStore, StoreError, StoreOptions,
};
use crate::plane::storage::Storage;

/// How often peers are asked and how long they are waited for.
#[derive(Clone, Copy, Debug)]
pub struct CopiedTimings {
    pub heartbeat_ms: u64,
    /// A peer that was silent for so long is gone.
    pub threshold_ms: u64,
    /// How long a write waits for one peer's copy; one that takes longer counts as gone for copies until it
    /// answers again.
    pub copy_timeout_ms: u64,
}

/// What a copied log is made with.
pub struct CopiedOptions {
    pub node: u64,
    /// All ids, the own one among them.
    pub peers: Vec<u64>,
    pub dir: PathBuf,
    /// Where revisions of a losing half are kept until the leader has them.
    pub lost_file: PathBuf,
    pub store: StoreOptions,
    pub timings: CopiedTimings,
    pub network: Arc<dyn CopyNetwork>,
    pub clock: Arc<dyn Clock>,
    /// Whether what is written is still somewhere. Where it is not, nothing is promised and no copy is taken.
    pub storage: Storage,
}

/// A copied log that was opened.
pub struct OpenedCopiedLog {
    pub log: CopiedLog,
    /// To be run; nothing is led or copied without it.
    pub task: CopiedLogTask,
    pub events: mpsc::Receiver<LogEvent>,
    pub recovery: Recovery,
}

impl CopiedLog {
    /// Opens the log in a directory of its own. Blocks the thread.
    pub fn open(options: CopiedOptions) -> Result<OpenedCopiedLog, StoreError> {
        let store = StoreOptions {
            purged_needs_snapshot: true,
            ..options.store
        };
        let lost = KeptLost::open(options.lost_file.clone()).map_err(|source| StoreError::Io {
            action: Action::Read,
            path: options.lost_file,
            source: Arc::new(source),
        })?;
        let (store, recovery) = SegmentStore::open(&options.dir, store)?;
        let bounds = store.bounds();
        if bounds.last.is_none() && bounds.purged.is_none() {
            // Index 0 stands for "nothing yet" wherever an index is shown, so no entry has it.
            store.commit(Batch::of(Op::Purge(LogPosition { index: 0, term: 0 })))?;
        }
        let vote = store.meta(MetaKey::Vote).as_ref().and_then(read_epoch);
        let last = bounds.last.map_or(0, |last| last.term);
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let (queue, proposals) = mpsc::channel(PROPOSALS_MAX);
        let now_ms = options.clock.monotonic_ms();
        let shared = Arc::new(CopiedLogState {
            node: options.node,
            rule: EpochRule::new(options.node, &options.peers),
            store,
            events,
            queue,
            stand: Mutex::new(Stand {
                promised: vote.unwrap_or(0).max(last),
                role: Role::Following { leader: None },
                leaving: false,
            }),
            turn: tokio::sync::Mutex::new(()),
            peers: PeerTable::new(options.node, &options.peers, now_ms, options.timings.threshold_ms),
            lost,
            network: options.network,
            clock: options.clock,
            storage: options.storage,
            timings: options.timings,
            changes: watch::Sender::new(0),
            in_line: watch::Sender::new(None),
        });
        let log = CopiedLog {
            shared: Arc::clone(&shared),
        };
        Ok(OpenedCopiedLog {
            log,
            task: CopiedLogTask::new(shared, proposals),
            events: receiver,
            recovery,
        })
    }
}

fn read_epoch(value: &Bytes) -> Option<u64> {
    Some(u64::from_le_bytes(value.as_ref().try_into().ok()?))
}

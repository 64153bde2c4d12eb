//! One log with the smallest reducer that can be: its state is the list of all commands.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dhow_server::plane::log::raft::{OpenedRaftLog, RaftLog, RaftOpenError, RaftOptions};
use dhow_server::plane::log::store::LogPosition;
use dhow_server::plane::log::{Leadership, Log, LogEvent, ProposalId, ProposeError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// What was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub at: LogPosition,
    pub commands: Vec<Bytes>,
}

type Waiting = Arc<Mutex<BTreeMap<u64, oneshot::Sender<Result<(), ProposeError>>>>>;

pub struct Node {
    pub id: u64,
    pub log: RaftLog,
    pub applied: watch::Receiver<Applied>,
    waiting: Waiting,
    next_id: Mutex<u64>,
    reducer: JoinHandle<()>,
    /// Proposals that were told twice.
    told_twice: Arc<Mutex<Vec<u64>>>,
    /// Whether the log said that it has stopped.
    pub has_failed: watch::Receiver<bool>,
}

impl Node {
    pub async fn open(options: RaftOptions) -> Result<Node, RaftOpenError> {
        let id = options.node_id;
        let OpenedRaftLog {
            log, events, applied, ..
        } = RaftLog::open(options).await?;
        let waiting = Waiting::default();
        let told_twice = Arc::default();
        let start = Applied {
            at: applied,
            commands: snapshot_of(&log),
        };
        let (sender, receiver) = watch::channel(start);
        let (failed, has_failed) = watch::channel(false);
        let reducer = Reducer {
            log: log.clone(),
            applied: sender,
            waiting: Arc::clone(&waiting),
            told_twice: Arc::clone(&told_twice),
            failed,
        };
        Ok(Node {
            id,
            log,
            applied: receiver,
            waiting,
            next_id: Mutex::new(0),
            reducer: tokio::spawn(reducer.run(events)),
            told_twice,
            has_failed,
        })
    }

    pub fn leadership(&self) -> Leadership {
        self.log.status().leadership
    }

    pub fn commands(&self) -> Vec<Bytes> {
        self.applied.borrow().commands.clone()
    }

    /// Proposes and waits for the outcome.
    pub async fn propose(&self, commands: Vec<Bytes>) -> Result<(), ProposeError> {
        let id = {
            let mut next = self.next_id.lock().unwrap();
            *next += 1;
            *next
        };
        let (sender, outcome) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, sender);
        if let Err(error) = self.log.propose(ProposalId(id), commands) {
            self.waiting.lock().unwrap().remove(&id);
            return Err(error);
        }
        outcome.await.unwrap_or(Err(ProposeError::Unknown))
    }

    pub async fn write(&self, command: &str) -> Result<(), ProposeError> {
        self.propose(vec![Bytes::from(command.to_owned())]).await
    }

    /// All commands, with everything that was acknowledged before.
    pub async fn read(&self) -> Result<Vec<Bytes>, ProposeError> {
        let index = self.log.barrier().await?;
        let mut applied = self.applied.clone();
        match applied.wait_for(|applied| applied.at.index >= index).await {
            Ok(applied) => Ok(applied.commands.clone()),
            Err(_) => Err(ProposeError::Unknown),
        }
    }

    /// Makes a snapshot of what is applied, where there is anything.
    pub async fn snapshot(&self) {
        let (log, applied) = (self.log.clone(), self.applied.borrow().clone());
        if applied.at.index == 0 {
            return;
        }
        let made = tokio::task::spawn_blocking(move || {
            let mut writer = log.begin_snapshot(applied.at).unwrap();
            for command in &applied.commands {
                writer.write_all(&(command.len() as u32).to_be_bytes()).unwrap();
                writer.write_all(command).unwrap();
            }
            log.compact(writer).unwrap();
        });
        made.await.unwrap();
    }

    /// Ends it as a kill would: what waits hears nothing.
    pub async fn stop(self) {
        assert_eq!(*self.told_twice.lock().unwrap(), Vec::<u64>::new(), "told twice");
        self.log.shutdown().await;
        self.reducer.abort();
        let _ = self.reducer.await;
    }
}

struct Reducer {
    log: RaftLog,
    applied: watch::Sender<Applied>,
    waiting: Waiting,
    told_twice: Arc<Mutex<Vec<u64>>>,
    failed: watch::Sender<bool>,
}

impl Reducer {
    async fn run(self, mut events: mpsc::Receiver<LogEvent>) {
        while let Some(event) = events.recv().await {
            match event {
                LogEvent::Committed { at, parts } => {
                    self.applied.send_modify(|applied| {
                        assert!(
                            at.index > applied.at.index || at.index == 0,
                            "{at:?} after {:?}",
                            applied.at
                        );
                        assert!(at.term >= applied.at.term);
                        applied.at = at;
                        let entries = parts.iter().flat_map(|part| &part.entries);
                        applied
                            .commands
                            .extend(entries.map(|entry| entry.payload.clone()));
                    });
                    for proposal in parts.iter().filter_map(|part| part.proposal) {
                        self.tell(proposal, Ok(()));
                    }
                }
                LogEvent::Refused { proposal, cause } => self.tell(proposal, Err(cause)),
                LogEvent::SnapshotInstalled { at } => {
                    let commands = snapshot_of(&self.log);
                    self.applied.send_replace(Applied { at, commands });
                }
                LogEvent::Leadership(_) => {}
                LogEvent::Failed(_) => drop(self.failed.send_replace(true)),
            }
        }
    }

    fn tell(&self, proposal: ProposalId, outcome: Result<(), ProposeError>) {
        match self.waiting.lock().unwrap().remove(&proposal.0) {
            Some(waiting) => drop(waiting.send(outcome)),
            None => self.told_twice.lock().unwrap().push(proposal.0),
        }
    }
}

fn snapshot_of(log: &RaftLog) -> Vec<Bytes> {
    let mut bytes = Vec::new();
    if let Some(mut reader) = log.newest_snapshot().unwrap() {
        reader.read_to_end(&mut bytes).unwrap();
    }
    decode_state(&bytes)
}

pub fn decode_state(mut bytes: &[u8]) -> Vec<Bytes> {
    let mut commands = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (command, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        commands.push(Bytes::copy_from_slice(command));
        bytes = rest;
    }
    commands
}

pub fn dir_of(root: &std::path::Path, id: u64) -> PathBuf {
    root.join(format!("node-{id}"))
}

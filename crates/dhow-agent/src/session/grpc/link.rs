//! The task that keeps the session: it finds a server, opens the session, reads its stream, and begins again when it
//! ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dhow_core::assignment::Assignment;
use dhow_core::ids::Term;
use dhow_core::usage::NodeUsage;
use dhow_wire::grpc::proto::session_event::Event;
use dhow_wire::grpc::proto::{Opened, SessionEvent, SessionRequest};
use dhow_wire::grpc::{Assembly, Refusal, to_node_info};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Request, Streaming};

use super::heard::Heard;
use super::mailbox::Mailbox;
use super::options::GrpcOptions;
use super::routes::Endpoint;
use super::seeker::Seeker;
use super::standing::SessionStanding;
use super::wire::{Client, connect};
use crate::highest::Highest;
use crate::limits::OPEN_TIMEOUT;
use crate::session::Pace;

/// The state of a session, which its link changes and its calls read.
pub(super) struct SessionState {
    pub options: GrpcOptions,
    pub mailbox: Mailbox,
    pub open: watch::Sender<Option<Arc<Open>>>,
    pub pace: watch::Sender<Pace>,
    pub standing: watch::Sender<SessionStanding>,
    pub drains: watch::Sender<bool>,
    /// The newest order that the agent has acted on.
    pub highest: watch::Sender<Highest>,
    /// What the next heartbeat tells of the node.
    pub usage: watch::Sender<Option<NodeUsage>>,
    /// The session that is to be left, and why.
    leaving: watch::Sender<(u64, Option<Refusal>)>,
    opened: AtomicU64,
}

/// A session that is open.
pub(super) struct Open {
    pub client: Client,
    /// Counts from 1.
    pub number: u64,
}

impl SessionState {
    pub fn new(options: GrpcOptions) -> Self {
        Self {
            options,
            mailbox: Mailbox::default(),
            open: watch::Sender::new(None),
            pace: watch::Sender::default(),
            standing: watch::Sender::new(SessionStanding::Seeking { why: None }),
            drains: watch::Sender::new(false),
            highest: watch::Sender::default(),
            usage: watch::Sender::new(None),
            leaving: watch::Sender::new((0, None)),
            opened: AtomicU64::new(0),
        }
    }

    /// Waits for an open session; none at the end.
    pub async fn opened(&self) -> Option<Arc<Open>> {
        let mut open = self.open.subscribe();
        let found = open.wait_for(Option::is_some).await.ok()?;
        found.clone()
    }

    /// The session of this number is of no use any more.
    pub fn leave(&self, number: u64, refusal: Option<Refusal>) {
        self.leaving.send_if_modified(|leaving| {
            let is_news = leaving.0 < number;
            if is_news {
                *leaving = (number, refusal);
            }
            is_news
        });
    }

    /// Whatever session is open has to begin anew.
    pub fn leave_any(&self) {
        let number = self.open.borrow().as_ref().map(|open| open.number);
        if let Some(number) = number {
            self.leave(number, None);
        }
    }
}

/// How a session ended.
struct Ended {
    was_open: bool,
    refusal: Option<Refusal>,
    why: String,
}

impl Ended {
    fn before(why: String) -> Self {
        Self {
            was_open: false,
            refusal: None,
            why,
        }
    }

    fn refused(was_open: bool, refusal: Refusal) -> Self {
        Self {
            was_open,
            why: refusal.to_string(),
            refusal: Some(refusal),
        }
    }
}

/// The task behind a session: it finds a server, opens the session there, hands on what comes, and begins again when
/// the connection breaks.
pub(super) struct Link {
    shared: Arc<SessionState>,
    seeker: Seeker,
}

impl Link {
    pub fn new(shared: Arc<SessionState>) -> Self {
        let options = &shared.options;
        let seeker = Seeker::new(Arc::clone(&options.routes), options.backoff);
        Self { shared, seeker }
    }

    pub async fn run(mut self) {
        loop {
            let endpoint = self.seeker.next().await;
            let ended = self.session(&endpoint).await;
            self.shared.open.send_replace(None);
            self.take(&endpoint, ended);
        }
    }

    /// Draws the lesson from a session that has ended, or from an attempt that failed.
    fn take(&mut self, endpoint: &Endpoint, ended: Ended) {
        let address = &endpoint.address;
        tracing::debug!(address, why = ended.why, "no session with this server");
        if ended.was_open {
            self.seeker.succeeded();
        }
        let is_unknown = matches!(ended.refusal, Some(Refusal::UnknownNode));
        match ended.refusal {
            Some(Refusal::NotLeader { leader: Some(leader) }) => self.seeker.sent_to(leader),
            Some(Refusal::Replaced) => {
                // Another process speaks as this node: the two must not push each other out in turns.
                tracing::warn!("another process has a session as this node; is it started twice?");
                self.seeker.rest();
            }
            Some(_) | None => {}
        }
        self.shared.standing.send_replace(match is_unknown {
            true => SessionStanding::Unknown,
            false => SessionStanding::Seeking {
                why: Some(format!("the server at {address}: {}", ended.why)),
            },
        });
    }

    /// One session, from the connection to its end.
    async fn session(&self, endpoint: &Endpoint) -> Ended {
        let (shared, options) = (&self.shared, &self.shared.options);
        let (mut client, _driver, heard) =
            match connect(options.connector.as_ref(), endpoint, options.keep_alive).await {
                Ok(connected) => connected,
                Err(why) => return Ended::before(why),
            };
        let last = shared.mailbox.begin();
        let highest = shared.highest.borrow().clone();
        let request = Request::new(SessionRequest {
            node_id: shared.options.node.0,
            last_revision: last.map(|last| last.0),
            instance: std::process::id().into(),
            info: Some(to_node_info(&shared.options.info)),
            highest_term: highest.term,
            highest_cluster: highest.cluster.clone().unwrap_or_default(),
        });
        let opened = timeout(OPEN_TIMEOUT, async {
            let mut events = client.session(request).await?.into_inner();
            let first = events.message().await?;
            Ok::<_, tonic::Status>((events, first))
        });
        let (events, first) = match opened.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(status)) => return failed(false, &status),
            Err(_) => return Ended::before("it does not open a session in time".into()),
        };
        match first.and_then(|event| event.event) {
            Some(Event::Opened(opened)) if !shared.options.is_own_cluster(&opened.cluster_id) => {
                Ended::before(format!("it belongs to another cluster, {:?}", opened.cluster_id))
            }
            Some(Event::Opened(opened)) if is_below(&opened, &highest) => Ended::before(format!(
                "it is in term {}, and this node has acted on term {}: it is no leader, or was begun from an older copy",
                opened.term, highest.term
            )),
            Some(Event::Opened(opened)) => self.serve(endpoint, client, opened, events, &heard).await,
            Some(Event::Ended(ended)) => ended_by_server(false, &ended),
            Some(Event::Assignment(_) | Event::Drain(_)) | None => {
                Ended::before("it does not speak this protocol".into())
            }
        }
    }

    /// Reads the stream until it ends, or a call finds that the session is of no use.
    async fn serve(
        &self,
        endpoint: &Endpoint,
        client: Client,
        opened: Opened,
        mut events: Streaming<SessionEvent>,
        heard: &Heard,
    ) -> Ended {
        let shared = &self.shared;
        let number = shared.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let mut leaving = shared.leaving.subscribe();
        tracing::info!(
            address = endpoint.address,
            leader = opened.leader_id,
            "the session is open"
        );
        let origin = Origin::of(&opened);
        // The server says it again where it still wants the node to end.
        shared.drains.send_replace(false);
        shared.pace.send_replace(Pace {
            ttl_secs: opened.next_ttl_secs,
            session: number,
        });
        shared.standing.send_replace(SessionStanding::Open {
            address: endpoint.address.clone(),
            cluster_id: opened.cluster_id,
        });
        shared.open.send_replace(Some(Arc::new(Open { client, number })));
        let mut assembly = Assembly::default();
        loop {
            let event = tokio::select! {
                biased;
                left = leaving.wait_for(|(left, _)| *left >= number) => {
                    return match left.ok().and_then(|left| left.1.clone()) {
                        Some(refusal) => Ended::refused(true, refusal),
                        None => Ended { was_open: true, refusal: None, why: "it does not answer".into() },
                    };
                }
                event = events.message() => event,
                () = heard.silent() => return Ended {
                    was_open: true,
                    refusal: None,
                    why: "it was not heard for too long".into(),
                },
            };
            let ended = match event {
                Ok(Some(event)) => self.take_event(event, &origin, &mut assembly),
                Ok(None) => Some(Ended {
                    was_open: true,
                    refusal: None,
                    why: "it ended the session without a word".into(),
                }),
                Err(status) => Some(failed(true, &status)),
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    fn take_event(&self, event: SessionEvent, origin: &Origin, assembly: &mut Assembly) -> Option<Ended> {
        match event.event {
            Some(Event::Assignment(part)) => match assembly.push(part) {
                Ok(Some(assignment)) => {
                    self.shared.mailbox.put(origin.sign(assignment));
                    None
                }
                Ok(None) => None,
                Err(error) => {
                    let why = format!("its assignment cannot be read: {error}");
                    tracing::error!(%error, "an assignment cannot be read; what runs goes on");
                    // As after a failed attempt, so that it is asked again at a longer and longer pause.
                    Some(Ended::before(why))
                }
            },
            Some(Event::Drain(_)) => {
                self.shared.drains.send_replace(true);
                None
            }
            Some(Event::Ended(ended)) => Some(ended_by_server(true, &ended)),
            // A word of a newer version, or one that comes once.
            Some(Event::Opened(_)) | None => None,
        }
    }
}

/// Whose orders come over a session.
struct Origin {
    cluster: Option<Arc<str>>,
    term: Option<Term>,
}

impl Origin {
    fn of(opened: &Opened) -> Self {
        let cluster = Some(opened.cluster_id.as_str()).filter(|id| !id.is_empty());
        Self {
            cluster: cluster.map(Arc::from),
            term: Some(Term(opened.term)).filter(|term| term.0 > 0),
        }
    }

    /// An older server says its term with the session alone.
    fn sign(&self, assignment: Assignment) -> Assignment {
        Assignment {
            term: assignment.term.or(self.term),
            cluster: self.cluster.clone(),
            ..assignment
        }
    }
}

/// Whether the server is below what this node has acted on in the same cluster.
fn is_below(opened: &Opened, highest: &Highest) -> bool {
    let is_other = highest
        .cluster
        .as_deref()
        .is_some_and(|known| known != opened.cluster_id);
    !is_other && opened.term < highest.term
}

fn ended_by_server(was_open: bool, ended: &dhow_wire::grpc::proto::Ended) -> Ended {
    match Refusal::from_ended(ended) {
        Some(refusal) => Ended::refused(was_open, refusal),
        None => Ended {
            was_open,
            refusal: None,
            why: "it ended the session".into(),
        },
    }
}

fn failed(was_open: bool, status: &tonic::Status) -> Ended {
    match Refusal::from_status(status) {
        Some(refusal) => Ended::refused(was_open, refusal),
        None => Ended {
            was_open,
            refusal: None,
            why: status.message().to_owned(),
        },
    }
}

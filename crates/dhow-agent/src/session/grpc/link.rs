//! The task that keeps the session: it finds a server, opens the session, reads its stream, moves where the server wants it,
//! and begins again when it ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dhow_core::assignment::Assignment;
use dhow_core::ids::{ServiceKey, Term};
use dhow_core::state::NodeInfo;
use dhow_core::usage::NodeUsage;
use dhow_wire::grpc::proto::session_event::Event;
use dhow_wire::grpc::proto::{self, Move, Opened, SessionEvent, SessionRequest};
use dhow_wire::grpc::{Assembly, DirectoryAssembly, Refusal, to_node_info, to_service_names};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Request, Streaming};

use super::heard::{Heard, Patience};
use super::mailbox::{Beginning, Mailbox};
use super::options::GrpcOptions;
use super::routes::Endpoint;
use super::seeker::Seeker;
use super::standing::SessionStanding;
use super::wanting::Wanting;
use super::wire::{Client, Driver, connect};
use crate::highest::Highest;
use crate::limits::{MOVE_TIMEOUT, OPEN_TIMEOUT};
use crate::session::{KnownDirectory, Pace};

/// The state of a session, which its link changes and its calls read.
pub(super) struct SessionState {
    pub options: GrpcOptions,
    pub mailbox: Mailbox,
    pub open: watch::Sender<Option<Arc<Open>>>,
    pub pace: watch::Sender<Pace>,
    pub standing: watch::Sender<SessionStanding>,
    pub drains: watch::Sender<bool>,
    /// What servers have told of services; it stays while there is no session.
    pub directory: watch::Sender<Option<Arc<KnownDirectory>>>,
    /// The newest order that the agent has acted on.
    pub highest: watch::Sender<Highest>,
    /// What the node says of itself.
    pub info: watch::Sender<NodeInfo>,
    /// The services of other deployments that the node wants to be told of.
    pub wanted: watch::Sender<BTreeSet<ServiceKey>>,
    /// What the next heartbeat tells of the node.
    pub usage: watch::Sender<Option<NodeUsage>>,
    /// Whether the last heartbeat was answered.
    pub heard: watch::Sender<bool>,
    /// The session that is to be left, and why.
    leaving: watch::Sender<(u64, Option<Refusal>)>,
    opened: AtomicU64,
}

/// A session that is open.
pub(super) struct Open {
    pub client: Client,
    /// Counts from 1.
    pub number: u64,
    pub patience: Patience,
}

impl SessionState {
    /// Takes whether anybody who decides hears this node.
    pub fn hear(&self, is_heard: bool) {
        self.heard
            .send_if_modified(|known| std::mem::replace(known, is_heard) != is_heard);
    }

    pub fn new(options: GrpcOptions) -> Self {
        Self {
            info: watch::Sender::new(options.info.clone()),
            options,
            mailbox: Mailbox::default(),
            open: watch::Sender::new(None),
            pace: watch::Sender::default(),
            standing: watch::Sender::new(SessionStanding::Seeking { why: None }),
            drains: watch::Sender::new(false),
            directory: watch::Sender::new(None),
            highest: watch::Sender::default(),
            wanted: watch::Sender::default(),
            usage: watch::Sender::new(None),
            heard: watch::Sender::new(true),
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

    /// It was open, and no reason was given.
    fn open(why: &str) -> Self {
        Self {
            was_open: true,
            refusal: None,
            why: why.to_owned(),
        }
    }

    fn refused(was_open: bool, refusal: Refusal) -> Self {
        Self {
            was_open,
            why: refusal.to_string(),
            refusal: Some(refusal),
        }
    }

    /// The node has tried to move: if something has taken the place of this session, then that.
    fn by_own_move(self) -> Self {
        match self.refusal {
            Some(Refusal::Replaced) => Self {
                refusal: None,
                ..self
            },
            Some(_) | None => self,
        }
    }
}

/// A session that a server has opened.
struct Session {
    endpoint: Endpoint,
    client: Client,
    driver: Driver,
    heard: Heard,
    opened: Opened,
    events: Streaming<SessionEvent>,
    beginning: Beginning,
    /// What the server was told with the opening that the node wants.
    wanting: Wanting,
}

/// What became of an open session.
enum Left {
    Ended(Ended),
    /// Another server serves the node from now on.
    Moved(Box<Session>),
}

/// What an event of a stream asks for.
enum Asked {
    Nothing,
    Move(Move),
    End(Ended),
}

/// The task behind a session: it finds a server, opens the session there, hands on what comes, moves to another server
/// where it is sent, and begins again when the connection breaks.
pub(super) struct Link {
    shared: Arc<SessionState>,
    seeker: Seeker,
}

impl Link {
    pub fn new(shared: Arc<SessionState>) -> Self {
        let options = &shared.options;
        let seeker = Seeker::new(Arc::clone(&options.routes), options.backoff, options.node.0);
        Self { shared, seeker }
    }

    pub async fn run(mut self) {
        loop {
            let endpoint = self.seeker.next().await;
            let (endpoint, ended) = match self.open(&endpoint).await {
                Ok(session) => self.keep(session).await,
                Err(ended) => (endpoint, ended),
            };
            self.shared.open.send_replace(None);
            self.shared.hear(false);
            self.take(&endpoint, ended);
        }
    }

    /// Draws the lesson from a session that has ended, or from an attempt that failed.
    fn take(&mut self, endpoint: &Endpoint, ended: Ended) {
        let address = &endpoint.address;
        tracing::debug!(address, why = ended.why, "no session with this server");
        match ended.was_open {
            true => self.seeker.succeeded(endpoint),
            false => self.seeker.failed(endpoint),
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

    /// Opens a session, while one with another server may still be open.
    async fn open(&self, endpoint: &Endpoint) -> Result<Box<Session>, Ended> {
        let (shared, options) = (&self.shared, &self.shared.options);
        let connected = connect(options.connector.as_ref(), endpoint, options.keep_alive).await;
        let (mut client, driver, heard) = connected.map_err(Ended::before)?;
        let beginning = shared.mailbox.beginning();
        let highest = shared.highest.borrow().clone();
        let wanting = Wanting::begin(shared.wanted.borrow().clone());
        let request = Request::new(SessionRequest {
            node_id: shared.options.node.0,
            last_revision: beginning.last.map(|last| last.0),
            instance: std::process::id().into(),
            info: Some(to_node_info(&shared.info.borrow())),
            highest_term: highest.term,
            highest_cluster: highest.cluster.clone().unwrap_or_default(),
            takes_directory: true,
            takes_tunnels: shared.options.dial_back.is_some(),
            by_interest: true,
            wanted: to_service_names(&wanting.told),
            opening: wanting.opening,
        });
        let opened = timeout(OPEN_TIMEOUT, async {
            let mut events = client.session(request).await?.into_inner();
            let first = events.message().await?;
            Ok::<_, tonic::Status>((events, first))
        });
        let (events, first) = match opened.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(status)) => return Err(failed(false, &status)),
            Err(_) => return Err(Ended::before("it does not open a session in time".into())),
        };
        match first.and_then(|event| event.event) {
            Some(Event::Opened(opened)) if !shared.options.is_own_cluster(&opened.cluster_id) => Err(
                Ended::before(format!("it belongs to another cluster, {:?}", opened.cluster_id)),
            ),
            Some(Event::Opened(opened)) if is_below(&opened, &highest) => Err(Ended::before(format!(
                "it is in term {}, and this node has acted on term {}: it is no leader, or was begun from an older copy",
                opened.term, highest.term
            ))),
            Some(Event::Opened(opened)) => Ok(Box::new(Session {
                endpoint: endpoint.clone(),
                client,
                driver,
                heard,
                opened,
                events,
                beginning,
                wanting,
            })),
            Some(Event::Ended(ended)) => Err(ended_by_server(false, &ended)),
            Some(
                Event::Assignment(_)
                | Event::Directory(_)
                | Event::Drain(_)
                | Event::Move(_)
                | Event::DialBack(_),
            )
            | None => Err(Ended::before("it does not speak this protocol".into())),
        }
    }

    /// Serves a session and those to which it moves; gives the last one's server and how that ended.
    async fn keep(&mut self, mut session: Box<Session>) -> (Endpoint, Ended) {
        loop {
            self.seeker.met(&session.endpoint, &session.opened);
            match self.serve(&mut session).await {
                Left::Ended(ended) => return (session.endpoint, ended),
                Left::Moved(next) => {
                    let Session { driver, .. } = *std::mem::replace(&mut session, next);
                    driver.linger();
                }
            }
        }
    }

    /// Says that the session is open, and takes the place of one before it; gives its number.
    fn announce(&self, session: &Session) -> u64 {
        let (shared, opened) = (&self.shared, &session.opened);
        let address = &session.endpoint.address;
        let number = shared.opened.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::info!(address, server = opened.server_id, "the session is open");
        // The server says it again where it still wants the node to end.
        shared.drains.send_replace(false);
        shared.pace.send_modify(|pace| {
            *pace = Pace {
                ttl_secs: opened.next_ttl_secs,
                session: number,
                ..*pace
            };
        });
        shared.hear(true);
        shared.standing.send_replace(SessionStanding::Open {
            address: address.clone(),
            cluster_id: opened.cluster_id.clone(),
        });
        let open = Open {
            client: session.client.clone(),
            number,
            patience: Patience::default(),
        };
        shared.open.send_replace(Some(Arc::new(open)));
        number
    }

    /// Reads the stream until it ends, a call finds that the session is of no use, or another server has taken over.
    async fn serve(&mut self, session: &mut Session) -> Left {
        let number = self.announce(session);
        // After everybody knows its number, so that whoever finds it of no use from now on says so of this one.
        if !self.shared.mailbox.begin(session.beginning) {
            return Left::Ended(Ended::open("the agent has something else than it was given"));
        }
        let mut leaving = self.shared.leaving.subscribe();
        let origin = Origin::of(&session.opened);
        let mut parts = Parts::default();
        let mut has_tried_to_move = false;
        let wanting = session.wanting.clone();
        let wanting = wanting.keep_told(Arc::clone(&self.shared), session.client.clone());
        tokio::pin!(wanting);
        loop {
            let event = tokio::select! {
                biased;
                left = leaving.wait_for(|(left, _)| *left >= number) => {
                    return Left::Ended(match left.ok().and_then(|left| left.1.clone()) {
                        Some(refusal) => Ended::refused(true, refusal),
                        None => Ended::open("it does not answer"),
                    });
                }
                never = &mut wanting => match never {},
                event = session.events.message() => event,
                () = session.heard.silent() => return Left::Ended(Ended::open("it was not heard for too long")),
            };
            let asked = match event {
                Ok(Some(event)) => self.take_event(event, &session.endpoint, &origin, &mut parts),
                Ok(None) => Asked::End(Ended::open("it ended the session without a word")),
                Err(status) => Asked::End(failed(true, &status)),
            };
            match asked {
                Asked::Nothing => {}
                Asked::Move(to) => match self.move_to(&to, &session.opened).await {
                    Some(next) => return Left::Moved(next),
                    None => has_tried_to_move = true,
                },
                Asked::End(ended) if has_tried_to_move => return Left::Ended(ended.by_own_move()),
                Asked::End(ended) => return Left::Ended(ended),
            }
        }
    }

    /// Opens a session with the server that the node belongs to. Meanwhile reports go on with the one that it has, whose
    /// stream waits: so nothing comes over it that the new one does not know, and nothing of it is lost where there is no
    /// new one.
    async fn move_to(&mut self, to: &Move, from: &Opened) -> Option<Box<Session>> {
        if to.server_id == from.server_id {
            return None;
        }
        let ways = self.seeker.ways_to(to);
        let mut tried = None;
        let moved = timeout(MOVE_TIMEOUT, async {
            for endpoint in ways {
                tried = Some((endpoint.clone(), "it does not answer in time".to_owned()));
                match self.open(&endpoint).await {
                    Ok(session) => return Some(session),
                    Err(ended) => tried = Some((endpoint, ended.why)),
                }
            }
            None
        });
        let moved = moved.await.ok().flatten();
        if let (None, Some((endpoint, why))) = (&moved, tried) {
            self.seeker.failed(&endpoint);
            let address = endpoint.address;
            tracing::info!(
                address,
                why,
                "this node belongs to another server, and cannot move there"
            );
        }
        moved
    }

    /// Takes in what was told of services. One that cannot be read costs names, not what runs: the session goes on, and the
    /// next one begins with a whole one.
    fn take_directory(&self, part: proto::Directory, parts: &mut DirectoryAssembly) {
        match parts.push(part) {
            Ok(None) => {}
            Ok(Some((change, pass))) => self.shared.directory.send_modify(|known| {
                let mut next = known.as_deref().cloned().unwrap_or_default();
                next.follow(change, pass);
                *known = Some(Arc::new(next));
            }),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    error,
                    "what a server tells of services cannot be read; what is known stays"
                );
            }
        }
    }

    fn take_event(
        &self,
        event: SessionEvent,
        server: &Endpoint,
        origin: &Origin,
        parts: &mut Parts,
    ) -> Asked {
        match event.event {
            Some(Event::Directory(part)) => {
                self.take_directory(part, &mut parts.directory);
                Asked::Nothing
            }
            Some(Event::Assignment(part)) => match parts.assignment.push(part) {
                Ok(Some(assignment)) => {
                    self.shared.mailbox.put(origin.sign(assignment));
                    Asked::Nothing
                }
                Ok(None) => Asked::Nothing,
                Err(error) => {
                    let why = format!("its assignment cannot be read: {error}");
                    tracing::error!(%error, "an assignment cannot be read; what runs goes on");
                    // As after a failed attempt, so that it is asked again at a longer and longer pause.
                    Asked::End(Ended::before(why))
                }
            },
            Some(Event::Drain(_)) => {
                self.shared.drains.send_replace(true);
                Asked::Nothing
            }
            Some(Event::Ended(ended)) => Asked::End(ended_by_server(true, &ended)),
            Some(Event::Move(to)) => Asked::Move(to),
            Some(Event::DialBack(asked)) => {
                if let Some(dial_back) = &self.shared.options.dial_back {
                    dial_back.dial(server, asked.number);
                }
                Asked::Nothing
            }
            // A word of a newer version, or one that comes once.
            Some(Event::Opened(_)) | None => Asked::Nothing,
        }
    }
}

/// What has come in parts over a session and waits for the last one.
#[derive(Default)]
struct Parts {
    assignment: Assembly,
    directory: DirectoryAssembly,
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

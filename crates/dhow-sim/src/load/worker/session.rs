//! One session of a worker, from its connection to its end.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dhow_agent::limits::UNANSWERED_MAX;
use dhow_core::ids::{NodeId, Term};
use dhow_core::lease::report_delay_ms;
use dhow_wire::grpc::proto::session_event::Event;
use dhow_wire::grpc::proto::status_report::Body;
use dhow_wire::grpc::proto::{Heartbeat, SessionEvent, SessionRequest, StatusAck, StatusReport, WantRequest};
use dhow_wire::grpc::{Assembly, LeaderHint, Refusal, to_body, to_node_info};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};

use super::books::Books;
use super::identity::Identity;
use super::wire::{Client, Connection, connect};
use super::{Surroundings, info_of, told};
use crate::load::order::Order;
use crate::load::seat::Seat;
use crate::load::tally::Tally;

/// As the agent has them.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(8);
const REPORT_GAP: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// How a session, or the attempt to open one, ended.
#[derive(Debug)]
pub enum Ended {
    Unreached,
    SentOn(Option<LeaderHint>),
    /// It was open.
    Over,
    /// It was open, and the node belongs to another server.
    Moved(LeaderHint),
    /// Asking again does not help.
    TurnedAway(String),
}

type Call = Pin<Box<dyn Future<Output = Result<StatusAck, Option<Status>>> + Send>>;

/// An open session of a worker, with its timers for heartbeats and reports.
pub struct Session<'a> {
    around: &'a Surroundings,
    seat: &'a Seat,
    books: &'a mut Books,
    node: u64,
    connection: Connection,
    events: Streaming<SessionEvent>,
    /// Of the server, as it was when the session was opened.
    term: Term,
    assembly: Assembly,
    ttl_secs: u32,
    /// Heartbeats since it was opened.
    beats: u64,
    beat_at: Instant,
    beat: Option<(Instant, Call)>,
    report: Option<(Instant, Call)>,
    /// When changes may be reported next.
    report_at: Instant,
    failures: u32,
    /// Calls since the last one that was answered.
    unanswered: u32,
    /// When it changes one of its replicas next.
    change_at: Instant,
}

impl<'a> Session<'a> {
    pub async fn open(
        around: &'a Surroundings,
        seat: &'a Seat,
        identity: &Identity,
        server: SocketAddr,
        books: &'a mut Books,
    ) -> Result<Self, Ended> {
        let began = Instant::now();
        let connected = connect(around.address_of(seat.place), server, &identity.tls).await;
        let mut connection = connected.map_err(|_| Ended::Unreached)?;
        let request = SessionRequest {
            node_id: identity.node.0,
            last_revision: books.revision.map(|revision| revision.0),
            instance: seat.place as u64,
            info: Some(to_node_info(&info_of(seat.place, around))),
            highest_term: books.highest.map_or(0, |(term, _)| term.0),
            highest_cluster: books.cluster.clone(),
            takes_directory: around.telling.is_some(),
            takes_tunnels: false,
            by_interest: true,
            wanted: Vec::new(),
            opening: rand::random(),
        };
        let opening = request.opening;
        let opened = timeout(OPEN_TIMEOUT, async {
            let mut events = connection.client.session(request).await?.into_inner();
            let first = events.message().await?;
            Ok::<_, Status>((events, first))
        });
        let (events, first) = match opened.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(status)) => return Err(lesson(Refusal::from_status(&status))),
            Err(_) => return Err(Ended::Unreached),
        };
        let opened = match first.and_then(|event| event.event) {
            Some(Event::Opened(opened)) => opened,
            Some(Event::Ended(ended)) => return Err(lesson(Refusal::from_ended(&ended))),
            Some(
                Event::Assignment(_)
                | Event::Directory(_)
                | Event::Drain(_)
                | Event::Move(_)
                | Event::DialBack(_),
            )
            | None => return Err(Ended::Unreached),
        };
        around.tally.opening.add(began.elapsed());
        books.begin(opened.cluster_id);
        let ttl_secs = opened.next_ttl_secs;
        Ok(Self {
            around,
            seat,
            books,
            node: identity.node.0,
            connection,
            events,
            term: Term(opened.term),
            assembly: Assembly::default(),
            ttl_secs,
            beats: 0,
            beat_at: Instant::now() + delay(identity.node.0, ttl_secs, 0),
            beat: None,
            report: None,
            report_at: Instant::now(),
            failures: 0,
            unanswered: 0,
            change_at: Instant::now(),
        }
        .wanting(opening))
    }

    /// Says which services it wants to be told of, where it follows its directory.
    fn wanting(self, opening: u64) -> Self {
        let services = self.around.telling.iter();
        let services: Vec<_> = services
            .flat_map(|telling| told::wanted(&telling.interests, self.seat.place))
            .collect();
        if !services.is_empty() {
            let request = WantRequest {
                node_id: self.node,
                services,
                opening,
                number: 1,
            };
            let mut client = self.connection.client.clone();
            // One that is not answered is said again with the next session.
            tokio::spawn(async move { client.want(request).await });
        }
        self
    }

    /// Changes one of its replicas, where its time has come.
    fn change(&mut self) {
        let Some(telling) = &self.around.telling else {
            return;
        };
        let every = *telling.every.borrow();
        if let Some((replica, is_ready)) = self.books.change(every.is_some()) {
            telling.change(replica, is_ready);
        }
        let every = every.unwrap_or(Duration::from_secs(1));
        self.change_at = Instant::now() + every;
    }

    /// Serves until it ends or its worker is told to go.
    pub async fn serve(mut self, orders: &mut watch::Receiver<Order>) -> Ended {
        let mut every = self
            .around
            .telling
            .as_ref()
            .map(|telling| telling.every.subscribe());
        loop {
            let order = *orders.borrow_and_update();
            match order {
                Order::Live | Order::ReadNothing | Order::CutOff => {}
                Order::Reset => return Ended::Over,
                Order::Hang => {
                    self.connection.hang.begin();
                    // It is dropped, and so reset, when the worker is called back.
                    let _ = orders.wait_for(|order| order.has_session()).await;
                    return Ended::Over;
                }
            }
            self.go_on();
            let (reads, waits) = (order != Order::ReadNothing, self.waits_to_report());
            let ended = tokio::select! {
                _ = orders.changed() => None,
                every = every_changed(&mut every) => {
                    let spread = rand::random_range(0.0..1.0);
                    self.change_at = Instant::now() + every.unwrap_or_default().mul_f64(spread);
                    None
                }
                () = sleep_until(self.change_at), if every.is_some() => {
                    self.change();
                    None
                }
                event = self.events.message(), if reads => self.take_event(event),
                answer = answered(&mut self.report) => self.take_report(answer),
                answer = answered(&mut self.beat) => self.take_beat(answer),
                () = sleep_until(self.report_at), if waits => None,
                () = self.connection.heard.silent() => {
                    Tally::count(&self.around.tally.unheard);
                    Some(Ended::Over)
                }
                () = sleep_until(self.beat_at) => {
                    self.send_beat();
                    None
                }
            };
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    fn waits_to_report(&self) -> bool {
        self.report.is_none() && self.report_at > Instant::now() && self.books.report().is_some()
    }

    /// Begins the next report, where there is something to tell and its time has come.
    fn go_on(&mut self) {
        if self.report.is_some() {
            return;
        }
        let waits_for_others = self.books.is_only_news() || self.failures > 0;
        if waits_for_others && self.report_at > Instant::now() {
            return;
        }
        let Some(body) = self.books.report() else { return };
        let Ok(body) = to_body(&body) else { return };
        self.report_at = Instant::now() + REPORT_GAP;
        let call = call(
            self.connection.client.clone(),
            self.node,
            Some(self.books.incarnation),
            body,
        );
        self.report = Some((Instant::now(), call));
    }

    fn send_beat(&mut self) {
        self.beats += 1;
        self.beat_at = Instant::now() + delay(self.node, self.ttl_secs, self.beats);
        if self.beat.is_some() {
            return;
        }
        let digest = self.books.digest();
        // While reports are on their way they are as good as a heartbeat.
        if digest.is_none() {
            return;
        }
        Tally::count(&self.around.tally.heartbeats);
        let body = Body::Heartbeat(Heartbeat { digest, usage: None });
        let call = call(self.connection.client.clone(), self.node, None, body);
        self.beat = Some((Instant::now(), call));
    }

    fn take_event(&mut self, event: Result<Option<SessionEvent>, Status>) -> Option<Ended> {
        match event.map(|event| event.and_then(|event| event.event)) {
            Ok(Some(Event::Assignment(part))) => {
                let assignment = match self.assembly.push(part) {
                    Ok(assignment) => assignment?,
                    Err(error) => return Some(Ended::TurnedAway(error.to_string())),
                };
                if !self.books.is_newest(&assignment, self.term) {
                    Tally::count(&self.around.tally.behind);
                    return Some(Ended::Over);
                }
                let (started, stopped) = self.books.take(&assignment);
                self.seat.started.fetch_add(started, Ordering::Relaxed);
                self.seat.stopped.fetch_add(stopped, Ordering::Relaxed);
                self.seat.hold(self.books.held());
                None
            }
            Ok(Some(Event::Directory(told))) => {
                if let Some(telling) = &self.around.telling {
                    self.seat.view().take(&told, self.seat.place, telling);
                }
                None
            }
            Ok(Some(Event::Opened(_) | Event::Drain(_) | Event::DialBack(_))) => None,
            // Unlike an agent it leaves before it has a session there.
            Ok(Some(Event::Move(to))) => Some(Ended::Moved(LeaderHint {
                node: NodeId(to.server_id),
                address: Some(to.address),
            })),
            Ok(Some(Event::Ended(ended))) => Some(over(Refusal::from_ended(&ended))),
            Ok(None) => Some(Ended::Over),
            Err(status) => Some(over(Refusal::from_status(&status))),
        }
    }

    fn take_report(&mut self, answer: (Duration, Result<StatusAck, Option<Status>>)) -> Option<Ended> {
        let (took, answer) = answer;
        self.report = None;
        let ack = match answer {
            Ok(ack) => ack,
            Err(status) => return self.failed(status),
        };
        self.failures = 0;
        self.unanswered = 0;
        self.around.tally.reporting.add(took);
        self.ttl_secs = ack.next_ttl_secs;
        match (ack.durable_seq, ack.replay_from) {
            (Some(seq), _) => {
                let settled = self.books.settle(seq, ack.inventory_wanted);
                self.seat.running.store(settled.running, Ordering::Relaxed);
                for since in settled.since {
                    self.around.tally.delivering.add(since.elapsed());
                }
            }
            (None, Some(seq)) => self.books.replay_from(seq),
            (None, None) => self.books.want_inventory(),
        }
        None
    }

    fn take_beat(&mut self, answer: (Duration, Result<StatusAck, Option<Status>>)) -> Option<Ended> {
        let (took, answer) = answer;
        self.beat = None;
        let ack = match answer {
            Ok(ack) => ack,
            Err(status) => return self.failed(status),
        };
        self.unanswered = 0;
        self.around.tally.beating.add(took);
        if ack.next_ttl_secs != self.ttl_secs {
            self.ttl_secs = ack.next_ttl_secs;
            self.beat_at = self
                .beat_at
                .min(Instant::now() + delay(self.node, self.ttl_secs, self.beats));
        }
        if ack.inventory_wanted || ack.replay_from.is_some() {
            self.books.want_inventory();
        }
        None
    }

    /// A call was not answered well; tells whether the session is of no use any more.
    fn failed(&mut self, status: Option<Status>) -> Option<Ended> {
        let Some(status) = status else {
            return self.unanswered();
        };
        self.unanswered = 0;
        let refusal = Refusal::from_status(&status);
        if matches!(refusal, Some(Refusal::Busy | Refusal::TooOften)) {
            Tally::count(&self.around.tally.reports_refused);
            self.report_later();
            return None;
        }
        Some(over(refusal))
    }

    /// As the agent does it: a server that has too much to do is left only when it never answers.
    fn unanswered(&mut self) -> Option<Ended> {
        Tally::count(&self.around.tally.unanswered);
        self.unanswered += 1;
        if self.unanswered >= UNANSWERED_MAX {
            return Some(Ended::Over);
        }
        self.report_later();
        None
    }

    fn report_later(&mut self) {
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        self.report_at = Instant::now() + pause.min(RETRY_MAX);
    }
}

/// Waits until replicas are to change at another pace; never where there is no pace.
async fn every_changed(every: &mut Option<watch::Receiver<Option<Duration>>>) -> Option<Duration> {
    if let Some(every) = every
        && every.changed().await.is_ok()
    {
        return *every.borrow_and_update();
    }
    std::future::pending().await
}

fn delay(node: u64, ttl_secs: u32, beats: u64) -> Duration {
    Duration::from_millis(report_delay_ms(node, ttl_secs, beats))
}

/// What an attempt that failed means.
fn lesson(refusal: Option<Refusal>) -> Ended {
    match refusal {
        Some(Refusal::NotLeader { leader }) => Ended::SentOn(leader),
        Some(
            Refusal::Busy
            | Refusal::TooOften
            | Refusal::ShuttingDown
            | Refusal::Replaced
            | Refusal::Identity(_),
        )
        | None => Ended::Unreached,
        Some(
            refusal @ (Refusal::UnknownNode
            | Refusal::Malformed(_)
            | Refusal::Credential(_)
            | Refusal::NotGiven(_)),
        ) => Ended::TurnedAway(refusal.to_string()),
    }
}

/// The same of a session that was open.
fn over(refusal: Option<Refusal>) -> Ended {
    match lesson(refusal) {
        Ended::Unreached | Ended::Over => Ended::Over,
        ended @ (Ended::SentOn(_) | Ended::Moved(_) | Ended::TurnedAway(_)) => ended,
    }
}

fn call(mut client: Client, node_id: u64, incarnation: Option<u64>, body: Body) -> Call {
    let report = StatusReport {
        node_id,
        incarnation,
        body: Some(body),
        ..StatusReport::default()
    };
    Box::pin(async move {
        match timeout(CALL_TIMEOUT, client.report_status(report)).await {
            Ok(Ok(ack)) => Ok(ack.into_inner()),
            Ok(Err(status)) => Err(Some(status)),
            Err(_) => Err(None),
        }
    })
}

async fn answered(call: &mut Option<(Instant, Call)>) -> (Duration, Result<StatusAck, Option<Status>>) {
    match call {
        Some((began, call)) => {
            let answer = call.await;
            (began.elapsed(), answer)
        }
        None => std::future::pending().await,
    }
}

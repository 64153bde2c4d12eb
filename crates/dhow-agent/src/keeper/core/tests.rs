//! Laws of the keeper's core: over random histories of events, orders, lost answers, failing disks and killed daemons.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use dhow_core::assignment::RoleAssignment;
use dhow_core::ids::{DeploymentName, Generation, Revision, RoleName, ServiceName, Term};
use dhow_core::mirror::ReportBody;
use dhow_core::replica::Machine;

use super::*;
use crate::session::{Report, ReportAnswer, SessionError};

/// Something that befalls a node.
#[derive(Clone, Debug)]
enum Op {
    /// The runner of this place tells an event.
    Event(usize),
    /// The first runner that is to end has ended.
    Gone,
    /// The report under way is answered; or is taken and the answer is lost; or never arrives.
    Report(Fate),
    Beat(Fate),
    /// An order of this term and revision, with so many replicas.
    Order {
        term: u64,
        revision: u64,
        replicas: u32,
        generation: u32,
    },
    NoOrder,
    Pass(u64),
    /// The disk takes the highest order, or does not.
    Disk {
        works: bool,
    },
    /// The daemon is killed and started again; what runs goes on.
    Kill,
    /// So is it, and its ledger is gone.
    Forget,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    AnswerLost,
    Lost,
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![4 => Just(Fate::Answered), 1 => Just(Fate::AnswerLost), 1 => Just(Fate::Lost)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..4_usize).prop_map(Op::Event),
        3 => Just(Op::Gone),
        8 => fates().prop_map(Op::Report),
        2 => fates().prop_map(Op::Beat),
        4 => (1..4_u64, 1..20_u64, 0..4_u32, 1..3_u32).prop_map(|(term, revision, replicas, generation)| {
            Op::Order { term, revision, replicas, generation }
        }),
        1 => Just(Op::NoOrder),
        2 => (1..30_000_u64).prop_map(Op::Pass),
        1 => any::<bool>().prop_map(|works| Op::Disk { works }),
        1 => Just(Op::Kill),
        1 => Just(Op::Forget),
    ];
    prop::collection::vec(op, 1..120)
}

/// How far the control plane has a node's life: what `step` makes of its reports, in numbers alone.
#[derive(Default)]
struct Mirror {
    incarnation: u64,
    seq: u64,
    replicas: BTreeSet<ReplicaName>,
}

impl Mirror {
    fn take(&mut self, report: &Report, written: &BTreeMap<u64, ReplicaName>) -> ReportAnswer {
        match &report.body {
            ReportBody::Events { .. } if report.incarnation != self.incarnation => {
                ReportAnswer::InventoryWanted
            }
            ReportBody::Events { first_seq, .. } if *first_seq > self.seq + 1 => {
                ReportAnswer::ReplayFrom { seq: self.seq }
            }
            ReportBody::Events { first_seq, events } => {
                for (seq, (name, _)) in (*first_seq..).zip(events) {
                    assert_eq!(
                        written.get(&seq),
                        Some(name),
                        "event {seq} is told as it was written"
                    );
                    self.seq = self.seq.max(seq);
                }
                self.durable()
            }
            ReportBody::Inventory { seq, replicas } => {
                (self.incarnation, self.seq) = (report.incarnation, *seq);
                self.replicas = replicas.iter().map(|(name, _)| name.clone()).collect();
                self.durable()
            }
        }
    }

    fn durable(&self) -> ReportAnswer {
        ReportAnswer::Durable {
            seq: self.seq,
            inventory_wanted: false,
            open: Vec::new(),
        }
    }
}

/// A node whose host, disk and control plane are made up.
struct World {
    core: KeeperCore,
    now_ms: u64,
    /// What is on disk.
    disk: Account,
    highest: Highest,
    disk_works: bool,
    incarnation: u64,
    /// The events of this life, by number.
    written: BTreeMap<u64, ReplicaName>,
    runners: BTreeMap<ReplicaName, Wish>,
    report: Option<Report>,
    beat: bool,
    ask: Option<Option<Revision>>,
    mirror: Mirror,
    /// The highest (term, revision) that it has acted on.
    acted: (u64, u64),
}

impl World {
    fn new() -> Self {
        let account = Account::default().of_life(1);
        let mut world = Self {
            core: core(&account, &Highest::default(), 0),
            now_ms: 0,
            disk: account,
            highest: Highest::default(),
            disk_works: true,
            incarnation: 1,
            written: BTreeMap::new(),
            runners: BTreeMap::new(),
            report: None,
            beat: false,
            ask: None,
            mirror: Mirror::default(),
            acted: (0, 0),
        };
        let actions = world.core.take_up(&[], 0);
        world.carry_out(actions);
        world
    }

    /// Starts the daemon anew from what is on disk and on the host.
    fn start(&mut self) {
        let found: Vec<FoundReplica> = self
            .runners
            .keys()
            .map(|name| FoundReplica {
                name: name.clone(),
                is_of_another_boot: false,
            })
            .collect();
        self.core = core(&self.disk, &self.highest, self.now_ms);
        (self.report, self.beat, self.ask) = (None, false, None);
        self.runners.clear();
        let actions = self.core.take_up(&found, self.now_ms);
        self.carry_out(actions);
        for found in found {
            assert!(self.runners.contains_key(&found.name), "what runs has a runner");
        }
    }

    fn tell(&mut self, input: CoreInput) {
        let actions = self.core.take(input, self.now_ms);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<CoreAction>) {
        let mut actions = std::collections::VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                CoreAction::Append(records) => self.append(&records),
                CoreAction::PutHighest(highest) => {
                    let is_on_disk = self.disk_works;
                    if is_on_disk {
                        let news = (highest.term, highest.revision);
                        assert!(news > self.acted, "{news:?} after {:?}", self.acted);
                        (self.acted, self.highest) = (news, highest);
                    }
                    let input = CoreInput::HighestPut { is_on_disk };
                    actions.extend(self.core.take(input, self.now_ms));
                }
                CoreAction::Begin(beginning) => {
                    let before = self.runners.insert(beginning.name, beginning.wish);
                    assert!(before.is_none(), "two runners of one name");
                }
                CoreAction::Wish { name, wish } => {
                    let known = self.runners.insert(name, wish).expect("there is such a runner");
                    assert!(!matches!(known, Wish::Stop), "one that ends is not called back");
                }
                CoreAction::LetGo { name } => assert!(!self.runners.contains_key(&name)),
                CoreAction::Report { report, .. } => {
                    if let ReportBody::Events { first_seq, events } = &report.body {
                        let last = first_seq + events.len() as u64 - 1;
                        assert!(last <= self.disk.seq(), "{last} is told before it is on disk");
                    }
                    assert_eq!(self.report.replace(report), None, "one report at a time");
                }
                CoreAction::Beat(_) => assert!(!std::mem::replace(&mut self.beat, true)),
                CoreAction::Ask { last, .. } => assert_eq!(self.ask.replace(last), None),
                CoreAction::CloseService(_) | CoreAction::ConfirmBoot { .. } | CoreAction::Prepare(_) => {}
            }
        }
        assert_eq!(*self.core.account(), self.disk, "what is known is on disk");
        assert!(self.core.names().iter().eq(self.runners.keys()));
        assert!(
            self.core.wakes_at_ms() > self.now_ms,
            "nothing is due and not done"
        );
    }

    fn append(&mut self, records: &[Record]) {
        for record in records {
            if let Record::Event { seq, name, .. } = record {
                assert_eq!(*seq, self.disk.seq() + 1, "numbers follow on");
                self.written.insert(*seq, name.clone());
            }
            self.disk.take(record);
        }
    }

    fn perform(&mut self, op: &Op) {
        match op {
            Op::Event(place) => {
                let name = self.runners.keys().nth(*place).cloned();
                if let Some(name) = name {
                    self.tell(event(name));
                }
            }
            Op::Gone => {
                let mut ending = self.runners.iter();
                let gone = ending.find(|(_, wish)| matches!(wish, Wish::Stop));
                if let Some(name) = gone.map(|(name, _)| name.clone()) {
                    self.runners.remove(&name);
                    self.tell(CoreInput::Happened(vec![Happening::Gone { name }]));
                }
            }
            Op::Report(fate) => self.report(*fate),
            Op::Beat(fate) => self.answer_beat(*fate),
            Op::Order {
                term,
                revision,
                replicas,
                generation,
            } => {
                if self.ask.take().is_some() {
                    let told = order(*term, *revision, *replicas, *generation);
                    self.tell(CoreInput::Told(Ok(told)));
                }
            }
            Op::NoOrder => {
                if self.ask.take().is_some() {
                    self.tell(CoreInput::Told(Err(SessionError::Unavailable("cut".into()))));
                }
            }
            Op::Pass(ms) => {
                self.now_ms += ms;
                self.tell(CoreInput::Woken);
            }
            Op::Disk { works } => self.disk_works = *works,
            Op::Kill => self.start(),
            Op::Forget => {
                self.incarnation += 1;
                self.disk = Account::default().of_life(self.incarnation);
                self.written.clear();
                self.start();
            }
        }
    }

    fn report(&mut self, fate: Fate) {
        let Some(report) = self.report.take() else { return };
        let lost = || Err(SessionError::Unavailable("lost".into()));
        let answer = match fate {
            Fate::Answered => Ok(self.mirror.take(&report, &self.written)),
            Fate::AnswerLost => {
                self.mirror.take(&report, &self.written);
                lost()
            }
            Fate::Lost => lost(),
        };
        self.tell(CoreInput::Reported(answer));
    }

    fn answer_beat(&mut self, fate: Fate) {
        if std::mem::take(&mut self.beat) {
            self.tell(CoreInput::Beaten(match fate {
                Fate::Answered => Ok(Default::default()),
                Fate::AnswerLost | Fate::Lost => Err(SessionError::Unavailable("lost".into())),
            }));
        }
    }

    /// Nothing fails any more: in the end the control plane has everything, and the node what it was ordered.
    fn heal(&mut self) {
        self.disk_works = true;
        let (term, revision) = (self.acted.0, self.acted.1 + 1);
        for _ in 0..40 {
            self.report(Fate::Answered);
            self.answer_beat(Fate::Answered);
            if self.ask.take().is_some() {
                self.tell(CoreInput::Told(Ok(order(term, revision, 2, 1))));
            }
            self.perform(&Op::Gone);
            self.now_ms = self.core.wakes_at_ms();
            self.tell(CoreInput::Woken);
        }
        assert_eq!(self.report, None, "all is told");
        assert_eq!(self.mirror.seq, self.disk.seq());
        assert_eq!(
            (self.disk.durable_seq(), self.mirror.incarnation),
            (self.disk.seq(), self.incarnation)
        );
        assert_eq!(self.acted, (term, revision));
        let wanted: BTreeSet<ReplicaName> = (0..2).map(|index| name(index, 1)).collect();
        assert_eq!(**self.core.names(), wanted);
        assert!(self.runners.values().all(|wish| matches!(wish, Wish::Run(_))));
    }
}

fn core(account: &Account, highest: &Highest, now_ms: u64) -> KeeperCore {
    let options = CoreOptions {
        node: NodeId(7),
        returning: Returning::Alone,
        account: account.clone(),
        highest: highest.clone(),
        pace: Pace::default(),
        report_gap_ms: 1_000,
    };
    KeeperCore::new(options, now_ms)
}

fn name(index: u32, generation: u32) -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index,
        generation: Generation(generation),
    }
}

fn event(name: ReplicaName) -> CoreInput {
    CoreInput::Happened(vec![Happening::Event {
        name,
        event: ReplicaEvent::RanSteadily,
        machine: Machine::default(),
    }])
}

/// A whole assignment.
fn order(term: u64, revision: u64, count: u32, generation: u32) -> Assignment {
    let roles = vec![RoleAssignment {
        role: RoleName::fallback(),
        generation: Generation(generation),
        indices: (0..count).collect(),
        spec: Default::default(),
        next: None,
    }];
    Assignment {
        term: Some(Term(term)),
        whole: true,
        services: [(name(0, 1).service_key(), roles)].into_iter().collect(),
        ..Assignment::nothing(Revision(revision))
    }
}

/// The same cases each time; many more of them in a long round.
fn config() -> ProptestConfig {
    let is_long = std::env::var_os("DHOW_TEST_LONG").is_some();
    ProptestConfig {
        cases: if is_long { 20_000 } else { 300 },
        rng_seed: RngSeed::Fixed(3669),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// No event is lost, invented or told before it is on disk; no order is acted on twice over a newer one; and once
    /// nothing fails any more, both sides agree.
    #[test]
    fn whatever_fails_both_sides_agree_in_the_end(ops in ops()) {
        let mut world = World::new();
        for op in &ops {
            world.perform(op);
        }
        world.heal();
    }
}

#[test]
fn an_order_is_acted_on_once_it_is_on_disk_and_not_before() {
    let mut core = core(&Account::default().of_life(1), &Highest::default(), 0);
    core.take_up(&[], 0);
    let known = ReportAnswer::Durable {
        seq: 0,
        inventory_wanted: false,
        open: Vec::new(),
    };
    assert!(matches!(
        core.take(CoreInput::Reported(Ok(known)), 0)[..],
        [CoreAction::Append(_), CoreAction::Ask { last: None, .. }]
    ));
    let told = core.take(CoreInput::Told(Ok(order(2, 5, 1, 1))), 0);
    let place = Highest {
        cluster: None,
        term: 2,
        revision: 5,
    };
    assert_eq!(told, [CoreAction::PutHighest(place.clone())]);
    // A full disk: it is asked for again, after a pause.
    let refused = core.take(CoreInput::HighestPut { is_on_disk: false }, 0);
    assert!(
        matches!(refused[..], [CoreAction::Ask { pause, last: None }] if !pause.is_zero()),
        "{refused:?}"
    );
    core.take(CoreInput::Told(Ok(order(2, 5, 1, 1))), 0);
    let acted = core.take(CoreInput::HighestPut { is_on_disk: true }, 0);
    assert!(matches!(
        acted[..],
        [
            CoreAction::Begin(_),
            CoreAction::Ask {
                last: Some(Revision(5)),
                ..
            }
        ]
    ));
    assert_eq!(*core.highest(), place);
    let older = core.take(CoreInput::Told(Ok(order(1, 9, 0, 1))), 0);
    assert!(
        matches!(
            older[..],
            [CoreAction::Ask {
                last: Some(Revision(5)),
                ..
            }]
        ),
        "{older:?}"
    );
}

#[test]
fn what_ends_is_waited_for_and_what_runs_is_let_go_of() {
    let mut world = World::new();
    world.report(Fate::Answered);
    world.report(Fate::Answered);
    world.perform(&Op::Order {
        term: 1,
        revision: 1,
        replicas: 2,
        generation: 1,
    });
    let ended = Machine {
        state: dhow_core::replica::ReplicaState::Exited,
        ..Machine::default()
    };
    world.tell(CoreInput::Happened(vec![Happening::Event {
        name: name(1, 1),
        event: ReplicaEvent::RanSteadily,
        machine: ended,
    }]));
    world.perform(&Op::Order {
        term: 1,
        revision: 2,
        replicas: 1,
        generation: 1,
    });
    assert_eq!(world.core.end(), [name(0, 1)]);
    let actions = world
        .core
        .take(CoreInput::Happened(vec![Happening::Gone { name: name(1, 1) }]), 0);
    assert!(
        matches!(
            &actions[..],
            [
                CoreAction::Append(_),
                CoreAction::LetGo { .. },
                CoreAction::CloseService(_)
            ]
        ),
        "{actions:?}"
    );
}

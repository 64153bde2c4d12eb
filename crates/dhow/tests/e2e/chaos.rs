//! Writers and readers on random servers while servers are killed, stopped, cut off and paused: what was acknowledged
//! stays, nothing happens twice, and what everybody saw can be explained by one order.
//!
//! Each deployment is a register, and the revision that a deploy is answered with is the value that it wrote: so a
//! lost write is a value that no later reader may miss, and one that was applied twice leaves a revision that nobody
//! was given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::history::{Call, Op, is_linearizable};
use crate::support::{Cluster, Network, Seed, Service, Where, ask_with, deployment, rounds, skip, until};

const REGISTERS: usize = 3;
const CLIENTS: usize = 6;
/// A caller that has no answer by then asks another server.
const PATIENCE: Duration = Duration::from_secs(4);
/// No fault lasts nearly as long: a write that nobody took by then is lost.
const GIVEN_UP: Duration = Duration::from_secs(90);
/// The search goes as deep as there are operations on a register.
const SEARCH_STACK_BYTES: usize = 512 << 20;

/// What the clients share.
struct World {
    sockets: Vec<PathBuf>,
    mark: PathBuf,
    clock: AtomicU64,
    is_over: AtomicBool,
}

/// One operation, and the unique text that a write carried.
struct Seen {
    register: usize,
    call: Call,
    text: Option<String>,
}

impl World {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// The deployment file of a write; nothing of it ever runs.
    fn file(&self, register: usize, text: &str) -> String {
        let service = Service::sleeper().manual().env("VALUE", text);
        deployment(&self.mark, &format!("register-{register}"), &[("it", service)])
    }

    /// Through whichever server, with the same key each time, until somebody knows the outcome.
    fn write(&self, seed: &mut Seed, register: usize, text: &str) -> Value {
        let file = self.file(register, text);
        let headers = [("Content-Type", "application/json"), ("Idempotency-Key", text)];
        let deadline = Instant::now() + GIVEN_UP;
        loop {
            assert!(Instant::now() < deadline, "{text}: nobody takes it");
            let socket = seed.one_of(&self.sockets);
            let path = "/api/v1/deployments";
            let reply = ask_with(socket, "POST", path, &headers, file.as_bytes(), PATIENCE);
            match reply {
                Ok(reply) if reply.status == 200 => return reply.json(),
                // Nobody else writes here, so that nothing may be refused for good.
                Ok(reply) if reply.status < 500 => panic!("{text}: {} {}", reply.status, reply.json()),
                Ok(_) | Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// The revision that one server knows; none where it did not say.
    fn read(&self, seed: &mut Seed, register: usize) -> Option<Option<u64>> {
        let socket = seed.one_of(&self.sockets);
        let path = format!("/api/v1/deployments/register-{register}");
        let reply = ask_with(socket, "GET", &path, &[], b"", PATIENCE).ok()?;
        match reply.status {
            200 => Some(reply.json()["revision"].as_u64()),
            404 => Some(None),
            status if status < 500 => panic!("{status} {}", reply.json()),
            _ => None,
        }
    }

    fn client(&self, mut seed: Seed, number: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let register = seed.below(REGISTERS);
            let began = self.now();
            let (op, text) = match seed.below(2) {
                0 => {
                    let text = format!("client-{number}-{}", seen.len());
                    let done = self.write(&mut seed, register, &text);
                    assert_eq!(done["changed"], true, "{text}: {done}");
                    (Op::Write(done["revision"].as_u64().unwrap()), Some(text))
                }
                _ => match self.read(&mut seed, register) {
                    Some(read) => (Op::Read(read), None),
                    None => continue,
                },
            };
            let ended = Some(self.now());
            let call = Call { op, began, ended };
            seen.push(Seen { register, call, text });
            thread::sleep(Duration::from_millis(5 + u64::try_from(seed.below(40)).unwrap()));
        }
        seen
    }
}

/// What can happen to a server.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Term,
    Cut,
    Pause,
}

const FAULTS: [Fault; 4] = [Fault::Kill, Fault::Term, Fault::Cut, Fault::Pause];

fn trouble(cluster: &mut Cluster, seed: &mut Seed, round: u32) {
    let leader = cluster.until_leader();
    let victim = match seed.below(2) {
        0 => leader,
        _ => seed.below(cluster.nodes.len()),
    };
    let fault = *seed.one_of(&FAULTS);
    // Mostly shorter than what it takes to be given up, and sometimes longer.
    let lasting_ms = match seed.below(8) {
        0 => 12_000,
        _ => 200 + u64::try_from(seed.below(3_000)).unwrap(),
    };
    eprintln!("round {round}: {fault:?} on {victim} (leader {leader}) for {lasting_ms} ms");
    let lasting = Duration::from_millis(lasting_ms);
    match fault {
        Fault::Kill => {
            cluster.nodes[victim].kill9();
            thread::sleep(lasting);
            cluster.nodes[victim].restart();
        }
        Fault::Term => {
            assert_eq!(cluster.nodes[victim].term().code(), Some(0));
            thread::sleep(lasting);
            cluster.nodes[victim].restart();
        }
        Fault::Cut => {
            cluster.network().cut(victim);
            thread::sleep(lasting);
            cluster.network().heal(victim);
        }
        Fault::Pause => {
            cluster.nodes[victim].pause();
            thread::sleep(lasting);
            cluster.nodes[victim].resume();
        }
    }
    thread::sleep(Duration::from_millis(
        200 + u64::try_from(seed.below(1_500)).unwrap(),
    ));
}

/// Every revision was given to exactly one write, and the histories can be explained.
fn judge(seen: &[Seen], world: &World, cluster: &Cluster) {
    for register in 0..REGISTERS {
        let of_register: Vec<&Seen> = seen.iter().filter(|seen| seen.register == register).collect();
        let mut written = BTreeMap::new();
        for seen in &of_register {
            if let (Op::Write(revision), Some(text)) = (seen.call.op, &seen.text) {
                let other = written.insert(revision, text);
                assert_eq!(other, None, "revision {revision} was given to {text} too");
            }
        }
        let revisions: Vec<u64> = written.keys().copied().collect();
        let expected: Vec<u64> = (1..=u64::try_from(revisions.len()).unwrap()).collect();
        assert_eq!(
            revisions, expected,
            "register {register}: a write was lost or done twice"
        );
        let calls: Vec<Call> = of_register.iter().map(|seen| seen.call).collect();
        eprintln!(
            "register {register}: {} writes, {} calls",
            written.len(),
            calls.len()
        );
        assert!(is_linearizable(&calls), "register {register}: {calls:?}");
        // What it holds is what the last one wrote, not only its number.
        if let Some((revision, text)) = written.last_key_value() {
            let again = cluster.nodes[0]
                .ask(
                    "POST",
                    "/api/v1/deployments",
                    "application/json",
                    world.file(register, text).as_bytes(),
                )
                .unwrap()
                .json();
            assert_eq!(again["changed"], false, "{again}");
            assert_eq!(again["revision"], *revision, "{again}");
        }
    }
}

/// All servers come to the same state.
fn agree(cluster: &Cluster) {
    until("all servers have the same state", || {
        let told = cluster.nodes.iter().map(|node| {
            let status = node.get("/api/v1/cluster?state_hash=true").unwrap().json();
            (status["revision"].to_string(), status["state_hash"].to_string())
        });
        let told: Vec<_> = told.collect();
        assert!(told.iter().all(|(_, hash)| hash.len() > 10), "{told:?}");
        let (revisions, states): (BTreeSet<_>, BTreeSet<_>) =
            (told.iter().map(|told| &told.0).collect(), told.iter().collect());
        assert!(
            revisions.len() > 1 || states.len() == 1,
            "the same revision, and another state: {told:?}"
        );
        (states.len() == 1).then_some(())
    });
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_happens_twice() {
    if let Some(why) = Network::obstacle() {
        return skip("nothing_acknowledged_is_lost_and_nothing_happens_twice", &why);
    }
    let mut seed = Seed::new("chaos");
    let mut cluster = Cluster::raft("chaos", 3, Where::Namespaces);
    let calm = Service::sleeper().replicas(3);
    cluster.nodes[0].deploy("calm", &[("it", calm)]).ends_with(0);
    let world = World {
        sockets: cluster.nodes.iter().map(|node| node.socket()).collect(),
        mark: cluster.nodes[0].mark.clone(),
        clock: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let seen: Vec<Seen> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (own, world) = (seed.fork(), &world);
                scope.spawn(move || world.client(own, number))
            })
            .collect();
        // Where a round fails, the clients are not to write for ever.
        let over = EndOnDrop(&world.is_over);
        for round in 0..rounds(6, 200) {
            trouble(&mut cluster, &mut seed, round);
        }
        cluster.until_complete();
        drop(over);
        clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect()
    });
    let judging = thread::Builder::new().stack_size(SEARCH_STACK_BYTES);
    thread::scope(|scope| {
        let judged = judging.spawn_scoped(scope, || judge(&seen, &world, &cluster));
        judged.unwrap().join().unwrap();
    });
    agree(&cluster);
    until("each replica runs once", || {
        let running: usize = (0..3).map(|node| cluster.workloads(node)).sum();
        (running == 3).then_some(())
    });
    cluster.finish();
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

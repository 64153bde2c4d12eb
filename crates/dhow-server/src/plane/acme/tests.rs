//! Orders by a clock that is moved by hand, from an authority that does as it is told.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dhow_core::acme::{self, OrderBudget, Setback};
use dhow_core::command::DeploymentCommand;
use dhow_core::plan::Plan;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::State;
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::*;
use crate::clock::FakeClock;
use crate::plane::certificate_look::CertificateLook;
use crate::plane::runtime::{RuntimeHandle, RuntimeOptions, spawn_with};

/// 2027-01-15 08:00:00 UTC.
const EIGHT: i64 = 1_800_000_000;
const DAY_SECS: i64 = 86_400;

/// An authority whose certificates are good for ninety days.
struct Made {
    clock: FakeClock,
    directory: &'static str,
    /// Orders that were begun.
    orders: Mutex<Vec<String>>,
    accounts: AtomicUsize,
    /// What the next order for a host meets with.
    refused: Mutex<BTreeMap<String, OrderError>>,
    /// Orders wait for it.
    gate: Arc<Semaphore>,
    under_way: Arc<AtomicUsize>,
}

impl Made {
    fn new(clock: FakeClock) -> Self {
        Self {
            clock,
            directory: "https://ca.test/dir",
            orders: Mutex::default(),
            accounts: AtomicUsize::new(0),
            refused: Mutex::default(),
            gate: Arc::new(Semaphore::new(1_000)),
            under_way: Arc::default(),
        }
    }

    fn refuse(&self, host: &str, error: OrderError) {
        self.refused.lock().unwrap().insert(host.to_owned(), error);
    }

    fn ordered(&self) -> Vec<String> {
        self.orders.lock().unwrap().clone()
    }
}

impl Authority for Made {
    fn directory(&self) -> &str {
        self.directory
    }

    fn register(&self) -> BoxFuture<'static, Result<KeptAccount, OrderError>> {
        let number = self.accounts.fetch_add(1, Ordering::SeqCst);
        let refused = self.refused.lock().unwrap().remove("account");
        let account = KeptAccount {
            directory: self.directory.to_owned(),
            thumbprint: format!("{number}").repeat(43),
            credentials: "PRIVATE".into(),
        };
        Box::pin(async move { refused.map_or(Ok(account), Err) })
    }

    fn order(
        &self,
        account: KeptAccount,
        host: String,
    ) -> BoxFuture<'static, Result<Zeroizing<String>, OrderError>> {
        assert_eq!(account.credentials, "PRIVATE");
        self.orders.lock().unwrap().push(host.clone());
        let refused = self.refused.lock().unwrap().remove(&host);
        let now = self.clock.wall_unix_ms() / 1_000;
        let (gate, under_way) = (Arc::clone(&self.gate), Arc::clone(&self.under_way));
        Box::pin(async move {
            under_way.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.unwrap().forget();
            under_way.fetch_sub(1, Ordering::SeqCst);
            refused.map_or_else(|| Ok(certificate(&host, now)), Err)
        })
    }
}

fn certificate(host: &str, now_unix_secs: i64) -> Zeroizing<String> {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new([host.to_owned()]).unwrap();
    let at = |secs: i64| rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(secs as u64);
    params.not_before = at(now_unix_secs);
    params.not_after = at(now_unix_secs + 90 * DAY_SECS);
    let chain = params.self_signed(&key).unwrap().pem();
    Zeroizing::new(format!("{chain}{}", key.serialize_pem()))
}

struct World {
    clock: FakeClock,
    handle: RuntimeHandle,
    secrets: Arc<SecretBox>,
    authority: Arc<Made>,
    cancel: CancellationToken,
    orders: CancellationToken,
    _dir: TempDir,
}

impl World {
    async fn new() -> Self {
        let (cancel, clock) = (CancellationToken::new(), FakeClock::new(EIGHT * 1_000));
        let options = RuntimeOptions {
            planner: Arc::new(|_, _, _| Plan::default()),
            ..RuntimeOptions::default()
        };
        let state = State {
            feature_level: State::FEATURE_LEVEL,
            ..State::default()
        };
        // The runtime has a clock of its own, so that only the orders sleep on this one.
        let still = Arc::new(FakeClock::new(EIGHT * 1_000));
        let handle = spawn_with(cancel.clone(), state, still, options);
        let mut leads = handle.view().leaderships();
        leads.wait_for(|leads| leads.is_here).await.unwrap();
        let dir = TempDir::new().unwrap();
        let mut world = Self {
            authority: Arc::new(Made::new(clock.clone())),
            clock,
            handle,
            secrets: Arc::new(SecretBox::open(dir.path()).unwrap()),
            cancel,
            orders: CancellationToken::new(),
            _dir: dir,
        };
        world.begin().await;
        world
    }

    /// The task of a new leader.
    async fn begin(&mut self) {
        self.orders.cancel();
        self.orders = self.cancel.child_token();
        let orders = CertificateOrders {
            view: self.handle.view(),
            input: self.handle.input(),
            secrets: Arc::clone(&self.secrets),
            clock: Arc::new(self.clock.clone()),
            authority: Arc::clone(&self.authority) as _,
            random: || 256,
        };
        let begun = self.clock.sleeps_begun();
        tokio::spawn(orders.run(self.orders.clone()));
        self.clock.wait_for_sleeps_begun(begun + 1).await;
    }

    /// Deploys a service with an endpoint for each host.
    async fn deploy(&self, hosts: &[&str]) {
        let endpoints = hosts.iter().enumerate().map(|(place, host)| {
            format!(
                r#"{{"name":"e{place}","protocol":"http","port":{},"expose":"public","host":"{host}","tls":{{"secret":"acme/cert/{host}"}}}}"#,
                8_000 + place
            )
        });
        let endpoints: Vec<String> = endpoints.collect();
        let text = format!(
            r#"{{"version":"v1","deployment":"shop","services":{{"web":{{"image":"w:1","endpoints":[{}]}}}}}}"#,
            endpoints.join(",")
        );
        let command = DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_str::<DeploymentSpec>(&text).unwrap()),
            author: "test".into(),
            wall_unix_secs: EIGHT,
            force: false,
        };
        let input = self.handle.input();
        input.write(Command::Deployment(command), None).await.unwrap();
    }

    /// Lets seconds pass, one after the other.
    async fn pass(&self, secs: u32) {
        for _ in 0..secs {
            let begun = self.clock.sleeps_begun();
            self.clock.advance(TICK_MS);
            self.clock.wait_for_sleeps_begun(begun + 1).await;
        }
    }

    /// Lets time pass until the state is so.
    async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        for _ in 0..100 {
            if is_so(&self.handle.view().state()) {
                return;
            }
            self.pass(1).await;
        }
        panic!("waited in vain: {what}");
    }

    fn version(&self, secret: &str) -> u64 {
        let state = self.handle.view().state();
        state.secrets.get(secret).map_or(0, |secret| secret.version)
    }

    fn notes(&self) -> Vec<String> {
        let state = self.handle.view().state();
        let look = CertificateLook {
            secrets: &self.secrets,
            state: &state,
            now_unix_secs: self.clock.wall_unix_ms() / 1_000,
            orders: true,
        };
        let shop = dhow_core::ids::DeploymentName::new("shop").unwrap();
        look.notes(&state.deployment(&shop).unwrap().current().unwrap().spec, None)
    }
}

const SHOP: &str = "acme/cert/shop.test";

fn has(name: &'static str) -> impl Fn(&State) -> bool {
    move |state| state.secrets.contains_key(name)
}

#[tokio::test]
async fn a_certificate_is_ordered_kept_and_renewed_in_time() {
    let world = World::new().await;
    world.pass(3).await;
    assert_eq!(
        world.authority.accounts.load(Ordering::SeqCst),
        0,
        "nobody wants one"
    );
    world.deploy(&["shop.test"]).await;
    assert!(
        world.notes()[0].contains("without TLS, at port 80"),
        "{:?}",
        world.notes()
    );
    world.until("it is ordered", has(SHOP)).await;
    assert_eq!(world.notes(), Vec::<String>::new());
    let state = world.handle.view().state();
    let told = world
        .secrets
        .unseal(acme::THUMBPRINT, &state.secrets[acme::THUMBPRINT].sealed);
    assert_eq!(told.unwrap(), b"0".repeat(43));
    let sealed = format!("{:?}", state.secrets);
    assert!(!sealed.contains("PRIVATE"));
    world.clock.step_wall(59 * DAY_SECS * 1_000);
    world.pass(5).await;
    assert_eq!(world.version(SHOP), 1, "it is good for another month");
    world.clock.step_wall(DAY_SECS * 1_000);
    world
        .until("it is renewed", |state| state.secrets[SHOP].version == 2)
        .await;
    assert_eq!(world.authority.accounts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_failure_is_told_and_tried_again_later_and_others_are_not_kept_waiting() {
    let world = World::new().await;
    let failed = acme::failure_of("shop.test");
    world
        .authority
        .refuse("shop.test", OrderError::new("no such\nhost (dns)"));
    world.deploy(&["shop.test", "other.test"]).await;
    world
        .until("the other is ordered", has("acme/cert/other.test"))
        .await;
    world
        .until("the failure is kept", has("acme/failed/shop.test"))
        .await;
    let [note] = &world.notes()[..] else {
        panic!("{:?}", world.notes())
    };
    for part in [
        "web/e0",
        "failed once",
        "no such host (dns)",
        "tried again at 2027-01-15 08:02:",
    ] {
        assert!(note.contains(part), "{part} in {note}");
    }
    world.pass(60).await;
    let tried = |host: &str| {
        world
            .authority
            .ordered()
            .iter()
            .filter(|tried| *tried == host)
            .count()
    };
    assert_eq!((tried("shop.test"), tried("other.test")), (1, 1));
    world.clock.step_wall(120_000);
    world.until("it is tried again", has(SHOP)).await;
    world
        .until("the failure is forgotten", |state| {
            !state.secrets.contains_key(failed.as_str())
        })
        .await;
    assert_eq!(world.notes(), Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_used_takes_no_certificates_place() {
    let world = World::new().await;
    world.deploy(&["shop.test"]).await;
    world.until("it is ordered", has(SHOP)).await;
    // The authority's clock is off by a year: what it gives is not good yet.
    let brought = certificate("shop.test", EIGHT + 365 * DAY_SECS);
    let judged = turn::judge_certificate("shop.test", &brought, EIGHT);
    assert!(judged.unwrap_err().words.contains("not valid yet"));
    let other = certificate("other.test", EIGHT);
    let judged = turn::judge_certificate("shop.test", &other, EIGHT);
    assert!(judged.unwrap_err().words.contains("is for other.test"));
}

#[tokio::test]
async fn few_are_under_way_at_once_and_each_host_once() {
    let world = World::new().await;
    let hosts: Vec<String> = (0..10).map(|number| format!("h{number}.test")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    world.authority.gate.forget_permits(1_000);
    world.deploy(&hosts).await;
    world.pass(20).await;
    assert_eq!(
        world.authority.under_way.load(Ordering::SeqCst),
        OrderBudget::AT_ONCE_MAX
    );
    world.authority.gate.add_permits(1_000);
    let all = |state: &State| {
        state
            .secrets
            .keys()
            .filter(|name| acme::host_of(name).is_some())
            .count()
            == 10
    };
    world.until("all are ordered", all).await;
    assert_eq!(world.authority.ordered().len(), 10);
}

#[tokio::test]
async fn another_leader_goes_on_and_begins_anew_what_was_under_way() {
    let mut world = World::new().await;
    world.deploy(&["shop.test", "slow.test"]).await;
    world.authority.gate.forget_permits(999);
    world.until("one is ordered", has(SHOP)).await;
    world.begin().await;
    world.authority.gate.add_permits(999);
    world.until("the other is too", has("acme/cert/slow.test")).await;
    let ordered = world.authority.ordered();
    assert_eq!(ordered.iter().filter(|host| *host == "shop.test").count(), 1);
    assert_eq!(world.authority.accounts.load(Ordering::SeqCst), 1);
    assert_eq!(world.version(SHOP), 1);
}

/// However often the leader changes, or the daemon is started anew, the account asks no more often than it may.
#[tokio::test]
async fn another_leader_has_no_more_orders_than_are_left() {
    let mut world = World::new().await;
    let hosts: Vec<String> = (0..100).map(|number| format!("h{number}.test")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    world.deploy(&hosts).await;
    let begin = world.clock.wall_unix_ms();
    // Each leader is there for as long as it takes to begin some.
    for _ in 0..8 {
        world.pass(20).await;
        world.begin().await;
    }
    world.pass(20).await;
    let secs = (world.clock.wall_unix_ms() - begin) / 1_000;
    let most = usize::try_from(40 + secs / 45).unwrap();
    let ordered = world.authority.ordered().len();
    assert!((40..=most).contains(&ordered), "{ordered} in {secs} s");
    // A clock that is set forward is no reason to stop.
    world.clock.step_wall(90_000);
    world.pass(1).await;
    assert!(world.authority.ordered().len() > ordered);
}

#[tokio::test]
async fn what_ends_is_renewed_before_anything_new_is_ordered() {
    let mut world = World::new().await;
    world.deploy(&["shop.test"]).await;
    world.until("it is ordered", has(SHOP)).await;
    world.authority.gate.forget_permits(1_000);
    world
        .deploy(&["a.test", "b.test", "c.test", "d.test", "shop.test"])
        .await;
    world.clock.step_wall(60 * DAY_SECS * 1_000);
    // To a new leader all of them are due at the same time.
    world.begin().await;
    world.pass(10).await;
    let ordered = world.authority.ordered();
    assert_eq!(ordered[1..], ["shop.test", "a.test", "b.test", "c.test"]);
}

#[tokio::test]
async fn an_account_that_is_refused_or_forgotten_is_made_again() {
    let world = World::new().await;
    let limited = OrderError {
        setback: Setback::Limited,
        ..OrderError::new("too many accounts")
    };
    world.authority.refuse("account", limited);
    world.deploy(&["shop.test"]).await;
    world
        .until("the failure is kept", has(acme::ACCOUNT_FAILURE))
        .await;
    assert!(
        world.notes()[0].contains("too many accounts"),
        "{:?}",
        world.notes()
    );
    world.pass(10).await;
    assert_eq!(world.authority.accounts.load(Ordering::SeqCst), 1);
    world.clock.step_wall(3_600_000);
    let gone = OrderError {
        is_account_gone: true,
        ..OrderError::new("who are you?")
    };
    world.authority.refuse("shop.test", gone);
    world.until("the account is made", has(acme::ACCOUNT)).await;
    world
        .until("it is forgotten and made again", |state| {
            state
                .secrets
                .get(acme::THUMBPRINT)
                .is_some_and(|told| told.version == 2)
        })
        .await;
    world.clock.step_wall(600_000);
    world.until("then it is ordered", has(SHOP)).await;
    assert_eq!(world.authority.accounts.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn what_nobody_wants_goes_when_it_is_over() {
    let world = World::new().await;
    world.authority.refuse("bad.test", OrderError::new("no"));
    world.deploy(&["shop.test", "bad.test"]).await;
    world.until("one is ordered", has(SHOP)).await;
    world.until("one has failed", has("acme/failed/bad.test")).await;
    world.deploy(&["else.test"]).await;
    let is_gone = |state: &State| !state.secrets.contains_key("acme/failed/bad.test");
    world.until("the failure goes", is_gone).await;
    world.pass(5).await;
    assert_eq!(world.version(SHOP), 1, "it may be wanted again");
    world.clock.step_wall(91 * DAY_SECS * 1_000);
    world
        .until("then it goes", |state| !state.secrets.contains_key(SHOP))
        .await;
}

//! What clients see while replicas are killed and proxies are replaced. Counted, not timed: each step waits
//! for a number of requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;

use crate::backend::BackendProcess;
use crate::load::{Client, Load};
use crate::test_host::{TestHost, free_port, table};

crate::tests! {
    a_new_build_takes_over_without_a_failed_request,
    killed_replicas_cost_no_get_and_few_posts,
    a_drained_replica_can_be_stopped,
}

const CLIENTS: usize = 8;
/// Requests between two steps, and how many steps there are.
const STEP_REQUESTS: u64 = 300;

fn rounds() -> u32 {
    if std::env::var_os("DHOW_TEST_LONG").is_some() {
        50
    } else {
        3
    }
}

async fn a_new_build_takes_over_without_a_failed_request(host: Arc<TestHost>) {
    let backends = [BackendProcess::anywhere(), BackendProcess::anywhere()];
    let addr = free_port();
    let table = table(1, addr, &[("a", backends[0].addr), ("b", backends[1].addr)]);
    let first = host.open("0").await;
    first.apply(table.clone()).await.unwrap();
    let gets = Load::start(addr, &Method::GET, "/", CLIENTS);
    let posts = Load::start(addr, &Method::POST, "/slow", CLIENTS);
    gets.further(STEP_REQUESTS).await;
    let mut pids = vec![first.pid().await.unwrap()];
    // As a daemon that ends: its client is gone, its proxy stays.
    drop(first);
    for build in 1..=rounds() {
        let proxy = host.open(&build.to_string()).await;
        pids.push(proxy.pid().await.unwrap());
        let applied = proxy.apply(table.clone()).await.unwrap();
        assert_eq!(applied.listeners, vec![(addr, Ok(()))]);
        gets.further(STEP_REQUESTS).await;
    }
    let done = gets.done.load(std::sync::atomic::Ordering::Relaxed);
    assert!(done >= STEP_REQUESTS);
    assert_eq!(gets.finish().await, BTreeMap::new());
    assert_eq!(posts.finish().await, BTreeMap::new());
    let count = pids.len();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), count);
}

async fn killed_replicas_cost_no_get_and_few_posts(host: Arc<TestHost>) {
    let mut backends = [
        BackendProcess::anywhere(),
        BackendProcess::anywhere(),
        BackendProcess::anywhere(),
    ];
    let addr = free_port();
    let [a, b, c] = [backends[0].addr, backends[1].addr, backends[2].addr];
    let proxy = host.open("1").await;
    proxy
        .apply(table(1, addr, &[("a", a), ("b", b), ("c", c)]))
        .await
        .unwrap();
    let gets = Load::start(addr, &Method::GET, "/slow", CLIENTS);
    let posts = Load::start(addr, &Method::POST, "/slow", CLIENTS);
    let rounds = rounds();
    for round in 0..rounds {
        gets.further(STEP_REQUESTS).await;
        let killed = &mut backends[usize::try_from(round % 3).unwrap()];
        let at = killed.addr;
        killed.kill();
        gets.further(STEP_REQUESTS).await;
        *killed = BackendProcess::start(at);
    }
    gets.further(STEP_REQUESTS).await;
    assert_eq!(gets.finish().await, BTreeMap::new());
    // Those that were in flight on the killed replica: at most one for each client and kill.
    let lost: u64 = posts.finish().await.values().sum();
    assert!(
        lost <= u64::from(rounds) * u64::try_from(CLIENTS).unwrap(),
        "{lost} posts were lost"
    );
}

async fn a_drained_replica_can_be_stopped(host: Arc<TestHost>) {
    let mut backends = [BackendProcess::anywhere(), BackendProcess::anywhere()];
    let addr = free_port();
    let proxy = host.open("1").await;
    let mut table = table(1, addr, &[("a", backends[0].addr), ("b", backends[1].addr)]);
    proxy.apply(table.clone()).await.unwrap();
    let posts = Load::start(addr, &Method::POST, "/slow", CLIENTS);
    posts.further(STEP_REQUESTS).await;
    table.listeners[0].routes[0].backends[0].draining = true;
    proxy.apply(table.clone()).await.unwrap();
    let ids = vec!["a".to_owned()];
    assert_eq!(
        proxy
            .wait_drained(ids.clone(), Duration::from_secs(60))
            .await
            .unwrap(),
        ids
    );
    backends[0].kill();
    posts.further(STEP_REQUESTS).await;
    assert_eq!(posts.finish().await, BTreeMap::new());
    let answer = Client::new(addr).get("/").await.unwrap();
    assert_eq!(answer, backends[1].pid().to_string());
}

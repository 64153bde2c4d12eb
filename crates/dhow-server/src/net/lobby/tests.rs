//! Who gets in, who waits and who goes.

use std::net::SocketAddr;
use std::pin::pin;

use futures_util::poll;

use super::*;

const LIMITS: LobbyLimits = LobbyLimits {
    guests: 8,
    per_address: 6,
    per_known: 2,
    callers: usize::MAX,
};

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 4_000))
}

async fn fill(lobby: &Lobby, addr: SocketAddr, count: usize) -> Vec<Visit> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(lobby.enter(addr).await.expect("there is room"));
    }
    all
}

async fn is_over(visit: &Visit) -> bool {
    poll!(pin!(visit.over())).is_ready()
}

async fn is_served(visit: &Visit) -> bool {
    poll!(pin!(visit.turn())).is_ready()
}

#[tokio::test(start_paused = true)]
async fn guests_that_say_nothing_make_room_for_newcomers() {
    let lobby = Lobby::new(LIMITS);
    let silent = fill(&lobby, at(1), LIMITS.guests).await;
    assert!(lobby.enter(at(1)).await.is_none(), "all came just now");
    // Another address does not have to wait for anybody.
    let other = lobby.enter(at(2)).await.unwrap();
    assert!(is_served(&other).await && !is_over(&other).await);
    assert!(
        is_over(&silent[LIMITS.guests - 1]).await,
        "the last that waits goes first"
    );
    tokio::time::advance(PATIENCE).await;
    let newcomer = lobby.enter(at(1)).await.unwrap();
    assert!(is_over(&silent[0]).await, "the oldest has had its time");
    assert!(!is_over(&newcomer).await && !is_over(&other).await);
    drop((silent, newcomer, other));
    assert_eq!(lobby.rooms().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn of_one_address_so_many_are_served_and_the_rest_queue() {
    let lobby = Lobby::new(LIMITS);
    let mut served = fill(&lobby, at(1), LIMITS.per_address).await;
    let waiting = fill(&lobby, at(1), 2).await;
    for visit in &served {
        assert!(is_served(visit).await);
    }
    let (mut first, mut second) = (pin!(waiting[0].turn()), pin!(waiting[1].turn()));
    assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
    drop(served.pop());
    assert!(poll!(first.as_mut()).is_ready(), "its turn has come");
    assert!(poll!(second.as_mut()).is_pending());
    // Where nobody leaves, the one that has had its place for longest goes.
    second.await;
    assert!(is_over(&served[0]).await);
    assert!(!is_over(&served[1]).await);
}

#[tokio::test(start_paused = true)]
async fn who_proves_itself_leaves_the_account_and_stays() {
    let lobby = Lobby::new(LIMITS);
    let name: Arc<str> = "worker".into();
    let mut known = Vec::new();
    // Ten times as many as there is room for guests, of one address.
    for number in 0..10 * LIMITS.guests {
        let visit = lobby.enter(at(1)).await.unwrap();
        visit.turn().await;
        visit.prove(Some(&format!("worker {number}").into()));
        known.push(visit);
    }
    assert_eq!((lobby.rooms().count(), lobby.known()), (0, 10 * LIMITS.guests));
    tokio::time::advance(STAY_MAX * 2).await;
    for visit in &known {
        assert!(!is_over(visit).await);
    }
    // One that makes more than its share loses its oldest, and nobody else anything.
    let mut own = fill(&lobby, at(2), LIMITS.per_known + 1).await;
    own.iter().for_each(|visit| visit.prove(Some(&name)));
    assert!(is_over(&own[0]).await && !is_over(&own[1]).await);
    assert!(!is_over(&known[0]).await);
    own.iter().for_each(|visit| visit.prove(Some(&name)));
    own.clear();
    known.clear();
    assert_eq!(lobby.known(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_guest_goes_in_the_end_also_where_nobody_wants_its_place() {
    let lobby = Lobby::new(LIMITS);
    let visit = lobby.enter(at(1)).await.unwrap();
    tokio::time::advance(STAY_MAX - Duration::from_millis(1)).await;
    assert!(!is_over(&visit).await);
    visit.over().await;
}

/// Of an address whose crowds hardly ever prove themselves nobody holds a place for long; workers that join are no crowd.
#[tokio::test(start_paused = true)]
async fn crowds_that_prove_nothing_have_little_time() {
    let limits = LobbyLimits {
        guests: 400,
        per_address: 300,
        per_known: 2,
        callers: usize::MAX,
    };
    for is_proving in [false, true] {
        let lobby = Lobby::new(limits);
        let mut all = fill(&lobby, at(1), limits.guests).await;
        tokio::time::advance(PATIENCE).await;
        // Those that were served have had their time: as many newcomers take their places.
        let second = fill(&lobby, at(1), limits.per_address).await;
        if is_proving {
            second[..100].iter().for_each(|visit| visit.prove(None));
            all.extend(fill(&lobby, at(1), 100).await);
        }
        tokio::time::advance(PATIENCE_WITH_CROWDS).await;
        let next = lobby.enter(at(1)).await;
        assert_eq!(next.is_some(), !is_proving);
        drop((all, second));
    }
}

/// A rush of those who prove themselves is let in one after the other, and not sent away.
#[tokio::test(start_paused = true)]
async fn a_rush_waits_for_those_before_it() {
    let lobby = Lobby::new(LIMITS);
    let first = fill(&lobby, at(1), LIMITS.guests).await;
    first[0].prove(None);
    let next = lobby.enter(at(1)).await.unwrap();
    let mut later = pin!(lobby.enter(at(1)));
    assert!(poll!(later.as_mut()).is_pending(), "it waits");
    first[1].prove(None);
    assert!(later.await.is_some());
    drop(next);
}

#[test]
fn a_network_of_ipv6_is_one_address() {
    let account = |ip: &str| Account::of(ip.parse().unwrap());
    assert_eq!(
        account("2001:db8:1:2::1"),
        account("2001:db8:1:2:ffff:ffff:ffff:ffff")
    );
    assert_ne!(account("2001:db8:1:2::1"), account("2001:db8:1:3::1"));
    assert_eq!(account("::ffff:10.0.0.1"), account("10.0.0.1"));
    assert_ne!(account("10.0.0.1"), account("10.0.0.2"));
}

/// A process that is full takes a newcomer only in the place of a guest, and other ports have more room than the workers'.
#[tokio::test(start_paused = true)]
async fn callers_leave_files_for_others() {
    static CALLERS: AtomicUsize = AtomicUsize::new(0);
    let port = |callers| Lobby::among(LobbyLimits { callers, ..LIMITS }, &CALLERS);
    let (workers, api) = (port(4), port(5));
    let known = fill(&workers, at(1), 4).await;
    known.iter().for_each(|visit| visit.prove(None));
    assert!(
        workers.enter(at(1)).await.is_none(),
        "nobody is a guest whose place it could have"
    );
    let guest = api.enter(at(2)).await.unwrap();
    assert!(api.enter(at(2)).await.is_none(), "it came just now");
    tokio::time::advance(PATIENCE).await;
    let next = api.enter(at(2)).await.unwrap();
    assert!(is_over(&guest).await && !is_over(&next).await);
    drop((known, guest));
    assert!(workers.enter(at(1)).await.is_some(), "its files are free again");
}

//! When certificates are ordered, for which hosts, and what becomes of failures.

use super::*;
use crate::command::{Command, DeploymentCommand, Entry};
use crate::ids::Term;
use crate::step::step;
use crate::time::ClusterTime;
use std::sync::Arc;

const DAY: i64 = 86_400;
/// Begins when the tests do, and lasts 90 days.
const LIFE: Lifetime = Lifetime {
    not_before_unix_secs: 0,
    not_after_unix_secs: 90 * DAY,
};
/// Neither sooner nor later than the middle.
const NO_JITTER: u64 = 256;

fn failed(before: Option<&Failures>, life: Option<Lifetime>, now: i64, random: u64) -> Failures {
    Failures::after(before, (Setback::Failed, "no"), life, now, random)
}

#[test]
fn a_certificate_is_ordered_at_once_and_renewed_when_two_thirds_are_over() {
    assert!(is_due(None, None, 0));
    for (now, due) in [
        (0, false),
        (60 * DAY - 1, false),
        (60 * DAY, true),
        (91 * DAY, true),
    ] {
        assert_eq!(is_due(Some(LIFE), None, now), due, "{now}");
    }
    assert!(!LIFE.is_over(90 * DAY) && LIFE.is_over(90 * DAY + 1));
    // One without a life, or with one that ends before it begins, is due and nothing worse.
    let none = Lifetime {
        not_before_unix_secs: 5,
        not_after_unix_secs: i64::MIN,
    };
    assert!(is_due(Some(none), None, 5));
}

#[test]
fn failures_are_tried_again_later_each_time_and_not_for_ever_later() {
    let (mut now, mut last, mut waits) = (1_000, None, Vec::new());
    for _ in 0..9 {
        let failures = failed(last.as_ref(), None, now, NO_JITTER);
        assert!(!is_due(None, Some(&failures), failures.next_unix_secs - 1));
        assert!(is_due(None, Some(&failures), failures.next_unix_secs));
        waits.push(failures.next_unix_secs - now);
        now = failures.next_unix_secs;
        last = Some(failures);
    }
    assert_eq!(
        waits,
        [120, 360, 1_080, 3_240, 9_720, 29_160, 43_200, 43_200, 43_200]
    );
    assert_eq!(last.unwrap().count, 9);
    let many = Failures {
        count: u32::MAX,
        ..failed(None, None, 0, 0)
    };
    assert_eq!(failed(Some(&many), None, i64::MAX, u64::MAX).count, u32::MAX);
}

#[test]
fn a_host_fails_no_more_than_five_times_an_hour_whatever_chance_brings() {
    for random in 0..1_024 {
        let (mut now, mut last, mut attempts) = (0, None, 0);
        while now < 3_600 {
            attempts += 1;
            let failures = failed(last.as_ref(), None, now, random);
            now = failures.next_unix_secs;
            last = Some(failures);
        }
        assert!(attempts <= 5, "{attempts} with {random}");
    }
}

#[test]
fn a_failed_renewal_is_tried_often_enough_for_the_life_of_its_certificate() {
    let short = Lifetime {
        not_before_unix_secs: 0,
        not_after_unix_secs: DAY,
    };
    let many = Failures {
        count: 20,
        ..failed(None, None, 0, 0)
    };
    let wait = |life| failed(Some(&many), Some(life), 0, NO_JITTER).next_unix_secs;
    assert_eq!(wait(short), DAY / 12);
    assert_eq!(wait(LIFE), 43_200);
    // Before its time nothing is renewed, whatever has failed.
    let failures = failed(None, Some(LIFE), 0, NO_JITTER);
    assert!(!is_due(Some(LIFE), Some(&failures), DAY));
    assert!(is_due(Some(LIFE), Some(&failures), 61 * DAY));
}

#[test]
fn who_asks_too_often_waits_an_hour_and_a_clock_that_was_wrong_is_not_believed() {
    let limited = Failures::after(None, (Setback::Limited, "slow down"), None, 0, NO_JITTER);
    assert_eq!(limited.next_unix_secs, 3_600);
    let ahead = failed(None, None, 1_000_000, NO_JITTER);
    assert!(is_due(None, Some(&ahead), 0));
    let long = Failures::after(None, (Setback::Failed, &"x".repeat(10_000)), None, 0, 0);
    assert_eq!(long.words.len(), 600);
}

#[test]
fn few_orders_are_begun_at_once_and_no_more_than_an_account_may() {
    let mut budget = OrderBudget::new(0);
    assert!(!budget.take(OrderBudget::AT_ONCE_MAX, 0));
    let mut begun = 0;
    for second in 0..3 * 3_600 {
        while budget.take(0, second) {
            begun += 1;
        }
    }
    assert!((270..=300).contains(&begun), "{begun}");
    assert!(budget.take(0, i64::MAX));
    // A clock that goes back gives nothing, and counts from where it is.
    let mut again = budget;
    while again.take(0, i64::MAX) {}
    assert!(!again.take(0, 0) && !again.take(0, 44));
    assert!(again.take(0, 45) && !again.take(0, 45));
}

/// Whoever leads next is given what is left, in the words that State keeps.
#[test]
fn what_is_left_of_the_orders_is_kept_as_it_is() {
    let mut budget = OrderBudget::new(0);
    while budget.take(0, 7) {}
    let kept = serde_json::to_string(&budget).unwrap();
    assert_eq!(kept, r#"{"left":0,"filled_unix_secs":0}"#);
    let mut next: OrderBudget = serde_json::from_str(&kept).unwrap();
    assert!(!next.take(0, 44) && next.take(0, 45));
}

#[test]
fn each_host_of_a_public_endpoint_is_ordered_once() {
    let mut state = State {
        feature_level: State::FEATURE_LEVEL,
        ..State::default()
    };
    let deploy = |state: &mut State, services: &str| {
        let text = format!(r#"{{"version":"v1","deployment":"shop","services":{services}}}"#);
        let spec = Arc::new(serde_json::from_str(&text).unwrap());
        let command = DeploymentCommand::Deploy {
            spec,
            author: "ann".into(),
            wall_unix_secs: 0,
            force: false,
        };
        let entry = Entry {
            time: ClusterTime(state.time.0 + 1),
            term: Term(0),
            request: None,
            command: Command::Deployment(command),
        };
        step(state, &entry, &mut ()).unwrap();
    };
    let endpoint = |name: &str, port: u16, rest: &str| {
        format!(r#"{{"name":"{name}","protocol":"http","port":{port},"expose":"public",{rest}}}"#)
    };
    let shop = r#""host":"shop.test","tls":{"secret":"acme/cert/shop.test"}"#;
    let all = [
        endpoint("a", 1, shop),
        endpoint("b", 2, &format!(r#"{shop},"path":"/api""#)),
        endpoint("c", 3, r#""host":"own.test","tls":{"secret":"own-tls"}"#),
        endpoint("d", 4, r#""host":"plain.test""#),
    ];
    let services = format!(
        r#"{{"web":{{"command":["true"],"endpoints":[{}]}}}}"#,
        all.join(",")
    );
    deploy(&mut state, &services);
    assert_eq!(hosts(&state), BTreeSet::from(["shop.test".to_owned()]));
    deploy(&mut state, r#"{"other":{"command":["true"]}}"#);
    assert_eq!(hosts(&state), BTreeSet::new());
}

#[test]
fn names_and_tokens_are_told_from_those_of_people() {
    assert_eq!(certificate_of("Shop.TEST"), "acme/cert/shop.test");
    assert_eq!(host_of("acme/cert/shop.test"), Some("shop.test"));
    for own in [
        ACCOUNT,
        THUMBPRINT,
        ACCOUNT_FAILURE,
        BUDGET,
        &failure_of("a.test"),
        &certificate_of("a.test"),
    ] {
        assert!(is_own(own));
        assert!(crate::spec::check::secret_name_problem(own).is_some(), "{own}");
    }
    for host in ["account", "thumbprint"] {
        assert!(![ACCOUNT, THUMBPRINT].contains(&certificate_of(host).as_str()));
    }
    assert!(!is_own("acme") && host_of("acme/failed/x").is_none());
    assert_eq!(failed_host_of(&failure_of("a.test")), Some("a.test"));
    assert!(is_token(&"aZ0-_".repeat(5)));
    for wrong in [
        "",
        "short",
        &"a".repeat(257),
        "aaaaaaaaaaaaaaaaaaaaaaaaaaa/",
        "aaaaaaaaaaaaaaaaaaaaaaaaa.aaa",
    ] {
        assert!(!is_token(wrong), "{wrong}");
    }
    assert!(is_thumbprint(&"x".repeat(43)) && !is_thumbprint(&"x".repeat(44)));
}

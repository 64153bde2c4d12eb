//! The rhythm of checks and their verdicts, on a host that runs nothing.

use std::sync::Arc;

use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceName};
use dhow_core::spec::{ServiceSpec, TimeSpan};
use dhow_driver::driver::{Driver, ReplicaStart};
use dhow_driver::fake::{FakeDriver, FakeHost};

use super::*;

fn name() -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index: 0,
        generation: Generation(1),
    }
}

async fn started(env: &[(&str, &str)]) -> FakeDriver {
    let driver = FakeHost::default().driver();
    let env = env
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    let spec = ServiceSpec {
        env,
        ..ServiceSpec::default()
    };
    driver
        .start(&ReplicaStart::new(name(), Arc::new(spec)))
        .await
        .unwrap();
    driver
}

async fn next(driver: &FakeDriver, checks: &mut Checks, health: Option<&HealthSpec>) -> Verdict {
    let (name, spec) = (name(), ServiceSpec::default());
    let subject = Subject {
        driver,
        name: &name,
        spec: &spec,
        ports: &[],
    };
    checks.next(health, &subject).await
}

#[tokio::test(start_paused = true)]
async fn without_a_check_it_is_healthy_after_a_second() {
    let driver = started(&[]).await;
    let begun = Instant::now();
    assert_eq!(
        next(&driver, &mut Checks::new(false), None).await,
        Verdict::Healthy
    );
    assert_eq!(begun.elapsed(), HEALTHY_AFTER);
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_check_waits_for_the_workload() {
    let driver = started(&[
        ("FAKE_HEALTHY_AFTER_MS", "700"),
        ("FAKE_UNHEALTHY_AFTER_MS", "10000"),
    ])
    .await;
    for check in [
        Check::Tcp { port: 80 },
        Check::Http {
            url: "http://localhost:80/ready?x=1".into(),
            expect_status: 200,
        },
        Check::Command {
            command: vec!["check".into()],
        },
    ] {
        let mut health = HealthSpec::of(check);
        health.interval = TimeSpan::from_secs(3);
        let mut checks = Checks::new(false);
        assert_eq!(next(&driver, &mut checks, Some(&health)).await, Verdict::Healthy);
    }
    let mut health = HealthSpec::of(Check::Tcp { port: 80 });
    health.interval = TimeSpan::from_secs(3);
    let mut checks = Checks::new(true);
    let begun = Instant::now();
    let Verdict::Unhealthy(why) = next(&driver, &mut checks, Some(&health)).await else {
        panic!("it must notice");
    };
    assert!(why.contains("3 times in a row"), "{why}");
    assert!(
        begun.elapsed() >= Duration::from_secs(9 + 6),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn failures_in_the_grace_do_not_count() {
    let driver = started(&[("FAKE_HEALTHY_AFTER_MS", "60000")]).await;
    let mut health = HealthSpec::of(Check::Tcp { port: 80 });
    (health.start_grace, health.interval, health.retries) =
        (TimeSpan::from_secs(20), TimeSpan::from_secs(2), 2);
    let begun = Instant::now();
    let mut checks = Checks::new(false);
    // The reason is told once, when the start is not a quick one any more.
    let Verdict::FailsSoFar(why) = next(&driver, &mut checks, Some(&health)).await else {
        panic!("it has time to start");
    };
    assert!(
        why.starts_with("its check fails so far: ") && why.ends_with(" (within start_grace)"),
        "{why}"
    );
    assert!(begun.elapsed() >= TELL_AFTER);
    let verdict = next(&driver, &mut checks, Some(&health)).await;
    assert!(matches!(verdict, Verdict::Unhealthy(_)));
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_secs(22) && took < Duration::from_secs(26),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_status_is_told() {
    let driver = started(&[]).await;
    let mut health = HealthSpec::of(Check::Http {
        url: "http://localhost/x".into(),
        expect_status: 204,
    });
    (health.start_grace, health.retries) = (TimeSpan::ZERO, 1);
    let verdict = next(&driver, &mut Checks::new(false), Some(&health)).await;
    let expected = "its check failed once: GET /x gave 200, expected 204: fine";
    assert_eq!(verdict, Verdict::Unhealthy(expected.into()));
}

#[tokio::test(start_paused = true)]
async fn a_reason_that_changes_all_the_time_is_told_a_few_times() {
    let mut checks = Checks::new(false);
    let mut health = HealthSpec::of(Check::Tcp { port: 80 });
    health.start_grace = TimeSpan::from_secs(1_000);
    let mut told = 0;
    for n in 0..100 {
        tokio::time::advance(Duration::from_secs(1)).await;
        told += u32::from(checks.judge(Err(format!("reason {n}")), &health).is_some());
    }
    assert_eq!(told, TOLD_MAX);
    assert_eq!(checks.judge(Ok(()), &health), Some(Verdict::Healthy));
}

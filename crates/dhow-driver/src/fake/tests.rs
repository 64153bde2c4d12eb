//! The fake passes the suite like any driver, on a paused clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceName};
use dhow_core::spec::ServiceSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::*;
use crate::conformance::{self, Act, ExecAct, Subject};
use crate::driver::{
    Driver, ExecRequest, ExitKind, ReplicaStart, ReplicaStatus, StopRequest, StopSignal, Terminal, WindowSize,
};

struct FakeSubject(FakeHost);

fn spec(env: &[(&str, String)]) -> ServiceSpec {
    let env: BTreeMap<String, String> = env
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    ServiceSpec {
        env,
        ..ServiceSpec::default()
    }
}

impl Subject for FakeSubject {
    fn open(&self) -> Arc<dyn Driver> {
        Arc::new(self.0.driver())
    }

    fn spec(&self, act: &Act) -> Option<ServiceSpec> {
        let ready = ("FAKE_STDOUT", "ready".to_owned());
        Some(match act {
            Act::Exit(code) => spec(&[("FAKE_EXIT_CODE", code.to_string())]),
            Act::Die(signal) => spec(&[("FAKE_EXIT_SIGNAL", signal.to_string())]),
            Act::Say { stdout, stderr } => spec(&[
                ("FAKE_STDOUT", stdout.join("\n")),
                ("FAKE_STDERR", stderr.join("\n")),
                ("FAKE_EXIT_CODE", "0".to_owned()),
            ]),
            Act::Run => spec(&[ready]),
            Act::EndOnTerm(code) => spec(&[ready, ("FAKE_STOP_CODE", code.to_string())]),
            Act::IgnoreTerm => spec(&[ready, ("FAKE_IGNORE_STOP", String::new())]),
            Act::Family | Act::ShowEnv(_) | Act::EatMemory | Act::NoProgram | Act::NoWorkdir => return None,
        })
    }

    fn exec(&self, act: &ExecAct) -> ExecRequest {
        match act {
            ExecAct::Say { stdout, stderr, code } => ExecRequest::new([
                "fake".to_owned(),
                format!("stdout={stdout}"),
                format!("stderr={stderr}"),
                format!("exit={code}"),
            ]),
            ExecAct::ShowEnv(key) => ExecRequest::new(["fake".to_owned(), format!("env={key}")]),
            ExecAct::NoProgram => ExecRequest::new(["fake", "no-such-program"]),
        }
    }

    fn leftovers(&self) -> Vec<String> {
        self.0.names().iter().map(ToString::to_string).collect()
    }
}

fn name(index: u32) -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index,
        generation: Generation(1),
    }
}

fn start(index: u32, env: &[(&str, String)]) -> ReplicaStart {
    ReplicaStart::new(name(index), Arc::new(spec(env)))
}

#[tokio::test(start_paused = true)]
async fn conforms() {
    let report = conformance::run(&FakeSubject(FakeHost::default()), "").await;
    assert!(report.is_clean(), "\n{report}");
}

#[tokio::test(start_paused = true)]
async fn ends_when_its_script_says() {
    let host = FakeHost::default();
    let driver = host.driver();
    let begun = Instant::now();
    let script = [
        ("FAKE_EXIT_CODE", "9".to_owned()),
        ("FAKE_EXIT_AFTER_MS", "60000".to_owned()),
    ];
    driver.start(&start(0, &script)).await.unwrap();
    assert!(matches!(
        driver.inspect(&name(0)).await.unwrap(),
        ReplicaStatus::Running(_)
    ));
    assert_eq!(driver.wait(&name(0)).await.unwrap().kind, ExitKind::Code(9));
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn starting_and_stopping_take_their_time() {
    let host = FakeHost::default();
    let driver = host.driver();
    let begun = Instant::now();
    let script = [
        ("FAKE_START_DELAY_MS", "500".to_owned()),
        ("FAKE_STOP_DELAY_MS", "2000".to_owned()),
    ];
    driver.start(&start(0, &script)).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(500));
    let how = |secs| StopRequest {
        signal: StopSignal::TERM,
        grace: Duration::from_secs(secs),
    };
    assert_eq!(
        driver.stop(&name(0), how(10)).await.unwrap().kind,
        ExitKind::Signal(15)
    );
    assert_eq!(begun.elapsed(), Duration::from_millis(2500));
    driver.start(&start(0, &script)).await.unwrap();
    assert_eq!(
        driver.stop(&name(0), how(1)).await.unwrap().kind,
        ExitKind::Signal(9)
    );
    assert_eq!(begun.elapsed(), Duration::from_millis(4000));
    assert_eq!(host.starts(), 2);
}

#[tokio::test(start_paused = true)]
async fn failures_are_those_of_the_script() {
    let driver = FakeHost::default().driver();
    let error = driver
        .start(&start(0, &[("FAKE_START_ERROR", "no luck".to_owned())]))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "starting shop/web-default-0: no luck");
    let error = driver
        .start(&start(0, &[("FAKE_EXIT_CODE", "x".to_owned())]))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "starting shop/web-default-0: FAKE_EXIT_CODE is `x` and not a number"
    );
}

#[tokio::test(start_paused = true)]
async fn health_follows_the_clock() {
    let driver = FakeHost::default().driver();
    let script = [
        ("FAKE_HEALTHY_AFTER_MS", "1000".to_owned()),
        ("FAKE_UNHEALTHY_AFTER_MS", "5000".to_owned()),
    ];
    driver.start(&start(0, &script)).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let mut answer = String::new();
        if let Ok(mut connection) = driver.connect(&name(0), 80).await {
            connection.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            connection.read_to_string(&mut answer).await.unwrap();
        }
        let exec = driver.exec(&name(0), ExecRequest::new(["check"])).await.unwrap();
        let exit = exec
            .finish(100, Duration::from_secs(1))
            .await
            .unwrap()
            .unwrap()
            .exit;
        seen.push((answer.starts_with("HTTP/1.1 200"), exit.is_success()));
        tokio::time::advance(Duration::from_secs(3)).await;
    }
    assert_eq!(seen, [(false, false), (true, true), (false, false)]);
}

#[tokio::test(start_paused = true)]
async fn thousands_are_cheap_and_a_crash_is_seen_at_once() {
    let host = FakeHost::default();
    let driver = host.driver();
    for index in 0..5000 {
        driver.start(&start(index, &[])).await.unwrap();
    }
    let waiting = tokio::spawn({
        let driver = driver.clone();
        async move { driver.wait(&name(4000)).await.unwrap() }
    });
    tokio::task::yield_now().await;
    host.end(&name(4000), crate::driver::Exit::code(3));
    assert_eq!(waiting.await.unwrap().kind, ExitKind::Code(3));
    assert_eq!(driver.list().await.unwrap().len(), 5000);
}

#[tokio::test]
async fn a_terminal_has_the_size_that_was_asked_for() {
    let driver = FakeHost::default().driver();
    driver.start(&start(0, &[])).await.unwrap();
    let mut request = ExecRequest::new(["fake", "size"]);
    request.terminal = Some(Terminal {
        term: "xterm".into(),
        size: WindowSize { rows: 50, cols: 120 },
    });
    let session = driver.exec(&name(0), request).await.unwrap();
    assert!(session.resize.is_some());
    let done = session
        .finish(100, Duration::from_secs(1))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(done.stdout, b"50x120\n");
    let none = driver.exec(&name(0), ExecRequest::new(["fake", "size"])).await;
    assert!(none.is_err());
}

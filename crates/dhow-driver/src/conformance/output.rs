//! What replicas and commands write.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bench::{Bench, Case, Verdict, ensure, equal, ok, refused};
use super::subject::{Act, ExecAct};
use crate::driver::{Cause, ExecOutput, ExitKind, Pending};
use crate::logs::Stream;

pub(super) const CASES: &[(&str, Case)] = &[
    ("logs", logs),
    ("logs-reopened", logs_reopened),
    ("environment", environment),
    ("exec", exec),
    ("exec-environment", exec_environment),
    ("exec-missing", exec_missing),
    ("exec-ended", exec_ended),
];

const OUTPUT_MAX_BYTES: usize = 64 * 1024;
const EXEC_TIMEOUT: Duration = Duration::from_secs(40);

fn words(prefix: &str, count: u32) -> Vec<String> {
    (0..count).map(|n| format!("{prefix} {n}")).collect()
}

fn logs<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (stdout, stderr) = (words("out", 50), words("err", 50));
        let act = Act::Say {
            stdout: stdout.clone(),
            stderr: stderr.clone(),
        };
        let (name, _) = bench.start(&act).await?;
        ok(bench.driver.wait(&name).await)?;
        // All of it is there when the end is known, each stream in its order.
        equal(bench.lines(&name, Stream::Stdout).await?, stdout)?;
        equal(bench.lines(&name, Stream::Stderr).await?, stderr)
    })
}

fn logs_reopened<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let act = Act::Say {
            stdout: words("kept", 3),
            stderr: Vec::new(),
        };
        let (name, _) = bench.start(&act).await?;
        ok(bench.driver.wait(&name).await)?;
        // A second run of the same replica goes on in the same log.
        let start = bench.start_of(0, &act)?.ok_or("no such act")?;
        ok(bench.driver.start(&start).await)?;
        let later = bench.reopened();
        ok(later.driver.wait(&name).await)?;
        equal(
            later.lines(&name, Stream::Stdout).await?,
            [words("kept", 3), words("kept", 3)].concat(),
        )
    })
}

fn environment<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let act = Act::ShowEnv(vec!["PLAIN".into(), "HIDDEN".into()]);
        let Some(mut start) = bench.start_of(0, &act)? else {
            return Ok(());
        };
        start
            .env
            .insert("PLAIN".into(), "in the clear, with = and spaces".into());
        start.secret_env = BTreeMap::from([("HIDDEN".to_owned(), "a secret".to_owned())]);
        ok(bench.driver.start(&start).await)?;
        ok(bench.driver.wait(&start.name).await)?;
        let expected = vec![
            "in the clear, with = and spaces".to_owned(),
            "a secret".to_owned(),
        ];
        equal(bench.lines(&start.name, Stream::Stdout).await?, expected)
    })
}

async fn run(
    bench: &Bench<'_>,
    name: &dhow_core::ids::ReplicaName,
    act: ExecAct,
) -> Result<ExecOutput, String> {
    let session = ok(bench.driver.exec(name, bench.subject.exec(&act)).await)?;
    let output = session
        .finish(OUTPUT_MAX_BYTES, EXEC_TIMEOUT)
        .await
        .ok_or("the command hangs")?;
    ok(output)
}

fn exec<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, running) = bench.start_ready(&Act::Run).await?;
        let act = ExecAct::Say {
            stdout: "to stdout".into(),
            stderr: "to stderr".into(),
            code: 3,
        };
        let output = run(bench, &name, act).await?;
        equal(
            String::from_utf8_lossy(&output.stdout).into_owned(),
            "to stdout\n".to_owned(),
        )?;
        equal(
            String::from_utf8_lossy(&output.stderr).into_owned(),
            "to stderr\n".to_owned(),
        )?;
        equal(output.exit.kind, ExitKind::Code(3))?;
        ensure(!output.truncated, || "cut".into())?;
        equal(bench.running(&name).await?.pid, running.pid)
    })
}

fn exec_environment<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let Some(mut start) = bench.start_of(0, &Act::Run)? else {
            return Ok(());
        };
        start.env.insert("PLAIN".into(), "of the workload".into());
        start.secret_env = BTreeMap::from([("HIDDEN".to_owned(), "a secret".to_owned())]);
        ok(bench.driver.start(&start).await)?;
        bench.until_ready(&start.name).await?;
        // A daemon that did not start it gives a command the same environment.
        let later = bench.reopened();
        for (key, value) in [("PLAIN", "of the workload\n"), ("HIDDEN", "a secret\n")] {
            let output = run(&later, &start.name, ExecAct::ShowEnv(key.into())).await?;
            equal(
                String::from_utf8_lossy(&output.stdout).into_owned(),
                value.to_owned(),
            )?;
        }
        Ok(())
    })
}

/// A driver may find out at once, or the command may end with the code of a shell that found nothing.
fn exec_missing<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, _) = bench.start_ready(&Act::Run).await?;
        match bench
            .driver
            .exec(&name, bench.subject.exec(&ExecAct::NoProgram))
            .await
        {
            Err(error) => ensure(error.is_permanent(), || error.to_string()),
            Ok(session) => {
                let output = session
                    .finish(OUTPUT_MAX_BYTES, EXEC_TIMEOUT)
                    .await
                    .ok_or("the command hangs")?;
                ensure(!ok(output)?.exit.is_success(), || {
                    "a program that does not exist has succeeded".into()
                })
            }
        }
    })
}

fn exec_ended<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, _) = bench.start(&Act::Exit(0)).await?;
        ok(bench.driver.wait(&name).await)?;
        let error = refused(
            bench
                .driver
                .exec(&name, bench.subject.exec(&ExecAct::ShowEnv("PATH".into())))
                .await,
        )?;
        ensure(matches!(*error.cause, Cause::NotRunning), || error.to_string())
    })
}

//! Restarts of daemon and replica, and removal.

use super::bench::{Bench, Case, LONG_GRACE, Verdict, ensure, equal, ok, refused, term};
use super::subject::Act;
use crate::driver::{Cause, ExitKind, Pending, ReplicaStatus};

pub(super) const CASES: &[(&str, Case)] = &[
    ("adopt", adopt),
    ("start-again", start_again),
    ("start-twice", start_twice),
    ("remove-running", remove_running),
    ("remove-unknown", remove_unknown),
    ("usage", usage),
];

fn adopt<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, running) = bench.start_ready(&Act::EndOnTerm(4)).await?;
        let later = bench.reopened();
        let listed = ok(later.driver.list().await)?;
        let found = listed
            .iter()
            .find(|(listed, _)| *listed == name)
            .map(|(_, status)| status);
        match found {
            Some(ReplicaStatus::Running(found)) => equal(found.pid, running.pid)?,
            other => return Err(format!("listed as {other:?}")),
        }
        let stop = later.driver.stop(&name, term(LONG_GRACE));
        let (waited, stopped) = tokio::join!(later.driver.wait(&name), stop);
        equal(ok(waited)?.kind, ExitKind::Code(4))?;
        equal(ok(stopped)?.kind, ExitKind::Code(4))
    })
}

fn start_again<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, _) = bench.start(&Act::Exit(1)).await?;
        equal(ok(bench.driver.wait(&name).await)?.kind, ExitKind::Code(1))?;
        bench.start(&Act::Exit(2)).await?;
        equal(ok(bench.driver.wait(&name).await)?.kind, ExitKind::Code(2))
    })
}

fn start_twice<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, running) = bench.start_ready(&Act::Run).await?;
        let again = bench.start_of(0, &Act::Run)?.ok_or("no such act")?;
        let error = refused(bench.driver.start(&again).await)?;
        ensure(
            matches!(*error.cause, Cause::AlreadyRuns { pid } if pid == running.pid),
            || error.to_string(),
        )?;
        equal(bench.running(&name).await?.pid, running.pid)
    })
}

fn remove_running<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, _) = bench.start_ready(&Act::IgnoreTerm).await?;
        ok(bench.driver.remove(&name).await)?;
        let error = refused(bench.driver.inspect(&name).await)?;
        ensure(matches!(*error.cause, Cause::NoSuchReplica), || error.to_string())?;
        let error = refused(bench.driver.logs(&name).await)?;
        ensure(matches!(*error.cause, Cause::NoSuchReplica), || error.to_string())?;
        let left = bench.subject.leftovers();
        ensure(left.is_empty(), || format!("still there: {left:?}"))
    })
}

fn remove_unknown<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move { ok(bench.driver.remove(&bench.name(77)?).await) })
}

fn usage<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, _) = bench.start_ready(&Act::Run).await?;
        let usage = ok(bench.driver.usage(&name).await)?;
        ensure(usage.processes > 0, || format!("{usage:?}"))?;
        ok(bench.driver.stop(&name, term(LONG_GRACE)).await)?;
        let error = refused(bench.driver.usage(&name).await)?;
        ensure(matches!(*error.cause, Cause::NotRunning), || error.to_string())
    })
}

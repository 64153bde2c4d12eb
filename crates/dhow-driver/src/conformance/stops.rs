//! Stopping: asking, waiting, making.

use std::time::Duration;

use super::bench::{Bench, Case, LONG_GRACE, Verdict, ensure, equal, ok, refused, term};
use super::subject::Act;
use crate::driver::{Cause, ExitKind, Pending, ReplicaStatus, StopRequest};

pub(super) const CASES: &[(&str, Case)] = &[
    ("stop-by-signal", stop_by_signal),
    ("stop-with-grace", stop_with_grace),
    ("stop-escalates", stop_escalates),
    ("stop-kill", stop_kill),
    ("stop-ended", stop_ended),
    ("stop-unknown", stop_unknown),
    ("stop-family", stop_family),
];

fn stop_by_signal<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(stops(
        bench,
        Act::Run,
        term(LONG_GRACE),
        bench.subject.ended_by(15),
    ))
}

fn stop_with_grace<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(stops(
        bench,
        Act::EndOnTerm(7),
        term(LONG_GRACE),
        ExitKind::Code(7),
    ))
}

fn stop_escalates<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(stops(
        bench,
        Act::IgnoreTerm,
        term(Duration::from_millis(200)),
        ExitKind::Signal(9),
    ))
}

fn stop_kill<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(stops(
        bench,
        Act::EndOnTerm(7),
        StopRequest::kill(),
        ExitKind::Signal(9),
    ))
}

async fn stops(bench: &Bench<'_>, act: Act, how: StopRequest, kind: ExitKind) -> Verdict {
    let (name, _) = bench.start_ready(&act).await?;
    let exit = ok(bench.driver.stop(&name, how).await)?;
    equal(exit.kind, kind)?;
    equal(ok(bench.driver.inspect(&name).await)?, ReplicaStatus::Ended(exit))
}

fn stop_ended<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, _) = bench.start(&Act::Exit(3)).await?;
        let exit = ok(bench.driver.wait(&name).await)?;
        equal(ok(bench.driver.stop(&name, term(LONG_GRACE)).await)?, exit)
    })
}

fn stop_unknown<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let name = bench.name(99)?;
        let error = refused(bench.driver.stop(&name, term(LONG_GRACE)).await)?;
        ensure(matches!(*error.cause, Cause::NoSuchReplica), || error.to_string())
    })
}

/// The check for processes is the last of the suite: whatever a family left behind is found there.
fn stop_family<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let Some((name, _)) = bench.try_start(&Act::Family).await? else {
            return Ok(());
        };
        bench.until_ready(&name).await?;
        ok(bench.driver.stop(&name, term(LONG_GRACE)).await)?;
        let leftovers = bench.subject.leftovers();
        let processes: Vec<&String> = leftovers
            .iter()
            .filter(|text| text.starts_with("process"))
            .collect();
        ensure(processes.is_empty(), || format!("still there: {processes:?}"))
    })
}

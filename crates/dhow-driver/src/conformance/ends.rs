//! How replicas end by themselves, and that their end is known.

use super::bench::{Bench, Case, Verdict, ensure, equal, ok};
use super::subject::Act;
use crate::driver::{Enforcement, ExitKind, Pending, ReplicaStatus};

pub(super) const CASES: &[(&str, Case)] = &[
    ("exit-code", exit_code),
    ("exit-zero", exit_zero),
    ("signal", signal),
    ("many-wait", many_wait),
    ("exit-unwatched", exit_unwatched),
    ("out-of-memory", out_of_memory),
];

fn exit_code<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(ends_with(bench, Act::Exit(42), ExitKind::Code(42)))
}

fn exit_zero<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(ends_with(bench, Act::Exit(0), ExitKind::Code(0)))
}

fn signal<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(ends_with(bench, Act::Die(6), bench.subject.ended_by(6)))
}

async fn ends_with(bench: &Bench<'_>, act: Act, kind: ExitKind) -> Verdict {
    let (name, _) = bench.start(&act).await?;
    let exit = ok(bench.driver.wait(&name).await)?;
    equal(exit.kind, kind)?;
    ensure(!exit.oom, || "it says out of memory".into())?;
    // Asked again, it says the same.
    equal(ok(bench.driver.wait(&name).await)?, exit)?;
    equal(ok(bench.driver.inspect(&name).await)?, ReplicaStatus::Ended(exit))
}

fn many_wait<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, _) = bench.start_ready(&Act::Run).await?;
        let stop = bench
            .driver
            .stop(&name, super::bench::term(super::bench::LONG_GRACE));
        let (first, second, third) = tokio::join!(bench.driver.wait(&name), bench.driver.wait(&name), stop);
        let (first, second, third) = (ok(first)?, ok(second)?, ok(third)?);
        ensure(first == second && second == third, || {
            format!("they differ: {first:?} {second:?} {third:?}")
        })
    })
}

fn exit_unwatched<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let (name, _) = bench.start(&Act::Exit(5)).await?;
        let later = bench.reopened();
        equal(ok(later.driver.wait(&name).await)?.kind, ExitKind::Code(5))
    })
}

fn out_of_memory<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        if bench.driver.probe().await.limits.memory != Enforcement::Whole {
            return Ok(());
        }
        let Some((name, _)) = bench.try_start(&Act::EatMemory).await? else {
            return Ok(());
        };
        let exit = ok(bench.driver.wait(&name).await)?;
        ensure(exit.oom && !exit.is_success(), || format!("{exit:?}"))
    })
}

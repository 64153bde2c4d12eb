//! Many at once.

use tokio::task::JoinSet;

use super::bench::{Bench, Case, LONG_GRACE, Verdict, equal, ok, term};
use super::subject::Act;
use crate::driver::{Pending, ReplicaStatus};

pub(super) const CASES: &[(&str, Case)] = &[("fifty-at-once", fifty_at_once)];

const COUNT: u32 = 50;

fn fifty_at_once<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(async move {
        let mut starts = JoinSet::new();
        for index in 0..COUNT {
            let start = bench.start_of(index, &Act::Run)?.ok_or("no such act")?;
            let driver = bench.driver.clone();
            starts.spawn(async move { ok(driver.start(&start).await).map(|running| (start.name, running)) });
        }
        let mut started = starts
            .join_all()
            .await
            .into_iter()
            .collect::<Result<Vec<_>, String>>()?;
        started.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let listed = ok(bench.driver.list().await)?;
        equal(listed.len(), started.len())?;
        for ((name, running), (listed, status)) in started.iter().zip(&listed) {
            equal(name, listed)?;
            let ReplicaStatus::Running(found) = status else {
                return Err(format!("{name} is {status:?}"));
            };
            equal(found.pid, running.pid)?;
        }
        let mut stops = JoinSet::new();
        let ended_by_term = bench.subject.ended_by(15);
        for (name, _) in started {
            let driver = bench.driver.clone();
            stops.spawn(async move {
                let exit = ok(driver.stop(&name, term(LONG_GRACE)).await)?;
                equal(exit.kind, ended_by_term)?;
                ok(driver.remove(&name).await)
            });
        }
        stops.join_all().await.into_iter().collect()
    })
}

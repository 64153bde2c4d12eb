//! What cannot work says why, names what is wrong, and leaves nothing.

use super::bench::{Bench, Case, Verdict, ensure, ok, refused};
use super::subject::Act;
use crate::driver::{Pending, Stage, error_chain};

pub(super) const CASES: &[(&str, Case)] = &[
    ("no-such-program", no_such_program),
    ("no-such-workdir", no_such_workdir),
];

fn no_such_program<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(fails(bench, Act::NoProgram, "dhow-no-such-program"))
}

fn no_such_workdir<'a>(bench: &'a Bench<'a>) -> Pending<'a, Verdict> {
    Box::pin(fails(bench, Act::NoWorkdir, "dhow-no-such-folder"))
}

async fn fails(bench: &Bench<'_>, act: Act, named: &str) -> Verdict {
    let Some(start) = bench.start_of(0, &act)? else {
        return Ok(());
    };
    let error = refused(bench.driver.start(&start).await)?;
    let text = error_chain(&error);
    ensure(
        text.contains(named) && text.contains(&start.name.to_string()),
        || text.clone(),
    )?;
    ensure(error.stage == Stage::Start && error.is_permanent(), || {
        format!("{:?}", error.stage)
    })?;
    let listed = ok(bench.driver.list().await)?;
    ensure(listed.is_empty(), || format!("listed: {listed:?}"))?;
    let left = bench.subject.leftovers();
    ensure(left.is_empty(), || format!("still there: {left:?}"))
}

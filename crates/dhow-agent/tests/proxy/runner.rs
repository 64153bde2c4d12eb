//! Runs the tests one after the other and understands as much of a test binary's command line as cargo and
//! nextest use: names to run, `--exact`, `--list`.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use crate::test_host::TestHost;

pub type Body = fn(Arc<TestHost>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A test on a fresh host.
pub struct Test {
    pub name: &'static str,
    pub body: Body,
}

pub fn main(all: &[&[Test]]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let is_name = |arg: &&String| !arg.starts_with("--") && *arg != "terse";
    let names: Vec<&String> = args.iter().filter(is_name).collect();
    let wanted = |test: &&Test| {
        let matches = |name: &&String| match has("--exact") {
            true => test.name == **name,
            false => test.name.contains(name.as_str()),
        };
        names.is_empty() || names.iter().any(matches)
    };
    // Nothing is ever ignored here.
    let tests = all.iter().copied().flatten().filter(wanted);
    let tests: Vec<&Test> = tests.filter(|_| !has("--ignored")).collect();
    if has("--list") {
        tests.iter().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    let failed: Vec<&str> = tests
        .iter()
        .filter(|test| !passes(test))
        .map(|test| test.name)
        .collect();
    let passed = tests.len() - failed.len();
    println!(
        "\ntest result: {passed} passed; {} failed {failed:?}",
        failed.len()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The host is cleared whether the test passes or panics, and a test that leaves something fails.
fn passes(test: &Test) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let passed = runtime.block_on(async {
        let host = Arc::new(TestHost::new());
        let result = tokio::spawn((test.body)(host.clone())).await;
        let left = host.clear().await;
        if !left.is_empty() {
            println!("{}: left behind: {left:?}", test.name);
        }
        result.is_ok() && left.is_empty()
    });
    println!("test {} ... {}", test.name, if passed { "ok" } else { "FAILED" });
    passed
}

/// Names a test after its function.
#[macro_export]
macro_rules! tests {
    ($($name:ident),+ $(,)?) => {
        pub const TESTS: &[$crate::runner::Test] = &[$(
            $crate::runner::Test { name: stringify!($name), body: |host| Box::pin($name(host)) }
        ),+];
    };
}

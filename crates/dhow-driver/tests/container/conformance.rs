//! The container driver passes the suite; with DHOW_TEST_LONG=1 also with the slower runtime and with an init.

use std::sync::Arc;

use dhow_core::spec::{ByteSize, ServiceSpec};
use dhow_driver::conformance::{self, Act, ExecAct, Subject};
use dhow_driver::driver::{Driver, ExecRequest, ExitKind};

use crate::test_host::{Groups, TestHost, is_installed};

crate::tests! {
    conforms_by_default: Groups::Any,
    conforms_with_an_init: Groups::Any,
    conforms_with_an_init_and_runc: Groups::Named("runc"),
    conforms_with_runc: Groups::Named("runc"),
}

/// A host, and whether its replicas have an init: the first process is then not theirs.
struct ContainerSubject(Arc<TestHost>, bool);

impl Subject for ContainerSubject {
    fn open(&self) -> Arc<dyn Driver> {
        Arc::new(self.0.driver())
    }

    fn spec(&self, act: &Act) -> Option<ServiceSpec> {
        let shell = |text: String| ServiceSpec {
            init: self.1,
            ..self.0.shell(&text)
        };
        let lines = |lines: &[String], to: &str| {
            lines
                .iter()
                .map(|line| format!("echo '{line}' {to};"))
                .collect::<String>()
        };
        Some(match act {
            Act::Exit(code) => shell(format!("exit {code}")),
            // The first process of a container is not ended by its own signals: its child is, and it says so.
            Act::Die(signal) if self.1 => shell(format!("kill -{signal} $$")),
            Act::Run if self.1 => shell("echo ready; exec sleep 100000".into()),
            Act::Family if self.1 => shell(
                "sleep 100000 & setsid sh -c 'trap \"\" TERM HUP; sleep 100000 & exec sleep 100000' & \
                 (setsid sleep 100000 &); echo ready; exec sleep 100000"
                    .into(),
            ),
            Act::Die(signal) => shell(format!("sh -c 'kill -{signal} $$'; exit $?")),
            Act::Say { stdout, stderr } => shell(lines(stdout, "") + &lines(stderr, ">&2")),
            Act::Run => {
                shell("trap 'exit 143' TERM; echo ready; while :; do sleep 100000 & wait; done".into())
            }
            Act::EndOnTerm(code) => shell(format!(
                "trap 'exit {code}' TERM; echo ready; while :; do sleep 100000 & wait; done"
            )),
            Act::IgnoreTerm => shell("trap '' TERM; echo ready; while :; do sleep 100000; done".into()),
            Act::Family => shell(
                "trap 'exit 143' TERM; sleep 100000 & setsid sh -c 'trap \"\" TERM HUP; sleep 100000' & \
                 (setsid sleep 100000 &); echo ready; while :; do sleep 100000 & wait; done"
                    .into(),
            ),
            Act::ShowEnv(keys) => shell(keys.iter().map(|key| format!("echo \"${key}\";")).collect()),
            Act::EatMemory => {
                let mut spec = shell("exec tail /dev/zero".into());
                spec.resources.memory = Some(ByteSize(32 << 20));
                spec
            }
            Act::NoProgram => self.0.spec(&["dhow-no-such-program"]),
            // A container's working directory is made where the image has none.
            Act::NoWorkdir => return None,
        })
    }

    fn exec(&self, act: &ExecAct) -> ExecRequest {
        let shell = |text: String| ExecRequest::new(["/bin/sh".to_owned(), "-c".to_owned(), text]);
        match act {
            ExecAct::Say { stdout, stderr, code } => {
                shell(format!("echo '{stdout}'; echo '{stderr}' >&2; exit {code}"))
            }
            ExecAct::ShowEnv(key) => shell(format!("echo \"${key}\"")),
            ExecAct::NoProgram => ExecRequest::new(["dhow-no-such-program"]),
        }
    }

    fn ended_by(&self, signal: i32) -> ExitKind {
        if self.1 {
            ExitKind::Signal(signal)
        } else {
            ExitKind::Code(128 + signal)
        }
    }

    fn leftovers(&self) -> Vec<String> {
        self.0.leftovers()
    }
}

async fn conforms(host: Arc<TestHost>, init: bool) {
    let name = host.runtime.clone().unwrap_or_default();
    if (init || !name.is_empty()) && std::env::var_os("DHOW_TEST_LONG").is_none() {
        println!("    only with DHOW_TEST_LONG=1");
        return;
    }
    if !name.is_empty() && !is_installed(&name) {
        println!("SKIPPED: {name} is not installed");
        return;
    }
    let report = conformance::run(&ContainerSubject(host, init), "").await;
    assert!(report.is_clean(), "\n{report}");
}

async fn conforms_by_default(host: Arc<TestHost>) {
    conforms(host, false).await;
}

async fn conforms_with_runc(host: Arc<TestHost>) {
    conforms(host, false).await;
}

async fn conforms_with_an_init(host: Arc<TestHost>) {
    conforms(host, true).await;
}

async fn conforms_with_an_init_and_runc(host: Arc<TestHost>) {
    conforms(host, true).await;
}

//! The process driver passes the suite, with control groups and without.

use std::sync::Arc;

use dhow_core::spec::{ByteSize, ServiceSpec};
use dhow_driver::conformance::{self, Act, ExecAct, Subject};
use dhow_driver::driver::{Driver, ExecRequest};

use crate::test_host::{Groups, TestHost};

crate::tests! {
    conforms_with_groups: Groups::Use,
    conforms_without_groups: Groups::Without,
}

struct ProcessSubject(Arc<TestHost>);

impl Subject for ProcessSubject {
    fn open(&self) -> Arc<dyn Driver> {
        Arc::new(self.0.driver())
    }

    fn spec(&self, act: &Act) -> Option<ServiceSpec> {
        let shell = |text: String| self.0.spec(&["/bin/sh", "-c", &text]);
        let lines = |lines: &[String], to: &str| {
            lines
                .iter()
                .map(|l| format!("echo '{l}' {to};"))
                .collect::<String>()
        };
        Some(match act {
            Act::Exit(code) => shell(format!("exit {code}")),
            Act::Die(signal) => shell(format!("kill -{signal} $$")),
            Act::Say { stdout, stderr } => shell(lines(stdout, "") + &lines(stderr, ">&2")),
            Act::Run => shell("echo ready; exec sleep 100000".into()),
            Act::EndOnTerm(code) => shell(format!(
                "trap 'exit {code}' TERM; echo ready; while :; do sleep 100000 & wait; done"
            )),
            Act::IgnoreTerm => shell("trap '' TERM; echo ready; while :; do sleep 100000; done".into()),
            Act::Family => shell(
                "sleep 100000 & setsid sh -c 'trap \"\" TERM HUP; sleep 100000 & exec sleep 100000' & \
                 (setsid sleep 100000 &); echo ready; exec sleep 100000"
                    .into(),
            ),
            Act::ShowEnv(keys) => shell(keys.iter().map(|key| format!("echo \"${key}\";")).collect()),
            Act::EatMemory => {
                let mut spec = shell("exec tail /dev/zero".into());
                spec.resources.memory = Some(ByteSize(32 << 20));
                spec
            }
            Act::NoProgram => self.0.spec(&["dhow-no-such-program"]),
            Act::NoWorkdir => {
                let mut spec = shell("exit 0".into());
                let command = spec.command.as_mut().unwrap();
                command.workdir = Some("/dhow-no-such-folder".into());
                spec
            }
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

    fn leftovers(&self) -> Vec<String> {
        self.0.leftovers()
    }
}

async fn conforms(host: Arc<TestHost>) {
    let report = conformance::run(&ProcessSubject(host), "").await;
    assert!(report.is_clean(), "\n{report}");
}

async fn conforms_with_groups(host: Arc<TestHost>) {
    conforms(host).await;
}

async fn conforms_without_groups(host: Arc<TestHost>) {
    conforms(host).await;
}

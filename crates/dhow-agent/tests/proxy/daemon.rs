//! A daemon to be killed: opens the proxy, applies one table, waits for its end.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use dhow_agent::proxy::ProxyClient;

use crate::test_host::{TestHost, config, shim, table};

/// The daemon's side: `daemon DIR LISTENER BACKEND`, says the proxy's pid once the table is applied.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.map(|arg| arg.into_string().unwrap()).collect();
    let [dir, listener, backend] = args.as_slice() else {
        return ExitCode::FAILURE;
    };
    let (dir, listener, backend) = (
        PathBuf::from(dir),
        listener.parse().unwrap(),
        backend.parse().unwrap(),
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = ProxyClient::open(config(&dir, Arc::new(shim(&dir)), "1"))
            .await
            .unwrap();
        client.apply(table(1, listener, &[("a", backend)])).await.unwrap();
        println!("{}", client.pid().await.unwrap());
        std::io::stdout().flush().unwrap();
        // Until it is killed.
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

/// The test's side. Killed when it is dropped.
pub struct Daemon {
    child: Child,
    pub proxy_pid: u32,
}

impl Daemon {
    pub fn launch(host: &TestHost, listener: SocketAddr, backend: SocketAddr) -> Self {
        let mut child = Command::new("/proc/self/exe")
            .arg("daemon")
            .arg(&host.dir)
            .args([listener.to_string(), backend.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let proxy_pid = line.trim().parse().unwrap();
        Self { child, proxy_pid }
    }

    /// Like kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

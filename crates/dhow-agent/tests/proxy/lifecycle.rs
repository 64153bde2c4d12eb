//! Starts, ends, and what a proxy finds when it comes up.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::proxy::{ProxyClient, ProxyConfig, ProxyError, Table};
use dhow_driver::shim::OwnCommand;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::backend::BackendProcess;
use crate::daemon::Daemon;
use crate::load::Client;
use crate::test_host::{TestHost, free_port, table};

crate::tests! {
    outlives_its_daemon,
    killed_it_comes_back_with_its_table,
    stopped_it_leaves_nothing,
    refused_tables_change_nothing,
    one_that_cannot_run_is_not_started_for_ever,
    a_broken_saved_table_does_not_keep_it_down,
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

async fn outlives_its_daemon(host: Arc<TestHost>) {
    let backend = BackendProcess::anywhere();
    let addr = free_port();
    let daemon = Daemon::launch(&host, addr, backend.addr);
    let proxy_pid = daemon.proxy_pid;
    let mut client = Client::new(addr);
    assert_eq!(client.get("/").await.unwrap(), backend.pid().to_string());
    daemon.kill();
    // On the same connection: nobody was touched.
    assert_eq!(client.get("/").await.unwrap(), backend.pid().to_string());
    let next = host.open("1").await;
    assert_eq!(next.pid().await.unwrap(), proxy_pid);
    let applied = next.apply(table(2, addr, &[("a", backend.addr)])).await.unwrap();
    assert_eq!(applied.listeners, vec![(addr, Ok(()))]);
    assert_eq!(client.get("/").await.unwrap(), backend.pid().to_string());
    let status = next.status().await.unwrap();
    assert_eq!((status.revision, status.backends[0].total), (2, 3));
}

async fn killed_it_comes_back_with_its_table(host: Arc<TestHost>) {
    let backend = BackendProcess::anywhere();
    let addr = free_port();
    let proxy = host.open("1").await;
    proxy.apply(table(1, addr, &[("a", backend.addr)])).await.unwrap();
    let before = proxy.pid().await.unwrap();
    let mode = |name: &str| {
        let metadata = std::fs::metadata(host.proxy_dir().join(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("proxy.1.sock"), mode("table/table.json"), mode("")),
        (0o600, 0o600, 0o700)
    );
    signal(before, Signal::SIGKILL);
    // No table is applied again: it is on disk. Whoever asks gets the new one.
    let after = loop {
        let pid = proxy.pid().await.unwrap();
        if pid != before {
            break pid;
        }
    };
    assert_ne!(after, before);
    assert_eq!(
        Client::new(addr).get("/").await.unwrap(),
        backend.pid().to_string()
    );
    assert_eq!(proxy.status().await.unwrap().revision, 1);
}

async fn stopped_it_leaves_nothing(host: Arc<TestHost>) {
    let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = free_port();
    let proxy = Arc::new(host.open("1").await);
    let at = backend.local_addr().unwrap();
    proxy.apply(table(1, addr, &[("a", at)])).await.unwrap();
    let answer = tokio::spawn(async move { Client::new(addr).get("/").await });
    let (mut stream, _) = backend.accept().await.unwrap();
    stream.read_u8().await.unwrap();
    // The request is under way: it is finished, while nobody else is let in.
    let stopping = proxy.clone();
    let stopped = tokio::spawn(async move { stopping.stop(Duration::from_secs(60)).await });
    while TcpStream::connect(addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .await
        .unwrap();
    assert_eq!(answer.await.unwrap().unwrap(), "ok");
    stopped.await.unwrap().unwrap();
    assert_eq!(host.processes(), vec![]);
    assert!(matches!(proxy.status().await, Err(ProxyError::Stopped)));
    assert!(Client::new(addr).get("/").await.is_err());
    let left = std::fs::read_dir(host.proxy_dir()).unwrap().flatten();
    let left: Vec<String> = left
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["run"]);
}

async fn refused_tables_change_nothing(host: Arc<TestHost>) {
    let backend = BackendProcess::anywhere();
    let addr = free_port();
    let proxy = host.open("1").await;
    let good = table(1, addr, &[("a", backend.addr)]);
    proxy.apply(good.clone()).await.unwrap();
    let newer = Table {
        version: 99,
        ..good.clone()
    };
    let error = proxy.apply(newer).await.unwrap_err().to_string();
    assert!(error.contains("form 99"), "{error}");
    let mut twice = good;
    twice.listeners.extend(twice.listeners.clone());
    let error = proxy.apply(twice).await.unwrap_err().to_string();
    assert!(error.contains("two listeners"), "{error}");
    assert_eq!(
        Client::new(addr).get("/").await.unwrap(),
        backend.pid().to_string()
    );
    // A port that somebody has is no refusal: all else is served.
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let mut both = table(2, addr, &[("a", backend.addr)]);
    both.listeners
        .extend(table(2, taken, &[("a", backend.addr)]).listeners);
    let applied = proxy.apply(both).await.unwrap();
    let (_, bound) = applied
        .listeners
        .iter()
        .find(|(found, _)| *found == taken)
        .unwrap();
    let why = bound.clone().unwrap_err();
    assert!(
        why.contains(&format!("taken by process {}", std::process::id())),
        "{why}"
    );
}

async fn one_that_cannot_run_is_not_started_for_ever(host: Arc<TestHost>) {
    let command = OwnCommand {
        program: "/bin/sh".into(),
        args: ["-c", "echo it is broken >&2; exit 3", "sh"]
            .map(str::to_owned)
            .to_vec(),
    };
    let config = ProxyConfig {
        command,
        ..host.config("1")
    };
    let error = ProxyClient::open(config).await.err().unwrap().to_string();
    assert!(
        error.contains("exit code 3") && error.contains("it is broken"),
        "{error}"
    );
}

async fn a_broken_saved_table_does_not_keep_it_down(host: Arc<TestHost>) {
    let backend = BackendProcess::anywhere();
    let addr = free_port();
    std::fs::create_dir(host.proxy_dir()).unwrap();
    std::fs::write(host.proxy_dir().join("table.json"), "{\"version\":1,\"revi").unwrap();
    let proxy = host.open("1").await;
    assert_eq!(proxy.status().await.unwrap().revision, 0);
    proxy.apply(table(1, addr, &[("a", backend.addr)])).await.unwrap();
    assert_eq!(
        Client::new(addr).get("/").await.unwrap(),
        backend.pid().to_string()
    );
}

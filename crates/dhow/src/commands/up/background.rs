//! A daemon that stays when its command ends.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use dhow_wire::{ApiAddr, DaemonConfig, Setting};

use crate::client::{Client, Request};
use crate::output;

const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// What is read of the log of a daemon that ended at once: its last lines are shown, each far shorter than this.
const SAID_BYTES_MAX: u64 = 64 * 1024;
const SAID_LINES: usize = 5;

/// Starts it and waits until it answers.
pub async fn start(config: &DaemonConfig, client: &Client) -> anyhow::Result<()> {
    let log = config.data_dir.join("daemon.log");
    let is_set = std::env::var_os(Setting::ApiAddr.variable()).is_some();
    let taken = tcp_to_leave(config.api_addr, is_set);
    if let Some(addr) = taken {
        output::note(&without_tcp(addr));
    }
    let (mut child, begins_at) = spawn(config, taken.is_some(), &log)?;
    let answers = async {
        loop {
            if client.fetch(Request::get(&["cluster"])).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = child.try_wait()? {
                let said = said_since(&log, begins_at).unwrap_or_default();
                anyhow::bail!("the daemon ended at once ({status}):\n{said}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(ANSWERS_WITHIN, answers)
        .await
        .with_context(|| format!("the daemon does not answer; {} says why", log.display()))??;
    output::note(&format!(
        "started a daemon in the background (process {}); it writes to {}",
        child.id(),
        log.display()
    ));
    Ok(())
}

/// The default address, where somebody else has it: nobody asked for it, and the socket will do.
pub fn tcp_to_leave(api_addr: ApiAddr, is_set: bool) -> Option<SocketAddr> {
    let addr = api_addr.addr().filter(|_| !is_set)?;
    match TcpListener::bind(addr) {
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Some(addr),
        Ok(_) | Err(_) => None,
    }
}

pub fn without_tcp(addr: SocketAddr) -> String {
    format!(
        "{addr} is taken, by another daemon perhaps: this one is reached on its Unix socket alone. Set {} to give it \
         another address",
        Setting::ApiAddr.variable()
    )
}

/// The last lines that a log has got since it had this length.
fn said_since(log: &Path, length: u64) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.max(end.saturating_sub(SAID_BYTES_MAX))))?;
    let mut said = Vec::new();
    file.take(SAID_BYTES_MAX).read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let from = lines.len().saturating_sub(SAID_LINES);
    Ok(lines.get(from..).unwrap_or_default().join("\n"))
}

/// The daemon, and where its part of the log begins.
fn spawn(config: &DaemonConfig, is_without_tcp: bool, log: &Path) -> anyhow::Result<(Child, u64)> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(&config.data_dir)
        .with_context(|| format!("the data directory {} cannot be made", config.data_dir.display()))?;
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let file = options
        .open(log)
        .with_context(|| format!("{} cannot be opened", log.display()))?;
    let begins_at = file.metadata()?.len();
    let mut command = Command::new("/proc/self/exe");
    command.arg("daemon").arg("--data-dir").arg(&config.data_dir);
    if is_without_tcp {
        command.args(["--api-addr", "off"]);
    }
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        // Ctrl-C in this terminal is not meant for it.
        .process_group(0);
    let child = command.spawn().context("the daemon cannot be started")?;
    Ok((child, begins_at))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_an_address_that_nobody_asked_for_is_left_to_others() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = other.local_addr().unwrap();
        assert_eq!(tcp_to_leave(ApiAddr::At(addr), false), Some(addr));
        assert!(without_tcp(addr).contains("DHOW_API_ADDR"));
        assert_eq!(tcp_to_leave(ApiAddr::At(addr), true), None, "it is to be told");
        assert_eq!(tcp_to_leave(ApiAddr::Off, false), None);
    }

    #[test]
    fn what_an_earlier_daemon_said_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("daemon.log");
        std::fs::write(&log, "an earlier one: the disk is full\n").unwrap();
        let length = std::fs::metadata(&log).unwrap().len();
        assert_eq!(said_since(&log, length).unwrap(), "");
        let mut file = OpenOptions::new().append(true).open(&log).unwrap();
        (0..9).for_each(|line| writeln!(file, "line {line}").unwrap());
        let said = said_since(&log, length).unwrap();
        assert_eq!(said, "line 4\nline 5\nline 6\nline 7\nline 8");
        write!(file, "{}", "x".repeat(1 << 20)).unwrap();
        assert_eq!(
            said_since(&log, length).unwrap().len() as u64,
            SAID_BYTES_MAX,
            "no more is read"
        );
    }
}

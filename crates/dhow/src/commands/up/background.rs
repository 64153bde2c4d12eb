//! A daemon that stays when its command ends.

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use dhow_wire::DaemonConfig;

use crate::client::{Client, Request};
use crate::output;

const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Starts it and waits until it answers.
pub async fn start(config: &DaemonConfig, client: &Client) -> anyhow::Result<()> {
    let log = config.data_dir.join("daemon.log");
    let mut child = spawn(config, &log)?;
    let answers = async {
        loop {
            if client.fetch(Request::get(&["cluster"])).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = child.try_wait()? {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(5).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                anyhow::bail!("the daemon ended at once ({status}):\n{}", last.join("\n"));
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

fn spawn(config: &DaemonConfig, log: &std::path::Path) -> anyhow::Result<Child> {
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
    Command::new("/proc/self/exe")
        .arg("daemon")
        .arg("--data-dir")
        .arg(&config.data_dir)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        // Ctrl-C in this terminal is not meant for it.
        .process_group(0)
        .spawn()
        .context("the daemon cannot be started")
}

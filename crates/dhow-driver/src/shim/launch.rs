//! Starts a zygote from the daemon. Blocks until it listens.

use std::io;
use std::process::{Command, Stdio};

use super::client::ShimConfig;
use super::error::ShimError;

/// What a zygote that cannot start says at most.
const SAID_MAX_CHARS: usize = 500;

/// Runs the zygote's command; it returns when the zygote listens, or another one does.
pub(super) fn launch(config: &ShimConfig, build: &str) -> Result<(), ShimError> {
    let failed = |source: io::Error| ShimError::Launch {
        program: config.command.program.clone(),
        source,
    };
    let mut command = Command::new(&config.command.program);
    command
        .args(&config.command.args)
        .arg("--dir")
        .arg(&config.dir)
        .arg("--build")
        .arg(build);
    if let Some(given) = crate::files::given() {
        command.arg("--files").arg(given.to_string());
    }
    for file in &config.join {
        command.arg("--join").arg(file);
    }
    // A clean environment: the zygote lives on under later daemons.
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = command
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said: String = String::from_utf8_lossy(&output.stderr)
        .trim()
        .chars()
        .take(SAID_MAX_CHARS)
        .collect();
    Err(ShimError::LaunchRefused {
        said: if said.is_empty() {
            output.status.to_string()
        } else {
            said
        },
    })
}

//! `dhow worker`: a worker in the foreground, without a configuration file.

use std::ffi::OsString;

use dhow_wire::{ConfigSources, DaemonConfig, Findings, Setting, load_config};
use serde_json::json;

use super::daemon;
use crate::client::default_data_dir;
use crate::exit::Exit;
use crate::output;

/// Run a worker of a worker tier in the foreground
///
/// It joins the cluster once with its token, and is the same node ever after. `dhow daemon` with a configuration file
/// (`mode: worker-tier`, `role: worker`) does the same.
#[derive(clap::Args)]
#[command(
    after_help = "Variables: DHOW_DATA_DIR, DHOW_SOCKET, DHOW_API_ADDR, DHOW_LOG_LEVEL, DHOW_LOG_FORMAT."
)]
pub struct Args {
    /// The servers, for example https://10.0.0.1:3670,https://10.0.0.2:3670
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    servers: Vec<String>,

    /// The file with the token that `dhow token create-worker` printed; needed to join alone
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,

    /// Where all state is kept; one daemon per directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<OsString>,

    /// The Unix socket that says how the worker is
    #[arg(long, value_name = "PATH")]
    socket: Option<OsString>,

    /// Where the servers reach this worker for logs and commands; the address with which it reaches them, port 3669
    #[arg(long, value_name = "IP:PORT")]
    api_addr: Option<OsString>,

    /// A label of this node; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,

    /// How much is logged: error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<OsString>,

    /// How it is logged: text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<OsString>,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(label) = args.labels.iter().find(|label| !label.contains('=')) {
        output::failure(&format!("`{label}` is no label: write `--label KEY=VALUE`"));
        return Ok(Exit::BadInput);
    }
    match config(args) {
        Ok(running) => daemon::run_config(&running, Some(&|| config(args))),
        Err(findings) => {
            output::findings(&findings);
            Ok(Exit::BadInput)
        }
    }
}

/// What the same worker's configuration file would say.
fn config(args: &Args) -> Result<DaemonConfig, Findings> {
    let labels = args.labels.iter().filter_map(|label| label.split_once('='));
    let labels: serde_json::Map<_, _> = labels
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    let mut cluster = json!({ "mode": "worker-tier", "role": "worker", "servers": args.servers });
    if let Some(file) = &args.token_file {
        cluster["token_file"] = json!(file);
    }
    let text = json!({ "cluster": cluster, "labels": labels }).to_string();
    let given = [
        (Setting::DataDir, &args.data_dir),
        (Setting::Socket, &args.socket),
        (Setting::ApiAddr, &args.api_addr),
        (Setting::LogLevel, &args.log_level),
        (Setting::LogFormat, &args.log_format),
    ];
    let flags: Vec<_> = given
        .into_iter()
        .filter_map(|(setting, value)| Some((setting, value.clone()?)))
        .collect();
    load_config(&ConfigSources {
        file: Some(("the command line", &text)),
        env: &|name| std::env::var_os(name),
        flags: &flags,
        default_data_dir: &default_data_dir(),
    })
}

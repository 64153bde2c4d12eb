//! `dhow debug replay PATH`: makes states again from files, without a daemon.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use dhow_core::ids::Revision;
use dhow_server::plane::past::{PAST_DIR, Replay, ReplayEnd, ReplayError, replay};
use dhow_wire::backup::{BackupError, read_backup};

use crate::exit::Exit;
use crate::output;

/// Look into what the control plane has kept, without a daemon
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Apply the entries of a past again and compare what comes out with what was kept
    ///
    /// It prints the hash of the state in the end: every server that replays the same has the same. It stops where the
    /// feature level changes, because from there on other rules hold.
    Replay(ReplayArgs),
}

#[derive(clap::Args)]
struct ReplayArgs {
    /// A data directory, its folder `past` or a copy of that, one chapter of it, or a backup, which is one state
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Only up to this revision
    #[arg(long, value_name = "REVISION")]
    until: Option<u64>,

    /// Go on where the feature level changes
    #[arg(long)]
    across: bool,

    /// Print each entry with what became of it
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let Command::Replay(args) = &args.command;
    if args.path.is_file()
        && let Some(exit) = backup(&args.path)?
    {
        return Ok(exit);
    }
    let below = args.path.join(PAST_DIR);
    let asked = Replay {
        path: if below.is_dir() { below } else { args.path.clone() },
        until: args.until.map(Revision),
        across: args.across,
    };
    let mut broken = None;
    let done = replay(&asked, &mut |state, entry, result| {
        if !args.verbose || broken.is_some() {
            return;
        }
        let became = match result {
            Ok(outcome) => format!("{outcome:?}"),
            Err(refused) => format!("refused: {refused}"),
        };
        let name = format!("{:?}", entry.command);
        let name: String = name.chars().take_while(|c| !matches!(c, ' ' | '{')).collect();
        let line = format!(
            "{:<10} +{:<12} {name}: {became}\n",
            state.revision.0, entry.time.0
        );
        broken = output::data(&line).err();
    });
    if let Some(error) = broken {
        return Err(error);
    }
    let done = match done {
        Err(error @ ReplayError::Diverged { .. }) => {
            output::failure(&error.to_string());
            return Ok(Exit::Failed);
        }
        Err(ReplayError::Past(error)) => {
            output::failure(&error.told());
            return Ok(Exit::BadInput);
        }
        Err(error @ ReplayError::Empty(_)) => {
            output::failure(&error.to_string());
            return Ok(Exit::BadInput);
        }
        Ok(done) => done,
    };
    output::note(&format!(
        "replayed revisions {} to {}; the states of {} chapters are what came out",
        done.first, done.last, done.compared
    ));
    match done.end {
        ReplayEnd::All | ReplayEnd::Until => {}
        ReplayEnd::FeatureLevel { from, to } => output::note(&format!(
            "stopped before the entry that raises the feature level from {from} to {to}: other rules hold behind it; \
             --across goes on"
        )),
        ReplayEnd::Gap { from, to } => {
            output::note(&format!(
                "stopped at a gap: revisions {from} to {to} are not there"
            ));
        }
    }
    output::data(&format!("revision {}\nhash     {}\n", done.last, done.hash))?;
    Ok(Exit::Done)
}

/// A backup is one state: there is nothing to apply to it. None where the file is no backup.
fn backup(path: &Path) -> anyhow::Result<Option<Exit>> {
    let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let state = match read_backup(&bytes) {
        Ok(state) => state,
        Err(BackupError::NoBackup) => return Ok(None),
        Err(error) => {
            output::error(&anyhow::Error::new(error));
            return Ok(Some(Exit::BadInput));
        }
    };
    output::note("a backup is one state, with nothing to apply to it; the past of a server has the entries");
    let hash = state.hash();
    output::data(&format!("revision {}\nhash     {hash}\n", state.revision))?;
    Ok(Some(Exit::Done))
}

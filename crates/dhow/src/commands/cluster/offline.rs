//! `dhow cluster restore|recover`: a server's own files, while its daemon is stopped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use dhow_core::ids::{NodeId, Term};
use dhow_core::restart::{begin_anew, first_term, term_above};
use dhow_core::state::{ApiRole, NodeRole, State};
use dhow_server::plane::log::local;
use dhow_server::plane::log::raft::{OfflineRaft, RaftPeerAddrs, SeedTerms, seed};
use dhow_server::plane::log::recover_kept;
use dhow_server::plane::log::store::StoreOptions;
use dhow_server::plane::past::PAST_DIR;
use dhow_wire::backup::read_backup;
use dhow_wire::log_form::encode_snapshot;
use dhow_wire::{ClusterMode, DaemonConfig, RaftPeer, Setting};

use crate::commands::daemon::config_of;
use crate::daemon::data_dir::DataDir;
use crate::daemon::kept_log::KeptLog;
use crate::exit::Exit;
use crate::output;

/// Where the files of this server are.
#[derive(clap::Args)]
struct FilesArgs {
    /// The configuration file of this server's daemon
    #[arg(long, value_name = "FILE", env = "DHOW_CONFIG", hide_env = true)]
    config: Option<PathBuf>,

    /// Where all state is kept
    #[arg(long, value_name = "DIR")]
    data_dir: Option<OsString>,
}

/// Begin a cluster from a backup, on a server whose daemon is stopped
///
/// Run it with the same file on every server of the new cluster, with the key of the old one and the --config of the
/// daemon that is to start there, and start the daemons then. The directory of the log must be empty. Terms and node ids
/// go on far above those of the backup, tokens of workers are void, and the API tokens that work again are listed.
#[derive(clap::Args)]
pub struct RestoreArgs {
    /// What `dhow cluster backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Make a single node of it, also where the backup is of a cluster
    #[arg(long)]
    single_node: bool,

    #[command(flatten)]
    place: FilesArgs,
}

/// Make this server the only one of its cluster, after a majority was lost for good
///
/// Name the --config of its daemon, which says which server it is. What this server has counts from then on; what only
/// the lost ones had is gone. They must never be started again with the directories that they had. Terms and node ids go
/// on far above what this server knows, tokens of workers are void, and the API tokens that work again are listed.
#[derive(clap::Args)]
pub struct RecoverArgs {
    /// Says that the others are gone for good
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    place: FilesArgs,
}

/// The configuration, or the exit where it is wrong.
fn config(place: &FilesArgs) -> Result<DaemonConfig, Exit> {
    let flags: Vec<_> = place
        .data_dir
        .iter()
        .map(|dir| (Setting::DataDir, dir.clone()))
        .collect();
    config_of(place.config.as_deref(), &flags).map_err(|findings| {
        output::findings(&findings);
        Exit::BadInput
    })
}

pub fn restore(args: &RestoreArgs) -> anyhow::Result<Exit> {
    let config = match config(&args.place) {
        Ok(config) => config,
        Err(exit) => return Ok(exit),
    };
    let mut state = match saved(&args.file) {
        Ok(state) => state,
        Err(error) => {
            output::error(&error);
            return Ok(Exit::BadInput);
        }
    };
    if let Err(refused) = check_mode(args, &config.cluster, &state) {
        output::failure(&refused);
        return Ok(Exit::BadInput);
    }
    let now_unix_secs = now_unix_secs()?;
    begin_anew(&mut state);
    let _lock = DataDir::open(&config.data_dir, None)?;
    write(&config, &state, now_unix_secs)?;
    put_past_aside(&config.data_dir, now_unix_secs)?;
    output::note(&format!(
        "{} begins at revision {} with {} deployments; start the daemon",
        config.data_dir.display(),
        state.revision,
        state.deployments.len()
    ));
    tell_credentials(&state, now_unix_secs);
    Ok(Exit::Done)
}

/// The past of another beginning is not this one's: its revisions may mean something else.
fn put_past_aside(data_dir: &Path, now_unix_secs: i64) -> anyhow::Result<()> {
    let past = data_dir.join(PAST_DIR);
    if !past.is_dir() {
        return Ok(());
    }
    let aside = data_dir.join(format!("{PAST_DIR}.{now_unix_secs}"));
    std::fs::rename(&past, &aside).with_context(|| format!("{} cannot be put aside", past.display()))?;
    output::note(&format!(
        "the past that was kept here is in {}; `dhow debug replay` reads it, and whoever needs it no more deletes it",
        aside.display()
    ));
    Ok(())
}

/// A daemon reads the log of its own mode alone: the state of a cluster in the log of a single node would be lost on
/// whoever starts a server there.
fn check_mode(args: &RestoreArgs, mode: &ClusterMode, state: &State) -> Result<(), String> {
    let is_single = matches!(mode, ClusterMode::SingleNode {});
    if args.single_node && !is_single {
        let config = args.place.config.as_deref().unwrap_or(Path::new("CONFIG"));
        return Err(format!(
            "--single-node was given, and {} makes this a member of a cluster: leave one of them out",
            config.display()
        ));
    }
    if args.single_node || !is_single || !is_of_cluster(state) {
        return Ok(());
    }
    let file = args.file.display();
    let found = match &args.place.config {
        Some(config) => format!("{} makes this a single node", config.display()),
        None => "no configuration was named, which makes this a single node".to_owned(),
    };
    Err(format!(
        "{file} is the backup of a cluster, and {found}. Name the file that the daemon here is started with: `dhow cluster \
         restore {file} --config /etc/dhow.yaml`; or say --single-node to make a single node of it"
    ))
}

/// A single node is node 1, and no server.
fn is_of_cluster(state: &State) -> bool {
    let mut nodes = state.nodes.iter();
    nodes.any(|(id, node)| match node.info.role {
        NodeRole::Server | NodeRole::Worker => true,
        NodeRole::Peer => *id != NodeId(1),
    })
}

/// The state in a backup.
fn saved(file: &Path) -> anyhow::Result<State> {
    let path = file.display();
    let bytes = std::fs::read(file).with_context(|| format!("{path} cannot be read"))?;
    read_backup(&bytes).with_context(|| format!("{path} cannot be restored from"))
}

fn now_unix_secs() -> anyhow::Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let secs = since
        .context("the clock of this host is before 1970; set it first")?
        .as_secs();
    Ok(i64::try_from(secs)?)
}

/// Who may enter again, also where that was taken back after the state was saved.
fn tell_credentials(state: &State, now_unix_secs: i64) {
    let good: Vec<_> = state
        .api_tokens
        .iter()
        .filter(|(_, token)| !token.is_expired(now_unix_secs))
        .collect();
    if !good.is_empty() {
        output::note(
            "these API tokens work again; revoke with `dhow token revoke ID` what was revoked since:",
        );
    }
    for (id, token) in good {
        let role = match &token.role {
            ApiRole::Admin => "admin".to_owned(),
            ApiRole::Read => "read".to_owned(),
            ApiRole::Deploy(deployment) => format!("deploy of {deployment}"),
        };
        let until = match token.expires_unix_secs {
            Some(end) => format!("until {end} (Unix seconds)"),
            None => "for ever".to_owned(),
        };
        output::note(&format!("  {id}  {role}  {}  {until}", token.name));
    }
    if !state.tokens.is_empty() {
        output::note(&format!(
            "{} tokens of workers are void; `dhow token create-worker` makes new ones",
            state.tokens.len()
        ));
    }
}

/// Every server of a cluster writes the same state at the same place of its log; only the term that it has voted in is
/// its own.
fn write(config: &DaemonConfig, state: &State, now_unix_secs: i64) -> anyhow::Result<()> {
    let mut snapshot = Vec::new();
    encode_snapshot(state, &mut snapshot)?;
    let mut snapshot = snapshot.as_slice();
    let first_term = first_term(state.term, now_unix_secs).0;
    match servers(&config.cluster) {
        Some((node_id, peers)) => {
            let members = peers.iter().map(|peer| (peer.id, addrs(peer))).collect();
            let dir = KeptLog::Raft.dir(&config.data_dir);
            Ok(seed(
                &dir,
                StoreOptions::default(),
                node_id,
                members,
                SeedTerms {
                    log_term: term_above(state.term).0,
                    first_term,
                },
                &mut snapshot,
            )?)
        }
        None => match &config.cluster {
            ClusterMode::SingleNode {} => {
                let dir = KeptLog::SingleNode.dir(&config.data_dir);
                Ok(local::seed(
                    &dir,
                    StoreOptions::default(),
                    first_term,
                    &mut snapshot,
                )?)
            }
            ClusterMode::Static { .. } => {
                let dir = KeptLog::Static.dir(&config.data_dir);
                if let Some(parent) = dir.parent() {
                    std::fs::create_dir_all(parent)
                        .with_context(|| format!("{} cannot be made", parent.display()))?;
                }
                Ok(local::seed(
                    &dir,
                    StoreOptions::default(),
                    first_term,
                    &mut snapshot,
                )?)
            }
            ClusterMode::Raft { .. } | ClusterMode::WorkerTier { .. } => {
                anyhow::bail!("a backup is restored on a server or a peer, not on a worker")
            }
        },
    }
}

pub fn recover(args: &RecoverArgs) -> anyhow::Result<Exit> {
    let config = match config(&args.place) {
        Ok(config) => config,
        Err(exit) => return Ok(exit),
    };
    let Some((node_id, peers)) = servers(&config.cluster) else {
        output::failure(&nothing_to_recover(args, &config));
        return Ok(Exit::BadInput);
    };
    let own = peers.iter().find(|peer| peer.id == node_id);
    let own = own.context("`peers` does not name this server")?;
    if !args.yes {
        output::failure(&format!(
            "this would make node {node_id} the only server: what only the others had is lost, and they may never \
             come back as they are. Say --yes if they are gone for good"
        ));
        return Ok(Exit::BadInput);
    }
    let _lock = DataDir::open(&config.data_dir, None)?;
    let dir = KeptLog::Raft.dir(&config.data_dir);
    let log = OfflineRaft::open(&dir, StoreOptions::default(), node_id)?;
    let kept = log.read()?;
    let mut state = recover_kept(&kept).context("the state of this server cannot be read")?;
    let now_unix_secs = now_unix_secs()?;
    let term = first_term(state.term.max(Term(kept.term)), now_unix_secs);
    begin_anew(&mut state);
    let mut snapshot = Vec::new();
    encode_snapshot(&state, &mut snapshot)?;
    let others = peers.iter().map(|peer| peer.id);
    log.force_single(addrs(own), others, term.0, &mut snapshot.as_slice())?;
    put_past_aside(&config.data_dir, now_unix_secs)?;
    output::note(&format!(
        "node {node_id} is the only server now: start its daemon, remove the nodes that are gone with `dhow node rm \
         --force`, and take new servers in with `dhow cluster add`"
    ));
    tell_credentials(&state, now_unix_secs);
    Ok(Exit::Done)
}

/// Why this is no server: which one it is stands in its daemon's configuration alone.
fn nothing_to_recover(args: &RecoverArgs, config: &DaemonConfig) -> String {
    let (raft, dir) = (KeptLog::Raft, &config.data_dir);
    match (&args.place.config, raft.is_in(dir)) {
        (Some(config), _) => format!(
            "{} does not make this a server of a raft cluster: there is nothing to recover",
            config.display()
        ),
        (None, true) => format!(
            "{} is the log of a server, and no configuration says which one this is. Name the file that its daemon is \
             started with: `dhow cluster recover --yes --config /etc/dhow.yaml`",
            raft.dir(dir).display()
        ),
        (None, false) => format!(
            "{} has no log of a raft cluster. Name the file that the server's daemon is started with: `dhow cluster \
             recover --yes --config /etc/dhow.yaml`",
            dir.display()
        ),
    }
}

/// This server's id and all servers, in the modes that have a raft log.
fn servers(mode: &ClusterMode) -> Option<(u64, &[RaftPeer])> {
    match mode {
        ClusterMode::Raft { node_id, peers } => Some((*node_id, peers)),
        ClusterMode::WorkerTier {
            node_id: Some(node_id),
            peers,
            ..
        } if mode.is_worker_tier_server() => Some((*node_id, peers)),
        ClusterMode::SingleNode {} | ClusterMode::Static { .. } | ClusterMode::WorkerTier { .. } => None,
    }
}

fn addrs(peer: &RaftPeer) -> RaftPeerAddrs {
    RaftPeerAddrs {
        raft_addr: peer.raft_addr,
        api_addr: peer.api_addr,
    }
}

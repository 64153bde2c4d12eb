//! The container driver: a replica is an image's file system, namespaces of its own and a control group, made
//! by an OCI runtime under a shim.
//!
//! Called by the agent through [`Driver`]. It needs root, a runtime (`crun`, `runc` or `youki`) and overlayfs,
//! and says in [`Driver::probe`] what of these is missing. No other daemon is needed, and none of its state is in
//! memory alone: the replica's folder is made first and removed last, everything else of a replica is named
//! after it, and [`ContainerDriver::open`] clears what an earlier daemon left half-made. Starts share no lock.
//!
//! ```text
//! <run dir>/<replica>/      records and logs (see `shim::record`), upper, work, rootfs (mounted); in `names`
//!                           hosts, hostname, resolv.conf
//! <data dir>/network.json   the bridge's name and subnet
//! <tmpfs>/bundles/<id>/     config.json with secrets
//! <tmpfs>/runtime/<id>/     what the runtime knows
//! <tmpfs>/netns/<id>        the network namespace
//! <tmpfs>/addresses/<n>     a link to the id that has the address
//! ```
//!
//! It must never run anything of an image in the daemon, never write a secret to a disk, and never change the
//! namespaces of a thread that others use.

mod bundle;
mod capabilities;
mod command;
mod devices;
mod exec;
mod failure;
mod filters;
mod images;
mod mounts;
mod names;
mod network;
mod oci;
mod release;
pub(crate) mod root_view;
mod runtime;
mod seccomp;
mod start;
mod support;
mod sweep;
mod user;
mod volatile;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dhow_core::ids::ReplicaName;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::cgroup::{CgroupHost, Usage};
use crate::driver::{
    Capabilities, Cause, Connection, Driver, DriverResult, ExecRequest, ExecSession, Exit, LogSource,
    Pending, Preparation, Prepared, ProgressSink, ReplicaStart, ReplicaStatus, Running, Stage, StopRequest,
    StopSignal, error_chain,
};
use crate::image::{Digest, Images, Rootfs};
use crate::shim::replica_dirs::dir_name;
use crate::shim::stop::blocking;
use crate::shim::{ReplicaDirs, ShimClient, SignalTarget};

use filters::Filters;
pub use names::host_name_servers;
use network::Network;
pub use network::{BridgeConfig, ServiceNetwork, Subnet, SubnetError};
use runtime::Runtime;
use volatile::Volatile;

/// Groups of containers beside those of processes, which a driver of its own looks after.
const LEAF_PREFIX: &str = "c.";

/// What the daemon opens the container driver with.
pub struct ContainerConfig {
    /// Where the replicas' folders are, with what they write; this driver's alone.
    pub run_dir: PathBuf,
    /// The daemon's: names of devices and the subnet are derived from it and kept in it.
    pub data_dir: PathBuf,
    /// On a memory-backed file system, for what may hold secrets; below `/run` or `/dev/shm` by default.
    pub volatile_dir: Option<PathBuf>,
    pub shim: Arc<ShimClient>,
    pub cgroups: Arc<CgroupHost>,
    pub images: Images,
    pub network: BridgeConfig,
    /// A name or a path; by default the fastest known one that works.
    pub runtime: Option<String>,
}

/// Runs containers. A cheap handle on what is on disk.
#[derive(Clone)]
pub struct ContainerDriver {
    inner: Arc<ContainerParts>,
}

/// What all clones of a driver work with.
struct ContainerParts {
    dirs: ReplicaDirs,
    volatile: Volatile,
    shim: Arc<ShimClient>,
    cgroups: Arc<CgroupHost>,
    images: Images,
    network: Network,
    wanted_runtime: Option<String>,
    runtime: OnceCell<Runtime>,
    filters: Filters,
}

impl ContainerDriver {
    /// Opens the driver and clears what an earlier daemon left. Blocks, longer the more there is to clear.
    pub fn open(config: ContainerConfig) -> DriverResult<Self> {
        let at = |cause: Cause| cause.at_host(Stage::Open);
        let absolute = |dir: &PathBuf| std::path::absolute(dir).map_err(Cause::file("finding", dir));
        let run_dir = absolute(&config.run_dir).map_err(at)?;
        let data_dir = absolute(&config.data_dir).map_err(at)?;
        let dirs = ReplicaDirs::open(&run_dir).map_err(at)?;
        // Without root nothing is ever started: the probe says so.
        let is_root = nix::unistd::geteuid().is_root();
        let unused = (!is_root).then(|| run_dir.join(".volatile"));
        let wanted = config.volatile_dir.or(unused);
        let volatile = Volatile::open(wanted.as_deref(), &run_dir).map_err(at)?;
        let network = Network::open(config.network, &data_dir, volatile.dir()).map_err(at)?;
        let driver = Self {
            inner: Arc::new(ContainerParts {
                dirs,
                volatile,
                shim: config.shim,
                cgroups: config.cgroups,
                images: config.images,
                network,
                wanted_runtime: config.runtime,
                runtime: OnceCell::new(),
                filters: Filters::default(),
            }),
        };
        if is_root {
            driver.sweep_all().map_err(at)?;
        }
        Ok(driver)
    }

    /// Does again what opening did: clears what no replica has any more.
    pub async fn sweep(&self) -> DriverResult<()> {
        let driver = self.clone();
        let swept = blocking(move || driver.sweep_all()).await;
        swept.map_err(|cause| cause.at_host(Stage::Remove))
    }

    /// The images whose layers are mounted or will be again: not to be pruned.
    pub async fn images_in_use(&self) -> DriverResult<Vec<Digest>> {
        let dirs = self.inner.dirs.clone();
        let found = blocking(move || {
            let names = dirs.names()?;
            let mounted = names
                .iter()
                .filter_map(|name| Rootfs::load(&dirs.dir(name)).ok().flatten());
            Ok(mounted.map(|rootfs| rootfs.image()).collect())
        });
        found.await.map_err(|cause| cause.at_host(Stage::List))
    }

    /// Where containers reach services by name, made at the first call; or why they do not.
    pub async fn service_network(&self) -> Result<ServiceNetwork, String> {
        let why = match self.inner.network.services().await {
            Ok(Some(Ok(services))) => return Ok(services.clone()),
            Ok(Some(Err(why))) => why.clone(),
            Ok(None) => "no range of addresses is set for services".to_owned(),
            Err(cause) => error_chain(&cause),
        };
        Err(format!("containers do not reach services by name: {why}"))
    }

    /// Removes the bridge and everything on memory, for the end of all use. No replica may be left.
    pub async fn remove_host_state(&self) -> DriverResult<()> {
        let driver = self.clone();
        let removed = blocking(move || {
            driver.inner.network.remove()?;
            driver.inner.volatile.remove()
        });
        removed.await.map_err(|cause| cause.at_host(Stage::Remove))
    }

    /// The runtime that was found to work here, once it was probed.
    pub fn runtime_path(&self) -> Option<&Path> {
        self.inner.runtime.get().map(|runtime| runtime.path.as_path())
    }

    /// The runtime that works here, tried out at the first call.
    async fn runtime(&self) -> Result<&Runtime, Cause> {
        let inner = &self.inner;
        let find = || async {
            support::missing(&inner.cgroups)?;
            Runtime::find(
                inner.wanted_runtime.as_deref(),
                &inner.shim,
                &inner.cgroups,
                &inner.volatile,
            )
            .await
        };
        inner.runtime.get_or_try_init(find).await
    }

    async fn probe_host(&self) -> Capabilities {
        let limits = support::limits(&self.inner.cgroups);
        let mut notices = support::limit_notices(limits, &self.inner.cgroups);
        let mut available = true;
        if let Err(cause) = self.runtime().await {
            available = false;
            notices.push(error_chain(&cause));
        } else {
            match self.inner.network.bridge().await {
                Ok(bridge) => {
                    notices.extend(bridge.notices.iter().cloned());
                    notices.extend(self.service_network().await.err());
                }
                Err(cause) => {
                    available = false;
                    notices.push(error_chain(&cause));
                }
            }
        }
        Capabilities {
            available,
            limits,
            notices,
        }
    }

    async fn prepare_image(
        &self,
        what: &Preparation,
        progress: &dyn ProgressSink,
    ) -> Result<Prepared, Cause> {
        support::check(&what.spec)?;
        let image = images::obtain(&self.inner.images, what.spec.image.as_ref(), progress).await?;
        Ok(Prepared {
            image_digest: Some(image.digest().to_string()),
        })
    }

    async fn stop_replica(&self, name: &ReplicaName, how: StopRequest) -> Result<Exit, Cause> {
        let group = self.group(name)?;
        let exit = self
            .inner
            .dirs
            .stop(name, how, SignalTarget::Main, Some(&group))
            .await?;
        Ok(self.after_end(name, exit).await)
    }

    async fn remove_replica(&self, name: &ReplicaName) -> Result<(), Cause> {
        let group = self.group(name)?;
        let (driver, owned, held) = (self.clone(), name.clone(), group.clone());
        let clear = move || driver.release(&owned, &held);
        self.inner.dirs.remove_with(name, Some(&group), clear).await
    }

    async fn address_of(&self, name: &ReplicaName) -> Result<Option<IpAddr>, Cause> {
        match self.inner.dirs.status(name)? {
            ReplicaStatus::Running(_) => {}
            ReplicaStatus::Starting | ReplicaStatus::Ended(_) => return Err(Cause::NotRunning),
        }
        let (driver, id) = (self.clone(), container_id(name));
        let address = blocking(move || driver.inner.network.address(&id)).await?;
        Ok(address.map(IpAddr::V4))
    }

    async fn connect_to(&self, name: &ReplicaName, port: u16) -> Result<Connection, Cause> {
        let address = self.address_of(name).await?.ok_or(Cause::NotRunning)?;
        let stream = TcpStream::connect((address, port)).await;
        stream
            .map(Connection::Left)
            .map_err(|source| Cause::Port { port, source })
    }

    fn usage_of(&self, name: &ReplicaName) -> Result<Usage, Cause> {
        match self.inner.dirs.status(name)? {
            ReplicaStatus::Running(_) => {}
            ReplicaStatus::Starting | ReplicaStatus::Ended(_) => return Err(Cause::NotRunning),
        }
        let usage = self.group(name)?.usage();
        usage.ok_or_else(|| Cause::Unsupported {
            field: "usage",
            why: "this host counts neither memory nor CPU time of groups".into(),
        })
    }
}

/// The name of a replica's container: readable, short enough for every tool, and its own.
fn container_id(name: &ReplicaName) -> String {
    const READABLE_MAX_BYTES: usize = 40;
    let mut id = name.id();
    id.truncate(READABLE_MAX_BYTES);
    format!("{id}-{:016x}", network::hash(&dir_name(name)))
}

fn leaf(name: &ReplicaName) -> String {
    leaf_of(&container_id(name))
}

fn leaf_of(id: &str) -> String {
    format!("{LEAF_PREFIX}{id}")
}

impl Driver for ContainerDriver {
    fn probe(&self) -> Pending<'_, Capabilities> {
        Box::pin(self.probe_host())
    }

    fn prepare<'a>(
        &'a self,
        what: &'a Preparation,
        progress: &'a dyn ProgressSink,
    ) -> Pending<'a, DriverResult<Prepared>> {
        Box::pin(async {
            let prepared = self.prepare_image(what, progress).await;
            prepared.map_err(|cause| cause.at_host(Stage::Prepare))
        })
    }

    fn start<'a>(&'a self, start: &'a ReplicaStart) -> Pending<'a, DriverResult<Running>> {
        Stage::Start.of(&start.name, self.start_replica(start))
    }

    fn list(&self) -> Pending<'_, DriverResult<Vec<(ReplicaName, ReplicaStatus)>>> {
        Box::pin(async {
            let dirs = self.inner.dirs.clone();
            let listed = blocking(move || dirs.list()).await;
            listed.map_err(|cause| cause.at_host(Stage::List))
        })
    }

    fn inspect<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<ReplicaStatus>> {
        Box::pin(async {
            let status = self.inner.dirs.status(name);
            status.map_err(|cause| cause.at(Stage::Inspect, name))
        })
    }

    fn wait<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Exit>> {
        Box::pin(async {
            match self.inner.dirs.wait(name).await {
                Ok(exit) => Ok(self.after_end(name, exit).await),
                Err(cause) => Err(cause.at(Stage::Wait, name)),
            }
        })
    }

    fn stop<'a>(&'a self, name: &'a ReplicaName, how: StopRequest) -> Pending<'a, DriverResult<Exit>> {
        Stage::Stop.of(name, self.stop_replica(name, how))
    }

    fn signal<'a>(&'a self, name: &'a ReplicaName, signal: StopSignal) -> Pending<'a, DriverResult<()>> {
        Box::pin(async move {
            let sent = self.inner.dirs.signal(name, signal.signal(), SignalTarget::Main);
            sent.map_err(|cause| cause.at(Stage::Stop, name))
        })
    }

    fn exec<'a>(
        &'a self,
        name: &'a ReplicaName,
        request: ExecRequest,
    ) -> Pending<'a, DriverResult<ExecSession>> {
        Stage::Exec.of(name, self.exec_in(name, request))
    }

    fn connect<'a>(&'a self, name: &'a ReplicaName, port: u16) -> Pending<'a, DriverResult<Connection>> {
        Stage::Connect.of(name, self.connect_to(name, port))
    }

    fn address<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Option<IpAddr>>> {
        Stage::Inspect.of(name, self.address_of(name))
    }

    fn usage<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<Usage>> {
        Box::pin(async {
            let (driver, owned) = (self.clone(), name.clone());
            let usage = blocking(move || driver.usage_of(&owned)).await;
            usage.map_err(|cause| cause.at(Stage::Usage, name))
        })
    }

    fn logs<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<LogSource>> {
        Box::pin(async {
            if !self.inner.dirs.exists(name) {
                return Err(Cause::NoSuchReplica.at(Stage::Logs, name));
            }
            Ok(LogSource::Files(self.inner.dirs.log_dir(name)))
        })
    }

    fn remove<'a>(&'a self, name: &'a ReplicaName) -> Pending<'a, DriverResult<()>> {
        Stage::Remove.of(name, self.remove_replica(name))
    }
}

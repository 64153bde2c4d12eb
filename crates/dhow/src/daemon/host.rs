//! What this host gives the agent: drivers, images, the balancer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use dhow_agent::proxy::{Dns, ProxyConfig, RelayDuty, Trusted};
use dhow_agent::{Balancer, Drivers, NodeBalancer, NodeNetwork, WebPorts};
use dhow_driver::cgroup::{CgroupError, CgroupHost};
use dhow_driver::container::{
    BridgeConfig, ContainerConfig, ContainerDriver, ServiceNetwork, Subnet, host_name_servers,
};
use dhow_driver::driver::{Driver, error_chain};
use dhow_driver::image::{Images, ImagesOptions, Logins};
use dhow_driver::process::{ProcessConfig, ProcessDriver};
use dhow_driver::shim::{ShimClient, ShimConfig, strays};
use dhow_driver::unavailable::UnavailableDriver;
use dhow_wire::{DaemonConfig, NetworkConfig, RegistryConfig};

use super::data_dir::LeadsTo;
use super::door_images::ImageDoor;

/// What the daemon opens on this machine before its agent starts: drivers, images, the balancer and control groups. The
/// daemon gives them to the agent and to the doors of the API.
pub struct HostParts {
    pub data_dir: PathBuf,
    pub drivers: Drivers,
    pub images: ImageDoor,
    pub balancer: Arc<dyn Balancer>,
    shim: Arc<ShimClient>,
    containers: Option<ContainerDriver>,
    cgroups: Arc<CgroupHost>,
}

impl HostParts {
    pub async fn open(config: &DaemonConfig) -> anyhow::Result<Self> {
        let data_dir = std::path::absolute(&config.data_dir).context("the data directory has no path")?;
        let (network, registries) = (config.network.clone(), config.registries.clone());
        let opening = tokio::task::spawn_blocking(move || Opened::open(&data_dir, &network, registries));
        let opened = opening.await??;
        let mut names = None;
        if let Some(containers) = &opened.containers {
            for notice in containers.probe().await.notices {
                tracing::info!(notice, "containers");
            }
            // Why there is none was one of the notices.
            names = containers.service_network().await.ok();
        }
        let network = config.network.clone();
        tokio::task::spawn_blocking(move || opened.with_balancer(&network, names))
            .await
            .context("a task of the daemon ended early")
    }

    /// The program that makes containers here, or that there is none.
    pub fn container_runtime(&self) -> String {
        let path = self.containers.as_ref().and_then(ContainerDriver::runtime_path);
        path.map_or_else(|| "none".to_owned(), |path| path.display().to_string())
    }

    /// Ends and gives up what only replicas needed, where none is left. What is found by a path that leads elsewhere by
    /// now is another daemon's.
    pub async fn rest(&self, data_dir: LeadsTo) {
        match data_dir {
            LeadsTo::Own => self.rest_after_replicas().await,
            LeadsTo::Nothing => self.rest_without_dir().await,
            LeadsTo::Another => {}
        }
    }

    /// Ends what this node serves for others too, before [`Self::rest`]: it is none of its cluster's any more. Public ports
    /// answer on every node, so that the balancer also runs where no replica does.
    pub async fn leave(&self, data_dir: LeadsTo) {
        match data_dir {
            LeadsTo::Own => {
                let (processes, containers) = self.replicas().await;
                if processes + containers == 0 {
                    self.balancer.leave().await;
                }
            }
            // Nothing says there what is whose.
            LeadsTo::Nothing | LeadsTo::Another => {}
        }
    }

    /// The host programs and the containers that are left; one where that cannot be told.
    async fn replicas(&self) -> (usize, usize) {
        let processes = self.drivers.process.list().await.map_or(1, |found| found.len());
        let containers = self.drivers.container.list().await.map_or(1, |found| found.len());
        (processes, containers)
    }

    async fn rest_after_replicas(&self) {
        let (processes, containers) = self.replicas().await;
        if containers == 0 {
            self.remove_network().await;
        }
        if processes + containers > 0 {
            return;
        }
        if let Err(error) = self.shim.stop_zygote().await {
            tracing::debug!(%error, "the helper that starts replicas could not be ended");
        }
        let cgroups = Arc::clone(&self.cgroups);
        let removing = tokio::task::spawn_blocking(move || remove_groups(&cgroups));
        if let Ok(Err(error)) = removing.await {
            tracing::debug!(%error, "control groups are left");
        }
    }

    /// The same where nothing says any more what runs: whoever has a group of its own does.
    async fn rest_without_dir(&self) {
        let cgroups = Arc::clone(&self.cgroups);
        let removing = tokio::task::spawn_blocking(move || {
            let replicas = cgroups.leaves().into_iter().any(|leaf| leaf != ShimConfig::GROUP);
            if replicas || !cgroups.is_usable() {
                return Ok(false);
            }
            // The helper that starts replicas, which nobody could find again.
            cgroups.group(ShimConfig::GROUP).kill_and_wait()?;
            remove_groups(&cgroups).map(|()| true)
        });
        match removing.await {
            Ok(Ok(true)) => self.remove_network().await,
            Ok(Ok(false)) => tracing::warn!("what runs here is left: a daemon on the same directory ends it"),
            Ok(Err(error)) => tracing::debug!(%error, "control groups are left"),
            Err(error) => tracing::debug!(%error, "control groups are left"),
        }
    }

    async fn remove_network(&self) {
        if let Some(driver) = &self.containers
            && let Err(error) = driver.remove_host_state().await
        {
            tracing::debug!(
                error = error_chain(&error),
                "the network of the containers is left"
            );
        }
    }
}

/// What is opened before it is known how containers reach services by name.
struct Opened {
    data_dir: PathBuf,
    drivers: Drivers,
    images: ImageDoor,
    proxy: ProxyConfig,
    shim: Arc<ShimClient>,
    containers: Option<ContainerDriver>,
    cgroups: Arc<CgroupHost>,
}

impl Opened {
    fn open(data_dir: &Path, network: &NetworkConfig, registries: RegistryConfig) -> anyhow::Result<Self> {
        let cgroups = Arc::new(CgroupHost::detect(&CgroupHost::parent_name(data_dir)));
        let run_dirs = ["process", "container", "proxy/run"].map(|dir| data_dir.join(dir));
        strays::report(&strays::sweep(&cgroups, &run_dirs));
        let shim = ShimClient::new(ShimConfig::new(data_dir.join("shim"), &cgroups));
        let shim = Arc::new(shim.context("replicas cannot be supervised here")?);
        let process = ProcessDriver::open(ProcessConfig {
            run_dir: data_dir.join("process"),
            shim: Arc::clone(&shim),
            cgroups: Arc::clone(&cgroups),
        });
        let process: Arc<dyn Driver> = Arc::new(process.context("host programs cannot be run here")?);
        let proxy = ProxyConfig::new(data_dir.join("proxy"), Arc::clone(&shim));
        let proxy = proxy.context("the balancer cannot be set up")?;
        let bridge = BridgeConfig {
            services: Subnet::new(network.range.base(), network.range.prefix()),
            proxy_user: Some(proxy.user()),
            ..BridgeConfig::default()
        };
        let logins = Logins::default();
        let (container, images, containers): (Arc<dyn Driver>, _, _) =
            match open_containers(data_dir, (registries, &logins), &shim, &cgroups, bridge) {
                Ok((driver, images)) => (Arc::new(driver.clone()), images_of(&driver, images), Some(driver)),
                Err(why) => {
                    tracing::info!(why, "containers cannot run here");
                    let driver = UnavailableDriver::new("image", why.clone());
                    (Arc::new(driver), ImageDoor::without(why), None)
                }
            };
        Ok(Self {
            data_dir: data_dir.to_owned(),
            drivers: Drivers {
                process,
                container,
                logins,
            },
            images,
            proxy,
            shim,
            containers,
            cgroups,
        })
    }

    /// The balancer takes up what an earlier daemon left. Blocks.
    fn with_balancer(self, network: &NetworkConfig, names: Option<ServiceNetwork>) -> HostParts {
        let proxy = ProxyConfig {
            namespace: names.as_ref().map(|names| names.namespace.clone()),
            ..self.proxy
        };
        let network = NodeNetwork {
            dir: self.data_dir.join("network"),
            range: network.range,
            ingress_addr: network.ingress_addr,
            web: WebPorts {
                http: network.http_port,
                https: network.https_port,
            },
            trusted: Trusted {
                forwarded: network.trusted_proxies.clone(),
                header: network.proxy_protocol_from.clone(),
            },
            relay: RelayDuty {
                bytes_per_second: network.relay_limit.0,
            },
            dns: names.map(|names| Dns {
                addr: names.dns,
                upstream: host_name_servers(),
                host: names.host,
            }),
        };
        HostParts {
            data_dir: self.data_dir,
            drivers: self.drivers,
            images: self.images,
            balancer: Arc::new(NodeBalancer::open(proxy, network)),
            shim: self.shim,
            containers: self.containers,
            cgroups: self.cgroups,
        }
    }
}

/// The next daemon makes them anew; those that something is still in stay. Blocks.
fn remove_groups(cgroups: &CgroupHost) -> Result<(), CgroupError> {
    let mut leaves = cgroups.leaves().into_iter();
    leaves
        .try_for_each(|leaf| cgroups.group(&leaf).remove())
        .and_then(|()| cgroups.remove_parents())
}

/// The container driver and its images, or why this host has none.
fn open_containers(
    data_dir: &Path,
    (registries, logins): (RegistryConfig, &Logins),
    shim: &Arc<ShimClient>,
    cgroups: &Arc<CgroupHost>,
    network: BridgeConfig,
) -> Result<(ContainerDriver, Images), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("containers need root: run the daemon as root, or use `runtime: process`".into());
    }
    let mut options = ImagesOptions::new(data_dir.join("images"));
    options.registries.insecure = registries.insecure;
    options.registries.authority_files = registries.authority_files;
    options.registries.logins = logins.clone();
    let images = Images::open(options);
    let images = images.map_err(|error| error_chain(&error))?;
    let driver = ContainerDriver::open(ContainerConfig {
        run_dir: data_dir.join("container"),
        data_dir: data_dir.to_owned(),
        volatile_dir: None,
        shim: Arc::clone(shim),
        cgroups: Arc::clone(cgroups),
        images: images.clone(),
        network,
        runtime: std::env::var("DHOW_RUNTIME").ok().filter(|name| !name.is_empty()),
    });
    Ok((driver.map_err(|error| error_chain(&error))?, images))
}

fn images_of(driver: &ContainerDriver, images: Images) -> ImageDoor {
    let driver = driver.clone();
    ImageDoor::new(
        images,
        Arc::new(move || {
            let driver = driver.clone();
            Box::pin(async move {
                let used = driver.images_in_use().await;
                used.map(|digests| digests.into_iter().collect())
                    .map_err(|error| error_chain(&error))
            })
        }),
    )
}

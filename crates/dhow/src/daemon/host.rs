//! What this host gives the agent: drivers, images, the balancer.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use dhow_agent::proxy::ProxyConfig;
use dhow_agent::{Balancer, Drivers, NodeBalancer};
use dhow_driver::cgroup::CgroupHost;
use dhow_driver::driver::Driver;
use dhow_driver::process::{ProcessConfig, ProcessDriver};
use dhow_driver::shim::{ShimClient, ShimConfig};
use dhow_driver::unavailable::UnavailableDriver;
use dhow_wire::DaemonConfig;

use super::door_images::ImageDoor;

/// See the module.
pub struct Host {
    pub drivers: Drivers,
    pub images: ImageDoor,
    pub balancer: Arc<dyn Balancer>,
    shim: Arc<ShimClient>,
    cgroups: Arc<CgroupHost>,
}

impl Host {
    pub async fn open(config: &DaemonConfig) -> anyhow::Result<Self> {
        let data_dir = std::path::absolute(&config.data_dir).context("the data directory has no path")?;
        tokio::task::spawn_blocking(move || Self::open_blocking(&data_dir)).await?
    }

    /// Ends the helper that starts replicas and removes the control groups, where no replica is left that needs
    /// them.
    pub async fn rest(&self) {
        let left = self.drivers.process.list().await.map_or(1, |found| found.len())
            + self.drivers.container.list().await.map_or(1, |found| found.len());
        if left > 0 {
            return;
        }
        if let Err(error) = self.shim.stop_zygote().await {
            tracing::debug!(%error, "the helper that starts replicas could not be ended");
        }
        // The next daemon makes them anew; those that something is still in stay.
        let cgroups = Arc::clone(&self.cgroups);
        let removing = tokio::task::spawn_blocking(move || {
            let mut leaves = cgroups.leaves().into_iter();
            leaves
                .try_for_each(|leaf| cgroups.group(&leaf).remove())
                .and_then(|()| cgroups.remove_parents())
        });
        if let Ok(Err(error)) = removing.await {
            tracing::debug!(%error, "control groups are left");
        }
    }

    fn open_blocking(data_dir: &std::path::Path) -> anyhow::Result<Self> {
        let cgroups = Arc::new(CgroupHost::detect(&CgroupHost::parent_name(data_dir)));
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
        let why = "containers cannot run here";
        let container: Arc<dyn Driver> = Arc::new(UnavailableDriver::new("image", why));
        let used = Arc::new(|| -> futures_util::future::BoxFuture<'static, BTreeSet<_>> {
            Box::pin(async { BTreeSet::new() })
        });
        Ok(Self {
            drivers: Drivers { process, container },
            images: ImageDoor::new(Err(why.to_owned()), used),
            balancer: Arc::new(NodeBalancer::open(proxy)),
            shim,
            cgroups,
        })
    }
}

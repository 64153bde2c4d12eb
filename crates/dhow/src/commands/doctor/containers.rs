//! Whether containers run here. The driver that the daemon would use is opened on a folder of its own and tried out, with
//! a trial container and a bridge; all of it is removed again.

use std::sync::Arc;

use anyhow::Context;
use dhow_driver::cgroup::CgroupHost;
use dhow_driver::container::{BridgeConfig, ContainerConfig, ContainerDriver};
use dhow_driver::driver::{Driver, error_chain};
use dhow_driver::image::{Images, ImagesOptions};
use dhow_driver::shim::{ShimClient, ShimConfig};

use super::Found;

const INSTALL: &str =
    "apt-get install crun (or runc), and nftables for services that find each other by name";

pub(super) async fn all() -> Vec<Found> {
    if !nix::unistd::geteuid().is_root() {
        return vec![Found::lacks(
            "containers",
            "not tried: they need root",
            "run this with sudo",
        )];
    }
    match tried_out().await {
        Ok(found) => found,
        Err(error) => vec![Found::lacks(
            "containers",
            format!("they could not be tried out: {error:#}"),
            INSTALL,
        )],
    }
}

async fn tried_out() -> anyhow::Result<Vec<Found>> {
    let dir = std::env::temp_dir().join(format!("dhow-doctor-{}", std::process::id()));
    std::fs::create_dir(&dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    let cgroups = Arc::new(CgroupHost::detect(&CgroupHost::parent_name(&dir)));
    let shim = Arc::new(ShimClient::new(ShimConfig::new(dir.join("shim"), &cgroups))?);
    let images = Images::open(ImagesOptions::new(dir.join("images")))?;
    let opened = ContainerDriver::open(ContainerConfig {
        run_dir: dir.join("container"),
        data_dir: dir.clone(),
        volatile_dir: None,
        shim: Arc::clone(&shim),
        cgroups: Arc::clone(&cgroups),
        images,
        network: BridgeConfig::default(),
        runtime: std::env::var("DHOW_RUNTIME").ok().filter(|name| !name.is_empty()),
    });
    let found = match &opened {
        Ok(driver) => probed(driver).await,
        Err(error) => vec![Found::lacks("containers", error_chain(error), INSTALL)],
    };
    // What is left of a trial is told to nobody but whoever looks for it: the next one has a folder of its own.
    if let Ok(driver) = &opened {
        let _ = driver.remove_host_state().await;
    }
    let _ = shim.stop_zygote().await;
    let _ = cgroups
        .leaves()
        .into_iter()
        .try_for_each(|leaf| cgroups.group(&leaf).remove());
    let _ = cgroups.remove_parents();
    let _ = std::fs::remove_dir_all(&dir);
    Ok(found)
}

async fn probed(driver: &ContainerDriver) -> Vec<Found> {
    let capabilities = driver.probe().await;
    let notices = capabilities.notices.join("; ");
    if !capabilities.available {
        return vec![Found::lacks("containers", notices, INSTALL)];
    }
    let runtime = driver.runtime_path().map(|path| path.display().to_string());
    let runtime = runtime.unwrap_or_default();
    let mut found = vec![Found::ok(
        "containers",
        format!("{runtime} makes them, and a trial container ran"),
    )];
    let limits = capabilities.limits;
    let all = [limits.memory, limits.cpu, limits.pids];
    let are_kept = all
        .iter()
        .all(|how| *how == dhow_driver::driver::Enforcement::Whole);
    found.push(match are_kept {
        true => Found::ok("limits", "memory, cpu and pids are kept by control groups"),
        false => Found::lacks(
            "limits",
            notices,
            "mount the missing controllers of the control groups",
        ),
    });
    found.push(nft());
    found
}

/// Containers of one deployment are kept from those of another by its rules.
fn nft() -> Found {
    let known = [
        "/usr/sbin/nft",
        "/sbin/nft",
        "/usr/bin/nft",
        "/usr/local/sbin/nft",
    ];
    match known.iter().find(|path| std::path::Path::new(path).exists()) {
        Some(path) => Found::ok("nftables", *path),
        None => Found::lacks(
            "nftables",
            "nft is not installed: containers do not reach services by name",
            "apt-get install nftables",
        ),
    }
}

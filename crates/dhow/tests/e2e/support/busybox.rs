//! Containers of busybox, which needs no registry.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::Service;

/// A layout with busybox under its names, or why there is none.
pub fn busybox_layout(dir: &Path) -> Result<PathBuf, String> {
    let script = "set -e; mkdir -p rootfs/bin rootfs/tmp rootfs/etc rootfs/proc rootfs/sys rootfs/dev; \
        cp \"$(command -v busybox)\" rootfs/bin/; chroot rootfs /bin/busybox --install -s /bin; \
        umoci init --layout oci; umoci new --image oci:bb; umoci insert --image oci:bb rootfs /; \
        umoci config --image oci:bb --config.env PATH=/bin";
    let made = Command::new("sh").args(["-c", script]).current_dir(dir).output();
    let made = made.map_err(|error| error.to_string())?;
    match made.status.success() {
        true => Ok(dir.join("oci")),
        false => Err(String::from_utf8_lossy(&made.stderr).into_owned()),
    }
}

/// A container that runs a script.
pub fn container(layout: &Path, script: &str) -> Service {
    Service::shell(script)
        .with("image", json!(format!("oci:{}:bb", layout.display())))
        .with("runtime", json!("container"))
}

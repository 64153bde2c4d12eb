//! The older mount call, which newer kernels would never reach.

use std::fs;
use std::path::PathBuf;

use rustix::mount::{UnmountFlags, unmount};

use super::overlay::{Overlay, Writable};
use super::*;
use crate::image::test_tar::is_root;

/// Unmounted when dropped.
struct Target(PathBuf);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn all_layers_fit_into_one_page_of_options() {
    if !is_root("all_layers_fit_into_one_page_of_options") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let deep = "deep:er,".repeat(20);
    let lower: Vec<_> = (0..128).map(|n| made(&format!("{deep}/layer-{n}"))).collect();
    for (n, layer) in lower.iter().enumerate() {
        fs::write(layer.join(format!("f{n}")), "").unwrap();
        fs::write(layer.join("top"), n.to_string()).unwrap();
    }
    let writable = Writable {
        upper: made("upper"),
        work: made("work"),
    };
    let target = Target(made("target"));
    Overlay {
        lower: lower.clone(),
        writable: Some(writable),
    }
    .mount_by_options(&target.0)
    .unwrap();
    assert!(is_mount_point(&target.0).unwrap());
    assert_eq!(fs::read_dir(&target.0).unwrap().count(), 129);
    assert_eq!(fs::read_to_string(target.0.join("top")).unwrap(), "0");
    fs::write(target.0.join("new"), "x").unwrap();
    assert!(dir.path().join("upper/new").exists());
    // Another test's fork may hold one of the files above for a moment: that mount is left to it.
    unmount(&target.0, UnmountFlags::DETACH).unwrap();
    let read_only = Overlay {
        lower: lower.clone(),
        writable: None,
    };
    read_only.mount_by_options(&target.0).unwrap();
    assert!(fs::write(target.0.join("new"), "x").is_err());
    let many = Overlay {
        lower: lower.iter().cycle().take(400).cloned().collect(),
        writable: None,
    };
    let error = many.mount_by_options(&target.0).unwrap_err();
    assert!(
        matches!(error, RootfsError::TooManyLayers { layers: 400 }),
        "{error:?}"
    );
}

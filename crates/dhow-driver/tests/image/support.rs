//! What all tests here share.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dhow_driver::image::{
    Image, ImageError, ImageRef, Images, ImagesOptions, Privilege, RegistryOptions, RetryPolicy,
};
use tempfile::TempDir;

/// Whether the test runs as root; says so when it does not.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        // Past the harness, which shows nothing of a test that passes.
        let _ = writeln!(std::io::stderr(), "\nSKIPPED {test}: it needs root");
    }
    root
}

/// A store of its own, with nobody's credentials and quick retries.
pub struct TestStore {
    pub dir: TempDir,
}

impl TestStore {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    pub fn options(&self) -> ImagesOptions {
        options_for(&self.path())
    }

    pub fn open(&self) -> Images {
        Images::open(self.options()).unwrap()
    }

    /// The names of what lies directly in a directory of the store, sorted.
    pub fn names(&self, below: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path().join(below)).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Nothing half-made is left: no partial downloads, no temporary files, no locks.
    #[track_caller]
    pub fn assert_tidy(&self) {
        for dir in ["partial", "locks"] {
            assert_eq!(self.names(dir), Vec::<String>::new(), "{dir}");
        }
        for session in self
            .names("sessions")
            .iter()
            .filter(|name| !name.ends_with(".lock"))
        {
            assert_eq!(
                self.names(&format!("sessions/{session}/tmp")),
                Vec::<String>::new()
            );
        }
    }
}

pub fn options_for(dir: &Path) -> ImagesOptions {
    let mut options = ImagesOptions::new(dir);
    options.registries = RegistryOptions {
        docker_config_file: Some(dir.with_file_name("docker-config.json")),
        retry: RetryPolicy {
            max_attempts: 3,
            first_wait: Duration::from_millis(1),
            max_wait: Duration::from_millis(2),
        },
        ..RegistryOptions::default()
    };
    let root = rustix::process::geteuid().is_root();
    options.privilege = if root {
        Privilege::Root
    } else {
        Privilege::BestEffort
    };
    options
}

pub fn parse(reference: &str) -> ImageRef {
    ImageRef::parse(reference).unwrap()
}

pub async fn pull(images: &Images, reference: &str) -> Result<Image, ImageError> {
    images.pull(&parse(reference)).wait().await
}

/// The content of a file of an image, seen through its layers from the top.
pub fn content(image: &Image, name: &str) -> Option<String> {
    image
        .layer_dirs()
        .iter()
        .find_map(|dir| fs::read_to_string(dir.join(name)).ok())
}

/// An error and its causes, one per line.
pub fn story(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

//! A small file system of its own for a data directory. Only root can mount one.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// It goes with the folder that it is in.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    pub fn mount(path: PathBuf, options: &str) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount("tmpfs", &path, "tmpfs", flags, options.as_c_str()).unwrap();
        Self { path }
    }

    /// Until nothing more fits.
    pub fn fill(&self) {
        let mut file = File::create(self.path.join("filler")).unwrap();
        for size in [1 << 20, 4 << 10, 1] {
            while file.write_all(&vec![7; size]).is_ok() {}
        }
    }

    pub fn free(&self) {
        std::fs::remove_file(self.path.join("filler")).unwrap();
    }
}

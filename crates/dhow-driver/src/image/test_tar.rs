//! Builds layers for tests, well-formed ones and others.

use std::io::Write as _;

use tar::{EntryType, Header};

/// A tar stream in the making. Names are written as they are given, whatever they hold.
#[derive(Default)]
pub(crate) struct TestTar {
    bytes: Vec<u8>,
    pax: Vec<u8>,
}

impl TestTar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn dir(self, path: &str, mode: u32) -> Self {
        self.entry(path, EntryType::Directory, mode, b"", "")
    }

    pub fn file(self, path: &str, content: &str) -> Self {
        self.entry(path, EntryType::Regular, 0o644, content.as_bytes(), "")
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(path, EntryType::Symlink, 0o777, b"", target)
    }

    pub fn hard_link(self, path: &str, target: &str) -> Self {
        self.entry(path, EntryType::Link, 0o644, b"", target)
    }

    /// Adds a record to the extended header of the next entry.
    pub fn pax(mut self, key: &str, value: &[u8]) -> Self {
        let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let digits = (1..)
            .find(|digits| (body.len() + digits).to_string().len() == *digits)
            .unwrap();
        self.pax
            .extend_from_slice((body.len() + digits).to_string().as_bytes());
        self.pax.extend_from_slice(&body);
        self
    }

    pub fn entry(self, path: &str, kind: EntryType, mode: u32, data: &[u8], link: &str) -> Self {
        self.header(path, kind, link, data, |header| header.set_mode(mode))
    }

    /// The general form: the header is filled in and then handed out for changes.
    pub fn header(
        mut self,
        path: &str,
        kind: EntryType,
        link: &str,
        data: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Self {
        if !self.pax.is_empty() {
            let pax = std::mem::take(&mut self.pax);
            self = self.entry("PaxHeader", EntryType::XHeader, 0o644, &pax, "");
        }
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..path.len()].copy_from_slice(path.as_bytes());
        gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        change(&mut header);
        header.set_cksum();
        self.bytes.extend_from_slice(header.as_bytes());
        self.data(data)
    }

    fn data(mut self, data: &[u8]) -> Self {
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 1024]);
        self.bytes
    }

    /// As it is, without the end mark.
    pub fn cut(self) -> Vec<u8> {
        self.bytes
    }
}

/// Whether the test runs as root; says so when it does not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        // Past the harness, which shows nothing of a test that passes.
        let _ = writeln!(std::io::stderr(), "\nSKIPPED {test}: it needs root");
    }
    root
}

//! Why a key or a certificate cannot be had.

use std::io;
use std::path::PathBuf;

/// The file that the servers share.
#[derive(Debug, thiserror::Error)]
pub enum ClusterKeyError {
    #[error(
        "there is no cluster key at {path}; make one on one server with `(umask 077; dhow cluster keygen > {path})` \
         and copy that file to the other servers", path = path.display()
    )]
    Missing { path: PathBuf },
    #[error("cannot {action} the cluster key at {path}", path = path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("others than its owner may read the cluster key at {path}; run `chmod 600 {path}`", path = path.display())]
    Open { path: PathBuf },
    #[error(
        "the cluster key at {path} belongs to user {owner}, who could change it, and this process runs as user {own}; \
         run `chown {own} {path}`", path = path.display()
    )]
    Owner { path: PathBuf, owner: u32, own: u32 },
    #[error("the cluster key at {path} is not usable", path = path.display())]
    File {
        path: PathBuf,
        #[source]
        cause: Box<ClusterKeyError>,
    },
    #[error("it is empty; put the line there that `dhow cluster keygen` printed")]
    Empty,
    #[error(
        "it is no cluster key: one is a single line that begins with `{}`",
        super::cluster_key::PREFIX
    )]
    Form,
    #[error("it is cut off or changed; copy the whole line from another server")]
    Damaged,
    #[error("this host gives no random numbers")]
    NoRandom,
}

/// Why a certificate was not made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("the certificate cannot be made")]
    Make(#[from] rcgen::Error),
    #[error("the request for a certificate cannot be read: {why}")]
    Request { why: &'static str },
    #[error(
        "the certificate is not one of this cluster's workers, or is of another CA by now; register again"
    )]
    NotOurs,
    #[error("the certificate ended {ago_secs} s ago, longer than it may be renewed after; register again")]
    TooLate { ago_secs: u64 },
    #[error("the request is signed with another key than the certificate's")]
    OtherKey,
    #[error("the cluster's id is not usable in a certificate")]
    ClusterId,
    #[error("the TLS library does not take the key")]
    Key(#[source] rustls::Error),
}

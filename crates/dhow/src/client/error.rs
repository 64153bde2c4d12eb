//! What keeps the daemon's answer from being used, in words for people, and the exit code for scripts.

use std::error::Error;
use std::fmt;
use std::io;

use dhow_server::net::keys::tls_refusal;
use dhow_wire::{MalformedAccessToken, Problem};

use super::address::{BadHost, DaemonAddress, Origin, machine_socket};
use crate::exit::Exit;

/// Why a command got no answer that it can use.
#[derive(Debug)]
pub enum ClientError {
    BadHost(BadHost),
    /// A token would travel in clear over the network.
    TokenInClear(DaemonAddress),
    /// `DHOW_TOKEN` holds what no header can.
    BadToken,
    /// `DHOW_TOKEN` is no token of a cluster, so that it does not say whom to trust.
    MalformedToken(MalformedAccessToken),
    /// TLS cannot be set up.
    Tls(rustls::Error),
    /// The client itself could not be made, for example without certificate authorities for `https`.
    Setup(reqwest::Error),
    /// Nobody listens there.
    NoDaemon {
        host: DaemonAddress,
        origin: Origin,
        cause: reqwest::Error,
        /// A write was sent before, and its answer never came.
        was_sent: bool,
    },
    /// It was sent, and no answer came.
    NoAnswer {
        host: DaemonAddress,
        cause: reqwest::Error,
        is_write: bool,
    },
    /// The daemon said no.
    Problem(Box<Problem>),
    /// An answer that cannot be read.
    Unreadable {
        host: DaemonAddress,
        why: String,
    },
    /// A stream that broke in the middle.
    Broke {
        host: DaemonAddress,
        why: String,
    },
}

impl ClientError {
    pub fn exit(&self) -> Exit {
        match self {
            Self::BadHost(_) | Self::TokenInClear(_) | Self::BadToken | Self::MalformedToken(_) => {
                Exit::BadInput
            }
            Self::NoDaemon { was_sent: false, .. } | Self::NoAnswer { is_write: false, .. } => Exit::NoDaemon,
            // Whether it happened is not known.
            Self::NoDaemon { was_sent: true, .. } | Self::NoAnswer { is_write: true, .. } => Exit::Failed,
            Self::Setup(_) | Self::Tls(_) | Self::Unreadable { .. } => Exit::Failed,
            Self::Broke { .. } => Exit::NoDaemon,
            Self::Problem(problem) => problem.exit_code().into(),
        }
    }

    /// Whether asking again may help: the daemon is away, perhaps only for a moment.
    pub fn is_away(&self) -> bool {
        match self {
            Self::NoDaemon { .. } | Self::NoAnswer { .. } | Self::Broke { .. } => true,
            Self::Problem(problem) => problem.exit_code() == dhow_wire::problem::ExitCode::NoLeader,
            Self::BadHost(_) | Self::TokenInClear(_) | Self::BadToken | Self::MalformedToken(_) => false,
            Self::Setup(_) | Self::Tls(_) | Self::Unreadable { .. } => false,
        }
    }

    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.status == 403)
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.status == 404)
    }
}

const UNKNOWN: &str = "it is not known whether it was carried out; look with `dhow status`, or run it again";

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadHost(bad) => bad.fmt(f),
            Self::TokenInClear(host) => write!(
                f,
                "DHOW_TOKEN would travel in clear to {host}, for everybody on the way to read; use https://"
            ),
            Self::BadToken => f.write_str("DHOW_TOKEN holds characters that no token has; set it again"),
            Self::MalformedToken(cause) => write!(f, "DHOW_TOKEN cannot be used: {cause}"),
            Self::Tls(cause) => write!(f, "no connection can be made from here: {cause}"),
            Self::Setup(cause) => write!(f, "no connection can be made from here: {}", tls_refusal(cause)),
            Self::NoDaemon {
                host,
                origin,
                cause,
                was_sent,
            } => {
                write!(
                    f,
                    "no daemon answers at {host} (from {origin}): {}",
                    reason(host, cause)
                )?;
                if *was_sent {
                    write!(f, "\n  the connection broke before the answer came: {UNKNOWN}")?;
                }
                f.write_str("\n  ")?;
                f.write_str(&advice(host, *origin, cause))
            }
            Self::NoAnswer {
                host,
                cause,
                is_write,
            } => {
                if cause.is_timeout() {
                    write!(f, "the daemon at {host} did not answer in time")?;
                } else {
                    write!(
                        f,
                        "the connection to {host} broke before the answer came: {}",
                        tls_refusal(cause)
                    )?;
                }
                if *is_write {
                    write!(f, "\n  {UNKNOWN}")
                } else {
                    Ok(())
                }
            }
            Self::Problem(problem) => problem.fmt(f),
            Self::Unreadable { host, why } => write!(
                f,
                "the answer of {host} cannot be read: {why}\n  is it a Dhow daemon, and not much older or newer than this command?"
            ),
            Self::Broke { host, why } => write!(f, "the connection to {host} broke: {why}"),
        }
    }
}

/// The texts above hold their causes in the words that help.
impl Error for ClientError {}

fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        at = error.source();
    }
    None
}

fn reason(host: &DaemonAddress, cause: &reqwest::Error) -> String {
    match (host, io_kind(cause)) {
        (DaemonAddress::Unix(_), Some(io::ErrorKind::NotFound)) => "there is no such socket".into(),
        (DaemonAddress::Unix(_), Some(io::ErrorKind::ConnectionRefused)) => {
            "nobody listens on that socket".into()
        }
        (DaemonAddress::Unix(_), Some(io::ErrorKind::PermissionDenied)) => {
            "this user may not use that socket".into()
        }
        (_, Some(io::ErrorKind::ConnectionRefused)) => "the connection was refused".into(),
        _ if cause.is_timeout() => "the connection timed out".into(),
        _ => tls_refusal(cause),
    }
}

fn advice(host: &DaemonAddress, origin: Origin, cause: &reqwest::Error) -> String {
    let is_denied = io_kind(cause) == Some(io::ErrorKind::PermissionDenied);
    let machine = machine_socket();
    match (host, origin) {
        (DaemonAddress::Unix(_), _) if is_denied => "run this as the user that the daemon runs as, as root, or as a member of \
                                            the group `dhow`"
            .into(),
        (DaemonAddress::Unix(path), Origin::DefaultDataDir) if *path != machine && machine.exists() => format!(
            "the machine's own daemon has its socket at {}: run this as root, or start one of your own with `dhow up FILE`",
            machine.display()
        ),
        (DaemonAddress::Unix(_), Origin::DataDirVariable | Origin::DefaultDataDir) => {
            "start one with `dhow up FILE` or `dhow daemon`, or say where it is with --host or DHOW_HOST"
                .into()
        }
        (DaemonAddress::Unix(_), Origin::Flag | Origin::HostVariable) => {
            "start one there with `dhow daemon --socket PATH`, or correct the address".into()
        }
        (DaemonAddress::Http(_), _) if host.is_https() => "check the address and that `dhow daemon` runs there with a cluster \
             key; DHOW_TOKEN holds a token of that cluster, which also says whom to trust: `dhow token create` on one \
             of its servers makes one"
            .into(),
        (DaemonAddress::Http(_), _) => "check the address and that `dhow daemon` runs there".into(),
    }
}

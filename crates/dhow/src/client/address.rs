//! Where the daemon is: what `--host` or `DHOW_HOST` says, else the Unix socket in the data directory.

use std::fmt;
use std::path::{Path, PathBuf};

use reqwest::Url;

/// Where somebody who is not root keeps the state, below the home directory.
const USER_DATA_DIR: &str = ".local/share/dhow";
/// The socket's name in the data directory.
const SOCKET_NAME: &str = "dhow.sock";

/// The daemon's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonAddress {
    Unix(PathBuf),
    /// `http` or `https`.
    Http(Url),
}

/// Who named the address, for the message when nobody answers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag,
    HostVariable,
    DataDirVariable,
    DefaultDataDir,
}

impl DaemonAddress {
    /// By the contract's precedence. `variable` reads the environment.
    pub fn resolve(
        flag: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(Self, Origin), BadHost> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        if let Some(text) = flag {
            return Ok((Self::parse(text, Origin::Flag)?, Origin::Flag));
        }
        if let Some(text) = variable("DHOW_HOST") {
            return Ok((Self::parse(&text, Origin::HostVariable)?, Origin::HostVariable));
        }
        let (folder, origin) = match variable("DHOW_DATA_DIR") {
            Some(folder) => (folder, Origin::DataDirVariable),
            None => (default_data_dir(), Origin::DefaultDataDir),
        };
        Ok((Self::Unix(Path::new(&folder).join(SOCKET_NAME)), origin))
    }

    fn parse(text: &str, origin: Origin) -> Result<Self, BadHost> {
        let bad = |why: &str| BadHost {
            text: text.into(),
            origin,
            why: why.into(),
        };
        if let Some(path) = text.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(bad("the path of a socket begins with `/`: unix:///run/dhow.sock"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if !text.starts_with("http://") && !text.starts_with("https://") {
            return Err(bad("it begins with unix://, http:// or https://"));
        }
        let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad(
                "a user or a password has no place here: a token goes into DHOW_TOKEN",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("nothing may follow the path"));
        }
        Ok(Self::Http(url))
    }

    /// Whether what is sent there can be read on its way.
    pub fn is_open_to_others(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Http(url) => url.scheme() == "http" && !self.is_loopback(),
        }
    }

    pub fn is_https(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Http(url) => url.scheme() == "https",
        }
    }

    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Http(url) => match url.host_str() {
                Some("localhost") => true,
                Some(host) => {
                    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
                    ip.is_ok_and(|ip| ip.is_loopback())
                }
                None => false,
            },
        }
    }
}

impl fmt::Display for DaemonAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Http(url) => f.write_str(url.as_str().trim_end_matches('/')),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "--host",
            Self::HostVariable => "DHOW_HOST",
            Self::DataDirVariable => "DHOW_DATA_DIR",
            Self::DefaultDataDir => "the default data directory",
        })
    }
}

/// An address that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadHost {
    text: String,
    origin: Origin,
    why: String,
}

impl fmt::Display for BadHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, origin, why } = self;
        write!(f, "{origin} has `{text}`, which is no address of a daemon: {why}")
    }
}

/// Root's state belongs to the machine, anybody else's to their home.
pub fn default_data_dir() -> String {
    let home = std::env::var("HOME").ok().filter(|home| !home.is_empty());
    match home {
        Some(home) if !rustix::process::geteuid().is_root() => format!("{home}/{USER_DATA_DIR}"),
        Some(_) | None => dhow_wire::config::DEFAULT_DATA_DIR.into(),
    }
}

/// The socket of the machine's own daemon, which somebody who is not root may have meant.
pub fn machine_socket() -> PathBuf {
    Path::new(dhow_wire::config::DEFAULT_DATA_DIR).join(SOCKET_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flag: Option<&str>, host: &str, data_dir: &str) -> Result<(String, Origin), String> {
        let variable = |name: &str| match name {
            "DHOW_HOST" => Some(host.to_owned()),
            "DHOW_DATA_DIR" => Some(data_dir.to_owned()),
            _ => None,
        };
        match DaemonAddress::resolve(flag, variable) {
            Ok((host, origin)) => Ok((host.to_string(), origin)),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_flag_wins_over_the_variables() {
        let all = resolve(Some("http://127.0.0.1:3669/"), "unix:///b", "/c");
        assert_eq!(all, Ok(("http://127.0.0.1:3669".into(), Origin::Flag)));
        let variable = resolve(None, "unix:///b", "/c");
        assert_eq!(variable, Ok(("unix:///b".into(), Origin::HostVariable)));
        let folder = resolve(None, "", "/c");
        assert_eq!(
            folder,
            Ok(("unix:///c/dhow.sock".into(), Origin::DataDirVariable))
        );
        assert_eq!(resolve(None, "", "").unwrap().1, Origin::DefaultDataDir);
    }

    #[test]
    fn a_wrong_address_says_where_it_came_from() {
        for (text, part) in [
            ("localhost:3669", "it begins with unix://, http:// or https://"),
            ("unix://run/dhow.sock", "the path of a socket begins with `/`"),
            ("http://", "empty host"),
            ("https://me:secret@node", "DHOW_TOKEN"),
            ("http://node/?a=b", "nothing may follow the path"),
        ] {
            let error = resolve(None, text, "").unwrap_err();
            assert!(error.starts_with("DHOW_HOST has `"), "{error}");
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }

    #[test]
    fn only_plain_http_to_another_machine_is_open() {
        for (text, open) in [
            ("unix:///a", false),
            ("http://127.0.0.1:1", false),
            ("http://[::1]:1", false),
            ("http://localhost", false),
            ("https://10.0.0.1", false),
            ("http://10.0.0.1", true),
            ("http://node", true),
        ] {
            assert_eq!(
                DaemonAddress::parse(text, Origin::Flag)
                    .unwrap()
                    .is_open_to_others(),
                open,
                "{text}"
            );
        }
    }
}

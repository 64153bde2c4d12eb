//! Credentials from Docker's configuration file, and from the helper programs it names.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::image::error::ImageError;

/// The name under which Docker keeps the credentials of Docker Hub.
const HUB_KEY: &str = "https://index.docker.io/v1/";
const HUB_NAMES: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
/// A helper may ask a key ring; it must not hang a pull.
const HELPER_TIMEOUT: Duration = Duration::from_secs(10);
/// How helpers mark a secret that is a token and no password.
const TOKEN_USER: &str = "<token>";

/// What proves who is asking.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    None,
    Password {
        user: String,
        password: String,
    },
    /// A token that is exchanged for a short-lived one.
    Identity(String),
}

#[derive(Default, Deserialize)]
struct ConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, AuthEntry>,
    #[serde(default, rename = "credsStore")]
    creds_store: String,
    #[serde(default, rename = "credHelpers")]
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthEntry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Where Docker keeps its configuration, if anywhere.
pub(super) fn default_file() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("DOCKER_CONFIG").filter(|dir| !dir.is_empty()) {
        return Some(Path::new(&dir).join("config.json"));
    }
    std::env::home_dir().map(|home| home.join(".docker/config.json"))
}

/// The credentials for one registry; an absent file means none.
pub(super) async fn find(file: &Path, registry: &str) -> Result<Credentials, ImageError> {
    let unusable = |detail: String| ImageError::Credentials {
        path: file.to_owned(),
        detail,
    };
    let bytes = match tokio::fs::read(file).await {
        Ok(bytes) => bytes,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Credentials::None);
        }
        Err(error) => return Err(unusable(error.to_string())),
    };
    // A parse error could quote a secret; its place is enough.
    let config: ConfigFile = serde_json::from_slice(&bytes).map_err(|error| {
        unusable(format!(
            "it is malformed at line {}, column {}",
            error.line(),
            error.column()
        ))
    })?;
    let helper = config
        .cred_helpers
        .iter()
        .find(|(key, _)| is_for(key, registry))
        .map(|(_, name)| name);
    let helper = helper
        .or(Some(&config.creds_store))
        .filter(|name| !name.is_empty());
    if let Some(helper) = helper {
        match ask_helper(helper, registry).await {
            Ok(Some(credentials)) => return Ok(credentials),
            Ok(None) => {}
            // Images that need no credentials must not fail for a helper that does not work here.
            Err(error) => tracing::warn!(helper, registry, %error, "the credential helper gave no answer"),
        }
    }
    let entry = config
        .auths
        .iter()
        .find(|(key, _)| is_for(key, registry))
        .map(|(_, entry)| entry);
    let Some(entry) = entry else {
        return Ok(Credentials::None);
    };
    entry
        .credentials()
        .ok_or_else(|| unusable(format!("the entry for {registry} is malformed")))
}

impl AuthEntry {
    fn credentials(&self) -> Option<Credentials> {
        if !self.identitytoken.is_empty() {
            return Some(Credentials::Identity(self.identitytoken.clone()));
        }
        if self.auth.is_empty() {
            if self.username.is_empty() {
                return Some(Credentials::None);
            }
            let (user, password) = (self.username.clone(), self.password.clone());
            return Some(Credentials::Password { user, password });
        }
        let decoded = String::from_utf8(STANDARD.decode(self.auth.trim()).ok()?).ok()?;
        let (user, password) = decoded.split_once(':')?;
        // Docker's own tools pad the password with NUL bytes at times.
        let password = password.trim_end_matches('\0').to_owned();
        Some(Credentials::Password {
            user: user.to_owned(),
            password,
        })
    }
}

/// Whether a key of the file, a host or a URL, stands for this registry.
fn is_for(key: &str, registry: &str) -> bool {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    let host = rest.split_once('/').map_or(rest, |(host, _)| host);
    host == registry || (HUB_NAMES.contains(&host) && HUB_NAMES.contains(&registry))
}

async fn ask_helper(helper: &str, registry: &str) -> io::Result<Option<Credentials>> {
    if !helper
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "its name is not that of a program",
        ));
    }
    let server = if HUB_NAMES.contains(&registry) {
        HUB_KEY
    } else {
        registry
    };
    let mut child = Command::new(format!("docker-credential-{helper}"))
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let asked = async {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(server.as_bytes()).await?;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(HELPER_TIMEOUT, asked).await??;
    if !output.status.success() {
        // Helpers say "not found" this way.
        return Ok(None);
    }
    let answer: HelperAnswer = serde_json::from_slice(&output.stdout)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "its answer is malformed"))?;
    Ok(Some(if answer.username == TOKEN_USER {
        Credentials::Identity(answer.secret)
    } else {
        Credentials::Password {
            user: answer.username,
            password: answer.secret,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(text: &str, registry: &str) -> Result<Credentials, ImageError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.json");
        std::fs::write(&file, text).unwrap();
        find(&file, registry).await
    }

    #[tokio::test]
    async fn entries_are_found_by_host() {
        let auth = STANDARD.encode("me:pa:ss");
        let text = format!(
            r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{auth}"}},
            "ghcr.io":{{"identitytoken":"tok"}},"http://lab:5000/x":{{"username":"u","password":"p"}}}},
            "HttpHeaders":{{}}}}"#
        );
        let password = |user: &str, password: &str| Credentials::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        };
        assert!(found(&text, "docker.io").await.unwrap() == password("me", "pa:ss"));
        assert!(found(&text, "ghcr.io").await.unwrap() == Credentials::Identity("tok".into()));
        assert!(found(&text, "lab:5000").await.unwrap() == password("u", "p"));
        assert!(found(&text, "quay.io").await.unwrap() == Credentials::None);
        assert!(found("{}", "quay.io").await.unwrap() == Credentials::None);
    }

    #[tokio::test]
    async fn a_helper_that_is_missing_or_ill_named_does_not_hinder() {
        let auth = STANDARD.encode("me:pass");
        for helper in ["dhow-no-such-helper", "../../bin/sh"] {
            let text = format!(r#"{{"credsStore":"{helper}","auths":{{"r.io":{{"auth":"{auth}"}}}}}}"#);
            assert!(
                matches!(found(&text, "r.io").await, Ok(Credentials::Password { .. })),
                "{helper}"
            );
        }
    }

    #[tokio::test]
    async fn malformed_files_are_told_without_their_content() {
        let message = found(r#"{"auths": {"a": "sEcReT"}}"#, "a")
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            message.contains("malformed at line 1") && !message.contains("sEcReT"),
            "{message}"
        );
        assert!(found(r#"{"auths":{"a":{"auth":"!!"}}}"#, "a").await.is_err());
        assert!(find(Path::new("/nonexistent/config.json"), "a").await.unwrap() == Credentials::None);
    }
}

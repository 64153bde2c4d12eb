//! Flag, environment, file, default: who gives each value, and what comes out.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use dhow_core::spec::Policy;
use dhow_core::spec::check::SpecFinding;

use super::acme::AcmeConfig;
use super::api_addr::ApiAddr;
use super::check;
use super::cluster_mode::ClusterMode;
use super::daemon_config::{DaemonConfig, NodeResources};
use super::log::{LogConfig, LogFormat, LogLevel};
use super::network::NetworkConfig;
use super::past::PastConfig;
use super::read::{self, ConfigFile};
use super::registries::RegistryConfig;
use super::setting::Setting;
use super::sources::SourceDraft;
use super::values::{self, Wrong};
use crate::document::{Decoder, Finding, Findings, Node, Source, findings_of, parse};

/// Where all state is, unless something else is said.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/dhow";

const ENVIRONMENT: &str = "environment";
const COMMAND_LINE: &str = "command line";

/// Everything that a configuration is made of.
pub struct ConfigSources<'a> {
    /// The file's name and text; without one there are only variables, flags and defaults.
    pub file: Option<(&'a str, &'a str)>,
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
    pub flags: &'a [(Setting, OsString)],
    /// The data directory of somebody who names none.
    pub default_data_dir: &'a str,
}

/// Values of all sources joined, before what follows from them is filled in.
pub(super) struct Draft {
    pub data_dir: String,
    pub socket: Option<String>,
    pub api_addr: Option<ApiAddr>,
    pub cluster: ClusterMode,
    pub cluster_key_file: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub resources: NodeResources,
    pub log: LogConfig,
    pub policy: Policy,
    pub registries: RegistryConfig,
    pub renew_expired_for: Option<Duration>,
    pub network: NetworkConfig,
    pub past: PastConfig,
    pub acme: Option<AcmeConfig>,
    pub trusted_keys: Vec<String>,
    pub sources: Vec<SourceDraft>,
}

impl Draft {
    pub fn socket_path(&self) -> PathBuf {
        match &self.socket {
            Some(socket) => socket.into(),
            None => PathBuf::from(&self.data_dir).join("dhow.sock"),
        }
    }

    fn finish(self) -> DaemonConfig {
        let default_api = SocketAddr::from((Ipv4Addr::LOCALHOST, 3669));
        let mut labels = self.labels.clone();
        labels.extend(self.cluster.own_labels().cloned().unwrap_or_default());
        DaemonConfig {
            socket: self.socket_path(),
            api_addr: self
                .api_addr
                .or_else(|| self.cluster.own_api_addr().map(ApiAddr::At))
                .unwrap_or(ApiAddr::At(default_api)),
            cluster_key_file: match &self.cluster_key_file {
                Some(file) => file.into(),
                None => PathBuf::from(&self.data_dir).join("cluster/cluster.key"),
            },
            data_dir: self.data_dir.into(),
            cluster: self.cluster,
            labels,
            resources: self.resources,
            log: self.log,
            policy: self.policy,
            registries: self.registries,
            renew_expired_for: self.renew_expired_for,
            network: self.network,
            past: self.past,
            acme: self.acme,
            sources: self
                .sources
                .iter()
                .map(|source| source.finish(&self.trusted_keys))
                .collect(),
        }
    }
}

/// Reads a configuration file alone, without environment and flags.
pub fn parse_config(text: &str, file_name: &str) -> Result<DaemonConfig, Findings> {
    load_config(&ConfigSources {
        file: Some((file_name, text)),
        env: &|_| None,
        flags: &[],
        default_data_dir: DEFAULT_DATA_DIR,
    })
}

/// Joins all sources into the effective configuration.
pub fn load_config(sources: &ConfigSources<'_>) -> Result<DaemonConfig, Findings> {
    let (name, text) = sources.file.unwrap_or(("the configuration", ""));
    let source = Source::new(name, text);
    let mut findings = Findings::of(source.clone());
    let given = Given::collect(sources);
    let Some(document) = parse(&source, &mut findings) else {
        given.report(&mut findings);
        return Err(findings);
    };
    let mut decoder = Decoder::new(source, findings);
    let file = match &document.root {
        None => Some(ConfigFile::default()),
        Some(root) => read::file(&mut decoder, root),
    };
    let draft = given.over(file.unwrap_or_default(), sources.default_data_dir);
    let judged = check::check(&draft);
    let (outside, inside): (Vec<SpecFinding>, Vec<SpecFinding>) = judged
        .into_iter()
        .partition(|finding| given.source_of(finding).is_some());
    let mut findings = place(decoder, document.root.as_ref(), inside);
    for finding in outside {
        if let Some((setting, file)) = given.source_of(&finding) {
            let message = format!("`{}`: {}", name_of(setting, file), finding.message);
            findings.add(outside_finding(setting, file, message, finding.hint));
        }
    }
    given.report(&mut findings);
    findings.or(draft.finish())
}

/// Findings about the file; without a text to point into they stand alone.
fn place(decoder: Decoder, root: Option<&Node>, judged: Vec<SpecFinding>) -> Findings {
    if let Some(root) = root {
        return findings_of(decoder, root, judged);
    }
    let mut findings = decoder.into_findings();
    for judged in judged {
        let mut finding = Finding::outside("the defaults", judged.message).with_path(&judged.path);
        finding.hint = judged.hint;
        findings.add(finding);
    }
    findings
}

fn outside_finding(setting: Setting, file: &str, message: String, hint: Option<String>) -> Finding {
    let mut finding = Finding::outside(file, message).with_path(setting.key());
    finding.hint = hint;
    finding
}

fn name_of(setting: Setting, file: &str) -> &'static str {
    if file == ENVIRONMENT {
        setting.variable()
    } else {
        setting.flag()
    }
}

/// What variables and flags say: for each setting the strongest, and what is wrong with any of them.
#[derive(Default)]
struct Given {
    from: BTreeMap<Setting, &'static str>,
    data_dir: Option<String>,
    socket: Option<String>,
    api_addr: Option<ApiAddr>,
    cluster_key_file: Option<String>,
    log_level: Option<LogLevel>,
    log_format: Option<LogFormat>,
    wrong: Vec<Finding>,
}

impl Given {
    fn collect(sources: &ConfigSources<'_>) -> Self {
        let mut given = Self::default();
        for setting in Setting::ALL {
            if let Some(value) = (sources.env)(setting.variable()) {
                given.take(setting, ENVIRONMENT, &value);
            }
        }
        for (setting, value) in sources.flags {
            given.take(*setting, COMMAND_LINE, value);
        }
        given
    }

    fn take(&mut self, setting: Setting, file: &'static str, value: &OsStr) {
        let name = name_of(setting, file);
        let read = match value.to_str() {
            None => Err(("the value is not UTF-8".into(), "write it in plain text".into())),
            Some("") => Err((
                "it is set, but empty".into(),
                "give it a value, or unset it".into(),
            )),
            Some(text) => self.set(setting, text),
        };
        match read {
            Ok(()) => {
                self.from.insert(setting, file);
            }
            Err((message, hint)) => {
                let message = format!("`{name}`: {message}");
                self.wrong
                    .push(outside_finding(setting, file, message, Some(hint)));
            }
        }
    }

    fn set(&mut self, setting: Setting, text: &str) -> Result<(), Wrong> {
        match setting {
            Setting::DataDir => self.data_dir = Some(values::path(text)?),
            Setting::Socket => self.socket = Some(values::path(text)?),
            Setting::ApiAddr => self.api_addr = Some(values::api_addr(text)?),
            Setting::ClusterKeyFile => self.cluster_key_file = Some(values::path(text)?),
            Setting::LogLevel => {
                let level = values::word(text, values::LEVEL, &LogLevel::ALL, values::LEVEL_SYNONYMS)?;
                self.log_level = Some(level);
            }
            Setting::LogFormat => {
                let format = values::word(text, values::FORMAT, &LogFormat::ALL, values::FORMAT_SYNONYMS)?;
                self.log_format = Some(format);
            }
        }
        Ok(())
    }

    /// What the file says, with what was given instead.
    fn over(&self, file: ConfigFile, default_data_dir: &str) -> Draft {
        let data_dir = self.data_dir.clone().or(file.data_dir);
        Draft {
            data_dir: data_dir.unwrap_or_else(|| default_data_dir.to_owned()),
            socket: self.socket.clone().or(file.socket),
            api_addr: self.api_addr.or(file.api_addr),
            cluster: file.cluster.unwrap_or_default(),
            cluster_key_file: self.cluster_key_file.clone().or(file.cluster_key_file),
            trusted_keys: file.trusted_keys,
            sources: file.sources,
            labels: file.labels,
            resources: file.resources,
            log: LogConfig {
                level: self.log_level.or(file.log_level).unwrap_or_default(),
                format: self.log_format.or(file.log_format).unwrap_or_default(),
            },
            policy: file.policy,
            registries: file.registries,
            renew_expired_for: file.renew_expired_for,
            network: file.network,
            past: file.past,
            acme: file.acme,
        }
    }

    /// The setting that a finding is about, where a variable or a flag gave it.
    fn source_of(&self, finding: &SpecFinding) -> Option<(Setting, &'static str)> {
        let path = finding.path.to_string();
        let setting = Setting::ALL.into_iter().find(|setting| setting.key() == path)?;
        self.from.get(&setting).map(|file| (setting, *file))
    }

    fn report(&self, findings: &mut Findings) {
        for finding in &self.wrong {
            findings.add(finding.clone());
        }
    }
}

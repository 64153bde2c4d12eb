//! The file's own values, before anything else is taken into account.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use dhow_core::spec::Policy;
use dhow_core::spec::check::quoted;

use super::acme::{self, AcmeConfig};
use super::api_addr::ApiAddr;
use super::cluster_mode::ClusterMode;
use super::daemon_config::NodeResources;
use super::log::{LogFormat, LogLevel};
use super::modes;
use super::network::{self, NetworkConfig};
use super::past::{self, PastConfig};
use super::registries::{self, RegistryConfig};
use super::sources::{self, SourceDraft};
use super::values::{self, Wrong};
use crate::document::{
    Decoder, Fields, Kind, Node, cpu, flag, list, loose_text, size, text, text_map, whole_seconds,
};

/// What the file says; what it leaves out stays open.
#[derive(Clone, Debug, Default)]
pub(super) struct ConfigFile {
    pub data_dir: Option<String>,
    pub socket: Option<String>,
    pub api_addr: Option<ApiAddr>,
    pub cluster: Option<ClusterMode>,
    pub cluster_key_file: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub resources: NodeResources,
    pub trusted_keys: Vec<String>,
    pub sources: Vec<SourceDraft>,
    pub log_level: Option<LogLevel>,
    pub log_format: Option<LogFormat>,
    pub policy: Policy,
    pub registries: RegistryConfig,
    pub renew_expired_for: Option<Duration>,
    pub network: NetworkConfig,
    pub past: PastConfig,
    pub acme: Option<AcmeConfig>,
}

pub(super) fn file(decoder: &mut Decoder, root: &Node) -> Option<ConfigFile> {
    let mut fields = Fields::open(
        decoder,
        root,
        "the configuration",
        "`key: value` lines, such as `data_dir: /var/lib/dhow`",
    )?;
    fields.elsewhere(&[
        ("mode", "it belongs inside: `cluster: { mode: raft, … }`"),
        ("peers", "it belongs inside `cluster`"),
        ("node_id", "it belongs inside `cluster`"),
        ("raft", "write `cluster: { mode: raft, … }`"),
        ("static", "write `cluster: { mode: static, … }`"),
        ("log_level", "write `log: { level: info }`"),
        ("log_format", "write `log: { format: json }`"),
        ("logging", "write `log: { level: info, format: text }`"),
        ("listen", "write `api_addr`"),
        ("bind_addr", "write `api_addr`"),
        (
            "insecure_registries",
            "write `registries: { insecure: [lab.example:5000] }`",
        ),
        (
            "version",
            "this looks like a deployment file: `dhow validate` and `dhow deploy` take those",
        ),
        (
            "deployment",
            "this looks like a deployment file: `dhow validate` and `dhow deploy` take those",
        ),
        (
            "services",
            "this looks like a deployment file: `dhow validate` and `dhow deploy` take those",
        ),
    ]);
    let mut file = ConfigFile {
        data_dir: fields.optional("data_dir", path),
        socket: fields.optional("socket", path),
        api_addr: fields.optional("api_addr", api_addr),
        cluster: fields.optional_or_say("cluster", ONLY_ABSENT, modes::cluster),
        cluster_key_file: fields.optional("cluster_key_file", path),
        labels: fields.optional("labels", text_map).unwrap_or_default(),
        resources: fields.optional("resources", resources).unwrap_or_default(),
        trusted_keys: fields.optional("trusted_keys", sources::keys).unwrap_or_default(),
        sources: fields.optional("sources", sources::sources).unwrap_or_default(),
        log_level: None,
        log_format: None,
        policy: fields
            .optional_or_say("policy", ONLY_ABSENT_POLICY, policy)
            .unwrap_or_default(),
        registries: fields
            .optional("registries", registries::registries)
            .unwrap_or_default(),
        renew_expired_for: fields.optional("renew_expired_for", whole_seconds),
        network: fields.optional("network", network::read).unwrap_or_default(),
        past: fields.optional("past", past::read).unwrap_or_default(),
        acme: fields.optional("acme", acme::read),
    };
    if let Some((level, format)) = fields.optional("log", log) {
        (file.log_level, file.log_format) = (level, format);
    }
    fields.close();
    Some(file)
}

const ONLY_ABSENT: &str =
    "only an absent `cluster` means single-node: remove the line, or write `cluster: { mode: single-node }`";

/// Reads a text with one of the rules that variables and flags share.
fn with<T>(decoder: &mut Decoder, node: &Node, rule: impl FnOnce(&str) -> Result<T, Wrong>) -> Option<T> {
    let text = loose_text(decoder, node)?;
    match rule(&text) {
        Ok(value) => Some(value),
        Err((message, hint)) => decoder.fail(node.span, message, hint),
    }
}

pub(super) fn address(decoder: &mut Decoder, node: &Node) -> Option<SocketAddr> {
    match node.kind() {
        Kind::List | Kind::Map => {
            let hint = "write `10.0.0.1:3669`; an IPv6 address goes into quotes: `\"[::1]:3669\"`";
            decoder.wrong_type(node, "an IP address and a port", hint)
        }
        Kind::Integer => {
            let hint = "write the IP address too, such as `127.0.0.1:3669`";
            decoder.wrong_type(node, "an IP address and a port", hint)
        }
        Kind::Nothing | Kind::Boolean | Kind::Float | Kind::Text => with(decoder, node, values::address),
    }
}

/// An address, or `off`, which some programs write as a boolean.
fn api_addr(decoder: &mut Decoder, node: &Node) -> Option<ApiAddr> {
    match node.kind() {
        Kind::Boolean | Kind::Text => with(decoder, node, values::api_addr),
        Kind::List | Kind::Map | Kind::Integer | Kind::Nothing | Kind::Float => {
            address(decoder, node).map(ApiAddr::At)
        }
    }
}

pub(super) fn path(decoder: &mut Decoder, node: &Node) -> Option<String> {
    let text = text(decoder, node)?;
    match values::path(&text) {
        Ok(path) => Some(path),
        Err((message, hint)) => decoder.fail(node.span, message, hint),
    }
}

fn resources(decoder: &mut Decoder, node: &Node) -> Option<NodeResources> {
    let mut fields = Fields::open(decoder, node, "`resources`", "`{ cpu: 4, memory: 8Gi }`")?;
    fields.elsewhere(&[("cpus", "write `cpu`"), ("mem", "write `memory`")]);
    let resources = NodeResources {
        cpu: fields.optional("cpu", cpu),
        memory: fields.optional("memory", size),
    };
    fields.close();
    Some(resources)
}

const ONLY_ABSENT_POLICY: &str =
    "only an absent `policy` allows everything: remove the line, or write what is forbidden";
const ONLY_ABSENT_BINDS: &str =
    "only absent `host_binds` allow every folder: remove the line, or write `[]` to allow none";
const FOLDERS: &str = "write the folders whose contents may be bound, such as `[/srv, /data]`";

fn folder(decoder: &mut Decoder, node: &Node) -> Option<String> {
    let folder = path(decoder, node)?;
    if folder.starts_with('/') && !folder.split('/').any(|part| part == "..") {
        return Some(folder);
    }
    let message = format!("{} is no whole path of a folder", quoted(&folder));
    decoder.fail(
        node.span,
        message,
        "begin with `/`, and leave `..` out".to_owned(),
    )
}

fn policy(decoder: &mut Decoder, node: &Node) -> Option<Policy> {
    let mut fields = Fields::open(
        decoder,
        node,
        "`policy`",
        "`{ privileged: false, host_binds: [/srv] }`",
    )?;
    fields.elsewhere(&[
        ("capabilities", "write `added_capabilities: false`"),
        ("root", "write `root_processes: false`"),
        ("binds", "write `host_binds: [/srv]`"),
    ]);
    let all = Policy::default();
    let host_binds = fields.optional_or_say("host_binds", ONLY_ABSENT_BINDS, |decoder, node| {
        let expected = "a list of folders";
        list(decoder, node, expected, FOLDERS, || "/".into(), folder)
    });
    let policy = Policy {
        root_processes: fields.or("root_processes", all.root_processes, flag),
        privileged: fields.or("privileged", all.privileged, flag),
        added_capabilities: fields.or("added_capabilities", all.added_capabilities, flag),
        devices: fields.or("devices", all.devices, flag),
        host_binds,
    };
    fields.close();
    Some(policy)
}

fn log(decoder: &mut Decoder, node: &Node) -> Option<(Option<LogLevel>, Option<LogFormat>)> {
    let mut fields = Fields::open(decoder, node, "`log`", "`{ level: info, format: text }`")?;
    let level = fields.optional("level", |decoder, node| {
        with(decoder, node, |text| {
            values::word(text, values::LEVEL, &LogLevel::ALL, values::LEVEL_SYNONYMS)
        })
    });
    let format = fields.optional("format", |decoder, node| {
        with(decoder, node, |text| {
            values::word(text, values::FORMAT, &LogFormat::ALL, values::FORMAT_SYNONYMS)
        })
    });
    fields.close();
    Some((level, format))
}

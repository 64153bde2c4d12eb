//! The fixed form of `ClusterMode`, what serde refuses, and who wins between flag, variable, file and default.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use super::*;

fn raft_peer(id: u64) -> RaftPeer {
    RaftPeer {
        id,
        raft_addr: format!("10.0.0.{id}:3671").parse().unwrap(),
        api_addr: format!("10.0.0.{id}:3669").parse().unwrap(),
    }
}

fn worker_tier(role: WorkerTierRole) -> ClusterMode {
    ClusterMode::WorkerTier {
        role,
        node_id: None,
        peers: Vec::new(),
        worker_grpc_addr: "0.0.0.0:3670".parse().unwrap(),
        servers: Vec::new(),
        token_file: None,
        identity_dir: None,
        worker_ca_dir: None,
        heartbeat_min_ttl: Duration::from_secs(10),
        heartbeat_max_ttl: Duration::from_secs(600),
        heartbeat_grace: Duration::from_secs(10),
        max_heartbeats_per_second: 50,
        failover_heartbeat_ttl: Duration::from_secs(300),
        labels: BTreeMap::new(),
    }
}

/// Every mode with its bytes: with everything set, and with everything that may be left out left out.
fn goldens() -> Vec<(ClusterMode, &'static str)> {
    let mut server = worker_tier(WorkerTierRole::Server);
    if let ClusterMode::WorkerTier {
        node_id,
        peers,
        worker_grpc_addr,
        worker_ca_dir,
        servers,
        token_file,
        identity_dir,
        labels,
        ..
    } = &mut server
    {
        *node_id = Some(1);
        *peers = vec![raft_peer(1)];
        *worker_grpc_addr = "10.0.0.1:3670".parse().unwrap();
        *servers = vec!["https://10.0.0.1:3670".into()];
        *token_file = Some("/etc/token".into());
        *identity_dir = Some("/id".into());
        *worker_ca_dir = Some("/ca".into());
        *labels = BTreeMap::from([("zone".into(), "a".into())]);
    }
    vec![
        (ClusterMode::SingleNode {}, r#"{"mode":"single-node"}"#),
        (
            ClusterMode::Raft {
                node_id: 1,
                peers: vec![raft_peer(1)],
            },
            r#"{"mode":"raft","node_id":1,"peers":[{"id":1,"raft_addr":"10.0.0.1:3671","api_addr":"10.0.0.1:3669"}]}"#,
        ),
        (
            ClusterMode::Raft {
                node_id: 1,
                peers: Vec::new(),
            },
            r#"{"mode":"raft","node_id":1,"peers":[]}"#,
        ),
        (
            ClusterMode::Static {
                node_id: u64::MAX,
                peers: vec![StaticPeer {
                    id: u64::MAX,
                    api_addr: "[::1]:3669".parse().unwrap(),
                    os: "linux".into(),
                    labels: BTreeMap::new(),
                }],
                heartbeat_interval: Duration::from_secs(5),
                failure_threshold: Duration::from_secs(15),
            },
            r#"{"mode":"static","node_id":18446744073709551615,"peers":[{"id":18446744073709551615,"api_addr":"[::1]:3669","os":"linux"}],"heartbeat_interval":5,"failure_threshold":15}"#,
        ),
        (
            worker_tier(WorkerTierRole::Worker),
            r#"{"mode":"worker-tier","role":"worker","heartbeat_min_ttl":10,"heartbeat_max_ttl":600,"heartbeat_grace":10,"max_heartbeats_per_second":50,"failover_heartbeat_ttl":300}"#,
        ),
        (
            server,
            r#"{"mode":"worker-tier","role":"server","node_id":1,"peers":[{"id":1,"raft_addr":"10.0.0.1:3671","api_addr":"10.0.0.1:3669"}],"worker_grpc_addr":"10.0.0.1:3670","servers":["https://10.0.0.1:3670"],"token_file":"/etc/token","identity_dir":"/id","worker_ca_dir":"/ca","heartbeat_min_ttl":10,"heartbeat_max_ttl":600,"heartbeat_grace":10,"max_heartbeats_per_second":50,"failover_heartbeat_ttl":300,"labels":{"zone":"a"}}"#,
        ),
    ]
}

#[test]
fn every_mode_has_its_bytes() {
    for (mode, bytes) in goldens() {
        assert_eq!(serde_json::to_string(&mode).unwrap(), bytes);
        assert_eq!(
            serde_json::from_str::<ClusterMode>(bytes).unwrap(),
            mode,
            "{bytes}"
        );
        let yaml = serde_saphyr::to_string(&mode).unwrap();
        assert_eq!(
            serde_saphyr::from_str::<ClusterMode>(&yaml).unwrap(),
            mode,
            "{yaml}"
        );
    }
}

#[test]
fn what_may_be_absent_has_its_default() {
    let read = |text: &str| serde_json::from_str::<ClusterMode>(text).unwrap();
    assert_eq!(
        read(r#"{"mode":"worker-tier","role":"worker"}"#),
        worker_tier(WorkerTierRole::Worker)
    );
    let ClusterMode::Static {
        peers,
        heartbeat_interval,
        failure_threshold,
        ..
    } = read(
        r#"{"mode":"static","node_id":1,"peers":[{"id":1,"api_addr":"10.0.0.1:3669"}],"heartbeat_interval":9}"#,
    )
    else {
        panic!("another mode")
    };
    assert_eq!((peers[0].os.as_str(), peers[0].labels.len()), ("linux", 0));
    // The threshold is a constant, not a multiple of the interval.
    assert_eq!(
        (heartbeat_interval.as_secs(), failure_threshold.as_secs()),
        (9, 15)
    );
}

#[test]
fn serde_is_strict_in_every_mode() {
    for text in [
        "{}",
        "null",
        r#"{"node_id":1,"peers":[]}"#,
        r#"{"mode":"single_node"}"#,
        r#"{"mode":"single-node","bogus":1}"#,
        r#"{"mode":"single-node","node_id":1}"#,
        r#"{"mode":"raft","node_id":1}"#,
        r#"{"mode":"raft","peers":[]}"#,
        r#"{"mode":"raft","node_id":1,"peers":[],"bogus":1}"#,
        r#"{"mode":"raft","node_id":1,"peers":[{"id":1,"raft_addr":"10.0.0.1:1","api_addr":"10.0.0.1:2","os":"linux"}]}"#,
        r#"{"mode":"raft","node_id":1,"peers":[{"id":1,"raft_addr":"node:1","api_addr":"10.0.0.1:2"}]}"#,
        r#"{"mode":"static","node_id":1,"peers":[],"heartbeat":1}"#,
        r#"{"mode":"static","node_id":1,"peers":[],"heartbeat_interval":1.5}"#,
        r#"{"mode":"static","node_id":-1,"peers":[]}"#,
        r#"{"mode":"worker-tier"}"#,
        r#"{"mode":"worker-tier","role":"Server"}"#,
        r#"{"mode":"worker-tier","role":"server","bogus":1}"#,
        r#"{"mode":"worker-tier","role":"server","max_heartbeats_per_second":4294967296}"#,
    ] {
        assert!(serde_json::from_str::<ClusterMode>(text).is_err(), "{text}");
    }
}

#[test]
fn lease_times_saturate() {
    let mut tier = worker_tier(WorkerTierRole::Server);
    assert_eq!(
        tier.adaptive_ttl_config(),
        Some(dhow_core::lease::AdaptiveTtlConfig::default())
    );
    assert!(tier.is_worker_tier_server() && !tier.is_worker_tier_worker());
    if let ClusterMode::WorkerTier {
        heartbeat_max_ttl,
        failover_heartbeat_ttl,
        ..
    } = &mut tier
    {
        *heartbeat_max_ttl = Duration::from_secs(u64::MAX);
        *failover_heartbeat_ttl = Duration::from_secs(u64::from(u32::MAX) + 1);
    }
    let times = tier.adaptive_ttl_config().unwrap();
    assert_eq!(
        (times.max_ttl_secs, times.failover_ttl_secs),
        (u32::MAX, u32::MAX)
    );
    for other in [
        ClusterMode::SingleNode {},
        ClusterMode::Raft {
            node_id: 1,
            peers: Vec::new(),
        },
    ] {
        assert_eq!(other.adaptive_ttl_config(), None);
        assert!(!other.is_worker_tier_server() && !other.is_worker_tier_worker());
    }
}

/// An effective configuration from a file, variables and flags.
fn load(
    file: &str,
    env: &[(&str, &str)],
    flags: &[(Setting, &str)],
) -> Result<DaemonConfig, crate::document::Findings> {
    let flags: Vec<(Setting, OsString)> = flags
        .iter()
        .map(|(setting, value)| (*setting, value.into()))
        .collect();
    load_config(&ConfigSources {
        file: Some(("dhow.yaml", file)),
        env: &|name| {
            env.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        },
        flags: &flags,
        default_data_dir: DEFAULT_DATA_DIR,
    })
}

#[test]
fn flag_wins_over_variable_over_file_over_default() {
    let file = "data_dir: /from-file\nlog: { level: warn }\n";
    let env = [("DHOW_DATA_DIR", "/from-env"), ("DHOW_LOG_FORMAT", "json")];
    let flags = [(Setting::DataDir, "/from-flag")];
    let data_dir = |config: &DaemonConfig| config.data_dir.display().to_string();
    assert_eq!(data_dir(&load("", &[], &[]).unwrap()), "/var/lib/dhow");
    assert_eq!(data_dir(&load(file, &[], &[]).unwrap()), "/from-file");
    assert_eq!(data_dir(&load(file, &env, &[]).unwrap()), "/from-env");
    let config = load(file, &env, &flags).unwrap();
    assert_eq!(data_dir(&config), "/from-flag");
    // What follows from the directory follows from the one that won.
    assert_eq!(config.socket.display().to_string(), "/from-flag/dhow.sock");
    assert_eq!(
        config.cluster_key_file.display().to_string(),
        "/from-flag/cluster/cluster.key"
    );
    assert_eq!(
        config.worker_identity_dir().display().to_string(),
        "/from-flag/worker/identity"
    );
    assert_eq!(config.worker_ca_dir().display().to_string(), "/from-flag/cluster");
    assert_eq!(
        (config.log.level, config.log.format),
        (LogLevel::Warn, LogFormat::Json)
    );
}

#[test]
fn every_setting_has_its_variable_and_its_flag() {
    let values = [
        (Setting::DataDir, "/d"),
        (Setting::Socket, "/s.sock"),
        (Setting::ApiAddr, "127.0.0.1:4000"),
        (Setting::ClusterKeyFile, "/k"),
        (Setting::LogLevel, "trace"),
        (Setting::LogFormat, "json"),
    ];
    let env: Vec<(&str, &str)> = values
        .iter()
        .map(|(setting, value)| (setting.variable(), *value))
        .collect();
    let from_env = load("", &env, &[]).unwrap();
    let from_flags = load("", &[], &values).unwrap();
    let yaml = "data_dir: /d\nsocket: /s.sock\napi_addr: 127.0.0.1:4000\ncluster_key_file: /k\nlog: { level: trace, format: json }\n";
    let from_file = load(yaml, &[], &[]).unwrap();
    assert_eq!(from_env, from_file);
    assert_eq!(from_flags, from_file);
}

#[test]
fn bad_variables_and_flags_are_findings_by_name() {
    let env = [
        ("DHOW_API_ADDR", "0.0.0.0:3669"),
        ("DHOW_LOG_LEVEL", "loud"),
        ("DHOW_SOCKET", ""),
        ("DHOW_DATA_DIR", "~/x"),
    ];
    let findings = load("bogus: 1\n", &env, &[(Setting::LogFormat, "xml")]).unwrap_err();
    let text = findings.to_string();
    for name in [
        "`DHOW_API_ADDR`: ",
        "`DHOW_LOG_LEVEL`: ",
        "`DHOW_SOCKET`: ",
        "`DHOW_DATA_DIR`: ",
        "`--log-format`: ",
        "`bogus`",
    ] {
        assert!(text.contains(name), "{name} is missing in:\n{text}");
    }
    assert_eq!(findings.count(), 6, "{text}");
    let level = findings
        .list()
        .iter()
        .find(|finding| finding.path == "log.level")
        .unwrap();
    assert_eq!((level.file.as_str(), level.line), ("environment", None));
}

#[test]
fn a_malformed_file_never_becomes_a_default() {
    for text in [
        "[",
        "cluster:",
        "cluster: {}",
        "cluster: { mode: rafft }",
        "- a",
        "text",
        "data_dir: [a]",
        "\"\"",
        "~: 1",
    ] {
        assert!(parse_config(text, "dhow.yaml").is_err(), "{text}");
    }
    for text in ["", "# nothing", "---", "\u{feff}", "{}"] {
        assert!(parse_config(text, "dhow.yaml").is_ok(), "{text}");
    }
}

#[test]
fn the_effective_configuration_reads_back_as_itself() {
    let files = [
        "config-ok-full.yaml",
        "config-ok-raft.yaml",
        "config-ok-server.yaml",
        "config-ok-static.yaml",
        "config-ok-worker.yaml",
    ];
    for file in files {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/findings")
            .join(file);
        let config = parse_config(&std::fs::read_to_string(path).unwrap(), file).unwrap();
        let written = serde_saphyr::to_string(&config).unwrap();
        assert_eq!(parse_config(&written, "written").unwrap(), config, "{written}");
    }
}

#[test]
fn tcp_can_be_closed() {
    let closed = |text: &str| parse_config(text, "dhow.yaml");
    for text in ["api_addr: off\n", "api_addr: \"off\"\n"] {
        let config = closed(text).unwrap();
        assert_eq!(config.api_addr, ApiAddr::Off, "{text}");
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(
            closed(&written).unwrap(),
            config,
            "what is printed means the same"
        );
    }
    let flags = [(Setting::ApiAddr, OsString::from("off"))];
    let config = load_config(&ConfigSources {
        file: Some(("dhow.yaml", "api_addr: 127.0.0.1:4000\n")),
        env: &|_| None,
        flags: &flags,
        default_data_dir: "/d",
    });
    assert_eq!(config.unwrap().api_addr, ApiAddr::Off);
    let worker = "api_addr: off\ncluster: { mode: worker-tier, role: worker, servers: [\"https://10.0.0.1:3670\"], \
                  token_file: /t }\n";
    assert_eq!(closed(worker).unwrap().api_addr, ApiAddr::Off);
    let peers = "node_id: 1, peers: [{ id: 1, api_addr: 10.0.0.1:3669 }]";
    let refused = closed(&format!("api_addr: off\ncluster: {{ mode: static, {peers} }}\n")).unwrap_err();
    assert!(refused.to_string().contains("it cannot be off"), "{refused}");
    for text in ["api_addr: no\n", "api_addr: false\n", "api_addr: OFF\n"] {
        let refused = closed(text).unwrap_err();
        assert!(refused.to_string().contains("write `off`"), "{refused}");
    }
}

#[test]
fn how_long_expired_certificates_are_renewed_is_a_setting_of_servers() {
    let server = |line: &str| {
        format!(
            "cluster:\n  mode: worker-tier\n  role: server\n  node_id: 1\n  peers:\n    - {{ id: 1, raft_addr: \"10.0.0.1:3671\", api_addr: \"10.0.0.1:3669\" }}\n    - {{ id: 2, raft_addr: \"10.0.0.2:3671\", api_addr: \"10.0.0.2:3669\" }}\n    - {{ id: 3, raft_addr: \"10.0.0.3:3671\", api_addr: \"10.0.0.3:3669\" }}\n{line}"
        )
    };
    let secs = |line: &str| {
        let config = parse_config(&server(line), "dhow.yaml").unwrap();
        let again = serde_json::to_string(&config).unwrap();
        let again = parse_config(&again, "again.yaml").unwrap();
        assert_eq!(again, config, "the effective configuration gives itself again");
        config.renew_expired_secs()
    };
    assert_eq!(secs(""), 604_800);
    assert_eq!(secs("renew_expired_for: 0\n"), 0);
    assert_eq!(secs("renew_expired_for: 3600\n"), 3_600);
    for (text, why) in [
        (server("renew_expired_for: 2678401\n"), "at most 2678400 seconds"),
        (server("renew_expired_for: 7d\n"), "whole seconds"),
        ("renew_expired_for: 60\n".to_owned(), "worker tier alone"),
    ] {
        let refused = parse_config(&text, "dhow.yaml").unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

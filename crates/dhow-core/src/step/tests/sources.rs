//! An old set of signed files never comes back: not when its source is removed and added again, nor under another name.

use super::*;
use crate::command::{ApplyReason, ManifestSpec};
use crate::state::{ManifestVersion, SourceSettings};

pub(super) fn directory() -> SourceSettings {
    SourceSettings {
        dir: "/srv".into(),
        keys: Arc::new([[1; 32]]),
        remote: None,
        max_age_secs: None,
        hook_secret: None,
    }
}

fn add(cluster: &mut Cluster, name: &str) {
    let settings = directory();
    let name = name.into();
    cluster.apply(Command::Cluster(ClusterCommand::SetSource { name, settings }));
}

fn remove(cluster: &mut Cluster, name: &str) -> Result<(), Refused> {
    let name = name.into();
    cluster.try_apply(Command::Cluster(ClusterCommand::RemoveSource { name }))
}

/// A set of this version, whose one file says so.
fn bring(cluster: &mut Cluster, source: &str, version: u64) -> Result<(), Refused> {
    let spec = serde_json::json!({
        "version": "v1", "deployment": "shop", "services": { "web": { "image": format!("web:{version}") } },
    });
    cluster.try_apply(Command::Deployment(DeploymentCommand::ApplyManifests {
        version: ManifestVersion {
            version,
            created_unix_secs: 0,
            index_hash: [version as u8; 32],
        },
        specs: vec![ManifestSpec(Arc::new(serde_json::from_value(spec).unwrap()))],
        wall_unix_secs: 0,
        source: Some(source.into()),
        commit: None,
        why: ApplyReason::Newer,
    }))
}

fn owner(cluster: &Cluster) -> Option<&str> {
    let shop = cluster.state.deployments.values().next().unwrap();
    shop.source.as_deref().filter(|_| shop.from_manifests)
}

fn is_old(brought: Result<(), Refused>) -> bool {
    matches!(brought, Err(Refused::OldManifests { .. }))
}

#[test]
fn a_source_that_is_removed_leaves_its_version() {
    let mut cluster = Cluster::new(2);
    add(&mut cluster, "a");
    bring(&mut cluster, "a", 7).unwrap();
    remove(&mut cluster, "a").unwrap();
    assert_eq!(owner(&cluster), None);
    assert!(remove(&mut cluster, "a").is_err(), "it is not followed any more");
    add(&mut cluster, "a");
    assert_eq!(owner(&cluster), Some("a"), "nobody has changed what it brought");
    assert!(is_old(bring(&mut cluster, "a", 6)));
    bring(&mut cluster, "a", 8).unwrap();
}

#[test]
fn another_name_brings_nothing_old_back() {
    let mut cluster = Cluster::new(2);
    add(&mut cluster, "a");
    bring(&mut cluster, "a", 7).unwrap();
    add(&mut cluster, "b");
    assert!(matches!(bring(&mut cluster, "b", 9), Err(Refused::BadSpec(_))));
    remove(&mut cluster, "a").unwrap();
    assert!(is_old(bring(&mut cluster, "b", 6)));
    // The same set, followed under another name.
    bring(&mut cluster, "b", 7).unwrap();
    assert_eq!(owner(&cluster), Some("b"));
    add(&mut cluster, "a");
    assert_eq!(owner(&cluster), Some("b"), "what is another's stays so");
}

#[test]
fn what_is_deployed_by_hand_is_the_hands() {
    let mut cluster = Cluster::new(2);
    add(&mut cluster, "a");
    bring(&mut cluster, "a", 7).unwrap();
    remove(&mut cluster, "a").unwrap();
    cluster.deploy("web:hand", 0);
    add(&mut cluster, "a");
    assert_eq!(owner(&cluster), None);
}

#[test]
fn a_source_of_the_configuration_can_be_let_go_of() {
    let mut cluster = Cluster::new(2);
    bring(&mut cluster, "a", 7).unwrap();
    remove(&mut cluster, "a").unwrap();
    assert_eq!(owner(&cluster), None);
    assert!(is_old(bring(&mut cluster, "a", 6)));
}

#[test]
fn names_are_not_remembered_without_end() {
    let mut cluster = Cluster::new(2);
    bring(&mut cluster, "s", 1).unwrap();
    remove(&mut cluster, "s").unwrap();
    let remembered = cluster.state.sources.get("s").cloned().unwrap();
    for number in 1..State::SOURCES_REMEMBERED_MAX {
        let name = format!("s{number}");
        cluster.state.sources.insert(name.into(), Arc::clone(&remembered));
    }
    let settings = directory();
    let name = "new".into();
    let refused = cluster.try_apply(Command::Cluster(ClusterCommand::SetSource { name, settings }));
    assert!(matches!(refused, Err(Refused::NotNow(_))));
    add(&mut cluster, "s3");
}

#[test]
fn a_command_that_is_refused_suspends_nothing() {
    let mut cluster = Cluster::new(State::FEATURE_LEVEL);
    bring(&mut cluster, "a", 7).unwrap();
    let before = cluster.state.deployments.clone();
    let scale = |service: &str| {
        Command::Deployment(DeploymentCommand::Suspending {
            for_ms: 1_000,
            until_unix_secs: 1,
            author: "ann".into(),
            command: Box::new(DeploymentCommand::Scale {
                deployment: DeploymentName::new("shop").unwrap(),
                changes: vec![crate::command::ScaleChange {
                    service: ServiceName::new(service).unwrap(),
                    role: None,
                    replicas: 3,
                }],
            }),
        })
    };
    assert!(cluster.try_apply(scale("none")).is_err());
    assert_eq!(cluster.state.deployments, before);
    cluster.apply(scale("web"));
    let shop = cluster.state.deployments.values().next().unwrap();
    assert!(shop.is_suspended(cluster.state.time));
}

#[test]
fn a_secret_that_a_source_names_stays() {
    let mut cluster = Cluster::new(State::FEATURE_LEVEL);
    let (name, secret): (Arc<str>, Arc<str>) = ("a".into(), "hook".into());
    let settings = SourceSettings {
        hook_secret: Some(secret.clone()),
        ..directory()
    };
    let set = ClusterCommand::SetSource { name, settings };
    cluster.apply(Command::Cluster(set));
    let sealed = [1_u8].into();
    let name = secret.clone();
    cluster.apply(Command::Cluster(ClusterCommand::SetSecret { name, sealed }));
    let removes = || Command::Cluster(ClusterCommand::RemoveSecret { name: secret.clone() });
    assert!(matches!(
        cluster.try_apply(removes()),
        Err(Refused::SecretOfSource { .. })
    ));
    remove(&mut cluster, "a").unwrap();
    cluster.apply(removes());
}

#[test]
fn a_source_elsewhere_needs_servers_that_know_it() {
    let mut cluster = Cluster::new(5);
    let settings = SourceSettings {
        max_age_secs: Some(600),
        ..directory()
    };
    let name = "a".into();
    let refused = cluster.try_apply(Command::Cluster(ClusterCommand::SetSource { name, settings }));
    assert!(matches!(
        refused,
        Err(Refused::FeatureLevel { needed: 6, has: 5 })
    ));
}

#[test]
fn servers_of_an_earlier_version_know_no_suspension() {
    let mut cluster = Cluster::new(5);
    bring(&mut cluster, "a", 7).unwrap();
    // As that version does it: what is deployed by hand is the hand's.
    cluster.deploy("web:hand", 0);
    assert_eq!(owner(&cluster), None);
}

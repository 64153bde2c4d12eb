//! Which node keeps a volume that services share.

use std::sync::Arc;

use super::{Cluster, NODE};
use crate::command::{
    Command, DeploymentCommand, NodeCommand, Placement, PlanCommand, Refused, ScaleChange, Stale,
};
use crate::ids::{DeploymentName, NodeId, RoleId, ServiceId, ServiceName, Slot};
use crate::plan::{PlanCache, Why, plan_next};
use crate::spec::DeploymentSpec;
use crate::state::NodeInfo;
use crate::time::ClusterTime;

const OTHER: NodeId = NodeId(2);
const SHARED: &str = r#""storage":[{"type":"named","name":"data","target":"/d"}]"#;

fn shop() -> DeploymentName {
    DeploymentName::new("shop").unwrap()
}

fn slot(index: u32) -> Slot {
    Slot {
        role: RoleId(0),
        index,
    }
}

/// Two nodes; `app` and `web` as the fields say.
fn cluster(level: u32, app: &str, web: &str) -> Cluster {
    let mut cluster = Cluster::new(level);
    let info = cluster.state.node(NODE).unwrap().info.clone();
    cluster.apply(Command::Node(NodeCommand::Register {
        node: OTHER,
        info: Arc::new(NodeInfo::clone(&info)),
    }));
    deploy(&mut cluster, app, web);
    cluster
}

fn deploy(cluster: &mut Cluster, app: &str, web: &str) {
    let text = format!(
        r#"{{"version":"v1","deployment":"shop","services":{{"app":{{"image":"a:1",{app}}},"web":{{"image":"a:1",{web}}}}}}}"#
    );
    let spec: DeploymentSpec = serde_json::from_str(&text).unwrap();
    cluster.apply(Command::Deployment(DeploymentCommand::Deploy {
        spec: Arc::new(spec),
        author: "ann".into(),
        wall_unix_secs: 0,
        force: false,
    }));
}

fn id(cluster: &Cluster, name: &str) -> ServiceId {
    let name = ServiceName::new(name).unwrap();
    cluster.state.service_named(&shop(), &name).unwrap().id
}

fn place(cluster: &mut Cluster, name: &str, index: u32, node: NodeId) -> Result<(), Refused> {
    let service = id(cluster, name);
    let generation = cluster.state.service(service).unwrap().target;
    let eligibility = cluster.state.node(node).unwrap().eligibility;
    cluster.try_apply(Command::Plan(PlanCommand::Place {
        service,
        generation,
        placements: vec![Placement {
            slot: slot(index),
            node,
            eligibility,
        }],
    }))
}

fn bind(cluster: &mut Cluster, node: NodeId, kept: bool) -> Result<(), Refused> {
    cluster.try_apply(Command::Deployment(DeploymentCommand::BindVolume {
        deployment: shop(),
        volume: "data".into(),
        node,
        kept,
    }))
}

fn scale(cluster: &mut Cluster, name: &str, replicas: u32) {
    cluster.apply(Command::Deployment(DeploymentCommand::Scale {
        deployment: shop(),
        changes: vec![ScaleChange {
            service: ServiceName::new(name).unwrap(),
            role: None,
            replicas,
        }],
    }));
}

fn home(cluster: &Cluster, name: &str) -> Option<NodeId> {
    let service = cluster.state.service(id(cluster, name)).unwrap();
    cluster.state.volume_home(service, slot(0))
}

#[test]
fn who_shares_a_volume_is_placed_where_it_is_and_older_clusters_go_on_as_they_did() {
    for (level, expected) in [(6, Err(Refused::from(Stale::VolumeElsewhere))), (5, Ok(()))] {
        let mut cluster = cluster(level, SHARED, SHARED);
        place(&mut cluster, "app", 0, OTHER).unwrap();
        assert_eq!(place(&mut cluster, "web", 0, NODE), expected, "at level {level}");
    }
    let mut cluster = cluster(6, SHARED, r#""priority":50"#);
    place(&mut cluster, "app", 0, OTHER).unwrap();
    place(&mut cluster, "web", 0, NODE).unwrap();
}

#[test]
fn what_is_scaled_away_keeps_its_place_until_the_volume_is_removed() {
    let mut cluster = cluster(6, SHARED, SHARED);
    assert_eq!(home(&cluster, "web"), None);
    place(&mut cluster, "app", 0, OTHER).unwrap();
    assert_eq!(
        bind(&mut cluster, OTHER, false),
        Err(Refused::NotNow("a replica on that node uses the volume"))
    );
    scale(&mut cluster, "app", 0);
    cluster.plan();
    // A replica that never began is gone at once.
    let keys: Vec<_> = cluster.state.replicas.keys().copied().collect();
    for key in keys {
        crate::step::replicas::give_up(&mut cluster.state, &key, &mut ());
    }
    assert_eq!(home(&cluster, "web"), Some(OTHER));
    bind(&mut cluster, OTHER, false).unwrap();
    assert_eq!(home(&cluster, "web"), None);
    bind(&mut cluster, NODE, true).unwrap();
    assert_eq!(
        (home(&cluster, "web"), home(&cluster, "app")),
        (Some(NODE), Some(NODE))
    );
    assert!(bind(&mut cluster, NodeId(9), true).is_err());
}

#[test]
fn what_is_apart_already_is_told_and_stays() {
    let mut cluster = cluster(5, SHARED, SHARED);
    place(&mut cluster, "app", 0, OTHER).unwrap();
    place(&mut cluster, "web", 0, NODE).unwrap();
    cluster.state.feature_level = 6;
    let plan = plan_next(&cluster.state, &mut PlanCache::default(), ClusterTime(0));
    assert_eq!(plan.commands, []);
    let app = cluster.state.service(id(&cluster, "app")).unwrap();
    let apart = cluster.state.volumes_apart(app);
    assert_eq!(
        apart.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "volume `data` is not one: `app` has one on node 2, `web` has one on node 1; nothing is moved by itself"
        ]
    );
}

#[test]
fn none_is_placed_where_the_others_could_not_follow() {
    let asks = |memory: &str| format!(r#"{SHARED},"resources":{{"memory":"{memory}"}}"#);
    let mut cluster = cluster(6, &asks("5Gi"), &asks("5Gi"));
    let plan = plan_next(&cluster.state, &mut PlanCache::default(), ClusterTime(0));
    assert_eq!(plan.commands, [], "each alone fits, both do not");
    let report = &plan.report.services[&id(&cluster, "app")];
    assert!(
        matches!(&report.waiting[0].why, Why::NoNodeForAll { volume, mates } if volume == "data" && mates.len() == 2),
        "{report:?}"
    );
    deploy(&mut cluster, &asks("3Gi"), &asks("5Gi"));
    let plan = plan_next(&cluster.state, &mut PlanCache::default(), ClusterTime(0));
    let nodes: Vec<NodeId> = plan
        .commands
        .iter()
        .flat_map(|command| match command {
            PlanCommand::Place { placements, .. } => placements.iter().map(|placed| placed.node).collect(),
            _ => Vec::new(),
        })
        .collect();
    assert!(nodes.len() == 2 && nodes[0] == nodes[1], "{nodes:?}");
}

//! What `plan` says of a deployment, against what deploying it then does.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::dry_run::{Prospect, dry_run};
use dhow_core::ids::NodeId;
use dhow_core::spec::{DeploymentSpec, TimeSpan};
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_sim::lab::Lab;

fn cluster(nodes: u64) -> Lab {
    let mut lab = Lab::new();
    for id in 1..=nodes {
        let info = NodeInfo {
            role: NodeRole::Peer,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::new(BTreeMap::new()),
            capacity: Amount {
                cpu_milli: 4_000,
                memory_bytes: 8 << 30,
            },
            runs_replicas: true,
            tries_settings: false,
            mounts_files: false,
            runs_steps: false,
            volumes: dhow_core::spec::VolumeSupport::Named,
            mesh_addr: None,
        };
        lab.add_node(NodeId(id), info).expect("a new node is taken");
    }
    lab
}

fn spec(services: &str) -> Arc<DeploymentSpec> {
    let text = format!("version: v1\ndeployment: shop\nservices:\n{services}");
    let spec = dhow_wire::parse_deployment(&text, "shop.yaml", &|_| None);
    Arc::new(spec.expect("a deployment without findings"))
}

fn changes(lab: &Lab, spec: &Arc<DeploymentSpec>) -> Vec<(String, Prospect, u32, u32)> {
    let run = dry_run(&lab.state, spec).expect("the deployment is taken");
    run.services
        .iter()
        .map(|s| (s.name.to_string(), s.change, s.from, s.to))
        .collect()
}

const FIRST: &str = "
  web: { image: 'web:1', scale: { mode: fixed, replicas: 3 } }
  db: { image: 'db:1' }
  old: { image: 'old:1' }
";

#[test]
fn a_new_deployment_goes_where_the_plan_said() {
    let mut lab = cluster(3);
    let first = spec(FIRST);
    let run = dry_run(&lab.state, &first).expect("the deployment is taken");
    assert!(run.services.iter().all(|service| service.change == Prospect::New));
    assert_eq!(lab.state.replicas.len(), 0, "nothing was changed");
    lab.deploy(first.as_ref().clone())
        .expect("the deployment is taken");
    lab.run(TimeSpan::from_secs(30));
    let done: Vec<_> = lab
        .state
        .replicas
        .iter()
        .filter_map(|(key, replica)| Some((lab.state.replica_name(key)?, replica.node)))
        .collect();
    let mut planned = run.placements.clone();
    planned.sort();
    let mut placed = done;
    placed.sort();
    assert_eq!(planned, placed);
}

#[test]
fn changes_are_told_apart() {
    let mut lab = cluster(3);
    lab.deploy(spec(FIRST).as_ref().clone())
        .expect("the deployment is taken");
    lab.run(TimeSpan::from_secs(30));
    let hash = lab.state.hash();
    let same = changes(&lab, &spec(FIRST));
    assert!(
        same.iter().all(|(_, change, ..)| *change == Prospect::Unchanged),
        "{same:?}"
    );
    let next = spec(
        "
  web: { image: 'web:1', scale: { mode: fixed, replicas: 5 } }
  db: { image: 'db:2' }
  new: { image: 'new:1' }
",
    );
    assert_eq!(
        changes(&lab, &next),
        [
            ("db".to_owned(), Prospect::Rolls, 1, 1),
            ("new".to_owned(), Prospect::New, 0, 1),
            ("old".to_owned(), Prospect::Removed, 1, 0),
            ("web".to_owned(), Prospect::Scales, 3, 5),
        ]
    );
    let gentle = spec(&FIRST.replace("'db:1'", "'db:1', stop: { grace: 1s }"));
    assert!(changes(&lab, &gentle).contains(&("db".to_owned(), Prospect::InPlace, 1, 1)));
    assert_eq!(lab.state.hash(), hash, "planning changes nothing");
}

#[test]
fn what_finds_no_node_has_its_reason() {
    let lab = cluster(2);
    let wanted = spec(
        "\n  web: { image: 'web:1', scale: { mode: fixed, replicas: 3 }, resources: { memory: 5Gi } }\n",
    );
    let run = dry_run(&lab.state, &wanted).expect("the deployment is taken");
    assert_eq!(run.placements.len(), 2);
    let [waiting] = run.services[0].waiting.as_slice() else {
        panic!("one reason: {:?}", run.services)
    };
    assert_eq!(waiting.slots, 1);
    assert_eq!(
        waiting.why.to_string(),
        "all 2 nodes have at most 3Gi free, 5Gi asked"
    );
}

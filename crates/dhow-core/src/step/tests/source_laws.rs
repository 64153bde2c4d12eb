//! Laws of sources, over generated stories of two sources and of people beside them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::sources::directory;
use super::*;
use crate::command::{ApplyReason, ManifestSpec, ScaleChange};
use crate::state::ManifestVersion;

const SOURCES: [&str; 2] = ["base", "team"];
const NAMES: [&str; 3] = ["blog", "shop", "wiki"];

#[derive(Clone, Debug)]
enum Op {
    /// Versions and images by deployment; 0 leaves it out.
    Bring(usize, u64, [u8; 3], ApplyReason),
    Deploy(usize, u8, Option<u64>),
    Scale(usize, u32, Option<u64>),
    Remove(usize),
    Follow(usize),
    LetGo(usize),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let why = prop_oneof![
        6 => Just(ApplyReason::Newer),
        1 => Just(ApplyReason::Accepted),
        2 => Just(ApplyReason::SuspensionOver),
        1 => Just(ApplyReason::Retry),
    ];
    let suspend = || prop::option::weighted(0.4, 1..5_000u64);
    prop_oneof![
        6 => (0..2usize, 1..8u64, [0..3u8, 0..3u8, 0..3u8], why)
            .prop_map(|(source, version, images, why)| Op::Bring(source, version, images, why)),
        3 => (0..3usize, 1..4u8, suspend()).prop_map(|(name, image, secs)| Op::Deploy(name, image, secs)),
        2 => (0..3usize, 0..4u32, suspend()).prop_map(|(name, count, secs)| Op::Scale(name, count, secs)),
        1 => (0..3usize).prop_map(Op::Remove),
        1 => (0..2usize).prop_map(Op::Follow),
        1 => (0..2usize).prop_map(Op::LetGo),
        2 => (1..5_000u64).prop_map(Op::Pass),
    ]
}

fn name(of: usize) -> DeploymentName {
    DeploymentName::new(NAMES[of]).unwrap()
}

fn spec(of: usize, image: u8) -> Arc<DeploymentSpec> {
    let spec = serde_json::json!({
        "version": "v1", "deployment": NAMES[of],
        "services": { "web": { "image": format!("web:{image}"), "scale": { "mode": "fixed", "replicas": 2 } } },
    });
    Arc::new(serde_json::from_value(spec).unwrap())
}

fn suspending(for_ms: Option<u64>, command: DeploymentCommand) -> Command {
    Command::Deployment(match for_ms {
        None => command,
        Some(for_ms) => DeploymentCommand::Suspending {
            for_ms,
            until_unix_secs: 0,
            author: "ann".into(),
            command: Box::new(command),
        },
    })
}

fn command(op: &Op) -> Option<Command> {
    Some(match op {
        Op::Bring(source, version, images, why) => {
            let specs = images.iter().enumerate().filter(|(_, image)| **image > 0);
            Command::Deployment(DeploymentCommand::ApplyManifests {
                version: ManifestVersion {
                    version: *version,
                    created_unix_secs: 0,
                    index_hash: [images[0] * 9 + images[1] * 3 + images[2]; 32],
                },
                specs: specs.map(|(of, image)| ManifestSpec(spec(of, *image))).collect(),
                wall_unix_secs: 0,
                source: Some(SOURCES[*source].into()),
                commit: None,
                why: *why,
            })
        }
        Op::Deploy(of, image, suspend) => suspending(
            *suspend,
            DeploymentCommand::Deploy {
                spec: spec(*of, *image),
                author: "ann".into(),
                wall_unix_secs: 0,
                force: false,
            },
        ),
        Op::Scale(of, replicas, suspend) => suspending(
            *suspend,
            DeploymentCommand::Scale {
                deployment: name(*of),
                changes: vec![ScaleChange {
                    service: ServiceName::new("web").unwrap(),
                    role: None,
                    replicas: *replicas,
                }],
            },
        ),
        Op::Remove(of) => Command::Deployment(DeploymentCommand::Remove {
            deployment: name(*of),
        }),
        Op::Follow(source) => Command::Cluster(ClusterCommand::SetSource {
            name: SOURCES[*source].into(),
            settings: directory(),
        }),
        Op::LetGo(source) => Command::Cluster(ClusterCommand::RemoveSource {
            name: SOURCES[*source].into(),
        }),
        Op::Pass(_) => return None,
    })
}

/// What is owned: by deployment the source, and whether it is suspended.
fn owners(state: &State) -> Vec<(DeploymentName, Arc<str>, bool)> {
    let all = state.deployments.values();
    all.filter_map(|known| {
        let owner = known.owner()?.clone();
        Some((known.name.clone(), owner, known.is_suspended(state.time)))
    })
    .collect()
}

fn taken(state: &State, source: &str) -> Option<u64> {
    Some(state.sources.get(source)?.taken?.version)
}

/// The current revision of a deployment, and whether it is going away.
fn current(state: &State, name: &DeploymentName) -> Option<(DeploymentRevision, bool)> {
    let known = state.deployment(name)?;
    Some((known.revision, known.phase == Phase::Removing))
}

/// By hand nothing changes that a source owns and nobody has suspended; a source changes nothing that another one owns or
/// that is suspended; and versions only go up.
fn check(before: &State, after: &State, op: &Op, result: &Result<(), Refused>) {
    if result.is_err() {
        let kept = State {
            revision: after.revision,
            time: after.time,
            ..before.clone()
        };
        assert_eq!(*after, kept, "a refusal changes nothing: {op:?}");
        return;
    }
    for source in SOURCES {
        let (was, is) = (taken(before, source), taken(after, source));
        assert!(was <= is, "{source} went back from {was:?} to {is:?} by {op:?}");
    }
    let at = after.time;
    for (name, owner, _) in owners(before) {
        let suspended = before
            .deployment(&name)
            .is_some_and(|known| known.is_suspended(at));
        let changed = current(before, &name) != current(after, &name);
        match op {
            Op::Deploy(of, _, None) | Op::Scale(of, _, None) if NAMES[*of] == name.as_str() => {
                assert!(suspended, "{name} of {owner} is changed by {op:?}");
            }
            Op::Remove(of) => assert_ne!(NAMES[*of], name.as_str(), "{name} of {owner} is removed"),
            Op::Bring(source, ..) if changed => {
                assert_eq!(SOURCES[*source], &*owner, "{name} is another's");
                assert!(!suspended, "{name} is suspended");
            }
            Op::Deploy(..) | Op::Scale(..) | Op::Bring(..) | Op::Follow(_) | Op::LetGo(_) | Op::Pass(_) => {}
        }
    }
    check_removals(before, after, op);
}

/// A set removes at most half of what its source has, unless somebody has said yes.
fn check_removals(before: &State, after: &State, op: &Op) {
    let Op::Bring(source, _, images, why) = op else {
        return;
    };
    let of = |state: &State| {
        let own = owners(state).into_iter();
        own.filter(|(name, owner, _)| {
            let is_present = current(state, name).is_some_and(|(_, going)| !going);
            **owner == *SOURCES[*source] && is_present
        })
        .map(|(name, ..)| name)
        .collect::<Vec<_>>()
    };
    let (had, has) = (of(before), of(after));
    let gone = had.iter().filter(|name| !has.contains(name)).count();
    if *images == [0; 3] {
        assert_eq!(gone, 0, "an empty set removes nothing");
    }
    if *why == ApplyReason::Newer {
        assert!(gone * 2 <= had.len(), "{gone} of {} are gone", had.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn a_source_has_the_last_word_about_what_it_has_brought(ops in vec(op(), 1..40)) {
        let mut cluster = Cluster::new(State::FEATURE_LEVEL);
        for op in ops {
            if let Op::Pass(ms) = op {
                cluster.time += ms;
            }
            let Some(command) = command(&op) else { continue };
            let before = cluster.state.clone();
            let result = cluster.try_apply(command);
            check(&before, &cluster.state, &op, &result);
        }
    }
}

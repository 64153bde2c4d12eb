//! Configs and secrets as files: contents that come back, contents that go, and values of secrets that are put back.

use super::*;
use crate::command::Outcome;
use crate::invariants;
use crate::spec::check::limits::CONFIG_BYTES_MAX;
use crate::spec::{ContentHash, ServiceSpec};
use crate::state::Deployment;

const CONFIG: &str = r#""image":"a:1","configs":[{"source":"app","target":"/etc/app/app","on_change":"ON"}]"#;
const SECRET: &str = r#""image":"a:1","secrets":[{"source":"db"}]"#;

fn name() -> DeploymentName {
    DeploymentName::new("shop").unwrap()
}

impl Cluster {
    fn checked(&mut self, command: Command) -> Result<Outcome, Refused> {
        self.time += 1;
        let entry = Entry {
            time: ClusterTime(self.time),
            term: self.state.term,
            request: None,
            command,
        };
        let outcome = step(&mut self.state, &entry, &mut ());
        let broken = invariants::check(&self.state);
        assert!(broken.is_empty(), "{broken:?}");
        outcome
    }

    fn with_config(&mut self, content: &str, on_change: &str) -> Result<Outcome, Refused> {
        let web = CONFIG.replace("ON", on_change);
        let content = serde_json::to_string(content).unwrap();
        self.deploy_file(&format!(
            r#""configs":{{"app":{{"content":{content}}}}},"services":{{"web":{{{web}}}}}"#
        ))
    }

    fn deploy_file(&mut self, fields: &str) -> Result<Outcome, Refused> {
        let text = format!(r#"{{"version":"v1","deployment":"shop",{fields}}}"#);
        let spec: DeploymentSpec = serde_json::from_str(&text).unwrap();
        self.checked(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "ann".into(),
            wall_unix_secs: 1,
            force: false,
        }))
    }

    fn stable(&mut self) {
        let revision = self.shop().revision;
        self.checked(Command::Plan(PlanCommand::MarkStable {
            deployment: name(),
            revision,
        }))
        .unwrap();
    }

    fn fail(&mut self) {
        let (revision, service) = (self.shop().revision, self.service());
        self.checked(Command::Plan(PlanCommand::Fail {
            deployment: name(),
            revision,
            service,
            cause: "it exited with 1".into(),
            of_version: true,
        }))
        .unwrap();
    }

    fn set_secret(&mut self, value: &str) {
        let set = ClusterCommand::SetSecret {
            name: "db".into(),
            sealed: value.as_bytes().into(),
        };
        self.checked(Command::Cluster(set)).unwrap();
    }

    fn shop(&self) -> Arc<Deployment> {
        self.state.deployment(&name()).unwrap().clone()
    }

    fn web(&self) -> Arc<ServiceSpec> {
        self.state
            .service(self.service())
            .unwrap()
            .spec()
            .unwrap()
            .clone()
    }

    fn contents(&self) -> Vec<String> {
        let shop = self.shop();
        let mut texts: Vec<String> = shop
            .contents
            .values()
            .map(|content| String::from_utf8(content.to_vec()).unwrap())
            .collect();
        texts.sort();
        texts
    }
}

#[test]
fn a_content_comes_back_with_its_revision_and_goes_with_the_last_one() {
    let mut cluster = Cluster::new(4);
    cluster.with_config("one", "restart").unwrap();
    cluster.stable();
    let first = cluster.web();
    assert_eq!(first.configs[0].content, Some(ContentHash::of(b"one")));
    let again = cluster.with_config("one", "restart").unwrap();
    assert!(
        matches!(again, Outcome::Deployed { changed: false, .. }),
        "{again:?}"
    );
    cluster.with_config("two", "restart").unwrap();
    assert!(first.rolls_into_at(&cluster.web(), 4));
    cluster.stable();
    assert_eq!(cluster.contents(), ["one", "two"]);
    let back = DeploymentCommand::Rollback {
        deployment: name(),
        to: None,
        author: "ann".into(),
        wall_unix_secs: 2,
    };
    cluster.checked(Command::Deployment(back)).unwrap();
    assert_eq!(cluster.web().configs[0].content, Some(ContentHash::of(b"one")));
    cluster.stable();
    // `two` is kept until the revision that names it is forgotten.
    for round in 0..State::HISTORY_MAX - 2 {
        assert!(cluster.contents().contains(&"two".to_owned()), "round {round}");
        cluster.with_config(&format!("more {round}"), "restart").unwrap();
        cluster.stable();
    }
    assert!(cluster.contents().contains(&"two".to_owned()));
    cluster.with_config("last", "restart").unwrap();
    assert!(!cluster.contents().contains(&"two".to_owned()));
    let gone = DeploymentCommand::Remove { deployment: name() };
    cluster.checked(Command::Deployment(gone)).unwrap();
}

#[test]
fn a_failed_content_is_put_back() {
    for on_change in ["restart", "none"] {
        let mut cluster = Cluster::new(4);
        cluster.with_config("good", on_change).unwrap();
        cluster.stable();
        cluster.with_config("bad", on_change).unwrap();
        cluster.fail();
        assert_eq!(
            cluster.web().configs[0].content,
            Some(ContentHash::of(b"good")),
            "{on_change}"
        );
        assert_eq!(cluster.shop().phase, Phase::Reverting);
    }
}

#[test]
fn what_is_too_large_is_refused_and_what_is_kept_is_bounded() {
    let mut cluster = Cluster::new(4);
    let large = |letter: &str, bytes: u64| letter.repeat(bytes as usize);
    let refused = cluster
        .with_config(&large("x", CONFIG_BYTES_MAX + 1), "restart")
        .unwrap_err();
    assert!(matches!(refused, Refused::BadSpec(_)), "{refused}");
    for letter in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        cluster
            .with_config(&large(letter, CONFIG_BYTES_MAX), "restart")
            .unwrap();
        cluster.stable();
    }
    // Older revisions went before their time.
    let shop = cluster.shop();
    let kept = State::CONFIG_BYTES_OF_ONE_MAX / CONFIG_BYTES_MAX;
    assert_eq!(
        (shop.contents.len() as u64, shop.history.len() as u64),
        (kept, kept)
    );
    let unknown = r#""services":{"web":{"image":"a:1","configs":[{"source":"none"}]}}"#;
    assert!(matches!(cluster.deploy_file(unknown), Err(Refused::BadSpec(_))));
    let mut old = Cluster::new(3);
    assert!(matches!(
        old.with_config("x", "restart"),
        Err(Refused::FeatureLevel { .. })
    ));
}

#[test]
fn a_secret_that_is_set_again_is_a_revision_that_can_be_put_back() {
    let mut cluster = Cluster::new(4);
    cluster.set_secret("v1");
    cluster
        .deploy_file(&format!(r#""services":{{"web":{{{SECRET}}}}}"#))
        .unwrap();
    cluster.stable();
    let first = cluster.web();
    assert_eq!(first.secrets[0].version, Some(1));
    cluster.set_secret("v2");
    let shop = cluster.shop();
    assert_eq!((shop.revision.0, shop.phase), (2, Phase::Deploying));
    assert_eq!(&*shop.current().unwrap().author, "secret db");
    assert!(first.rolls_into_at(&cluster.web(), 4));
    let sealed = |cluster: &Cluster, version| cluster.state.secrets["db"].sealed_at(version).cloned();
    assert_eq!(sealed(&cluster, 1).as_deref(), Some(&b"v1"[..]));
    cluster.fail();
    assert_eq!(
        cluster.web().secrets[0].version,
        Some(1),
        "the value that was good"
    );
    cluster.stable();
    // Set again, and good this time: what was before is destroyed.
    cluster.set_secret("v3");
    assert_eq!(cluster.web().secrets[0].version, Some(3));
    assert_eq!(sealed(&cluster, 2), None, "nobody goes back to it");
    cluster.stable();
    assert_eq!(sealed(&cluster, 1), None);
    assert_eq!(sealed(&cluster, 3).as_deref(), Some(&b"v3"[..]));
}

#[test]
fn a_secret_that_is_used_is_not_removed() {
    let remove = || Command::Cluster(ClusterCommand::RemoveSecret { name: "db".into() });
    for web in [SECRET, r#""image":"a:1","env":{"PASSWORD":"$S:db"}"#] {
        let mut cluster = Cluster::new(4);
        cluster.set_secret("v1");
        cluster
            .deploy_file(&format!(r#""services":{{"web":{{{web}}}}}"#))
            .unwrap();
        let refused = cluster.checked(remove()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "secret `db` is used by shop/web: take it out of their files first"
        );
        cluster
            .deploy_file(r#""services":{"web":{"image":"a:2"}}"#)
            .unwrap();
        cluster.stable();
        cluster.checked(remove()).unwrap();
    }
    // Until the newer version is good, the older one may have to come back.
    let mut cluster = Cluster::new(4);
    cluster.set_secret("v1");
    cluster
        .deploy_file(&format!(r#""services":{{"web":{{{SECRET}}}}}"#))
        .unwrap();
    cluster.stable();
    cluster
        .deploy_file(r#""services":{"web":{"image":"a:2"}}"#)
        .unwrap();
    let refused = cluster.checked(remove()).unwrap_err();
    assert!(refused.to_string().contains("used by shop/web:"), "{refused}");
    cluster.stable();
    cluster.checked(remove()).unwrap();
    let mut old = Cluster::new(3);
    old.set_secret("v1");
    old.deploy_with(r#""image":"a:1","env":{"PASSWORD":"$S:db"}"#, 1);
    old.checked(remove()).unwrap();
}

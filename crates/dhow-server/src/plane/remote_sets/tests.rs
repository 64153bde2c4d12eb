//! Real repositories, served by git's own program over plain HTTP on loopback, and servers that mean no good.

mod hostile;
mod https;
mod support;

use std::sync::Arc;

use dhow_core::state::{RemoteKind, RemoteSource};

use super::{Credentials, Known, Read, RemoteError, read};
use support::{GitServer, Repository};

fn remote(url: &str, reference: &str, path: &str) -> RemoteSource {
    RemoteSource {
        kind: RemoteKind::Git,
        url: url.into(),
        reference: reference.into(),
        path: path.into(),
        ca_secret: None,
        login_secret: None,
    }
}

fn nothing_known() -> Known {
    Known {
        commit: None,
        index_hash: None,
        looked_at: None,
    }
}

fn known(commit: &str) -> Known {
    Known {
        commit: Some(commit.into()),
        ..nothing_known()
    }
}

async fn look(url: &str, reference: &str, path: &str, known: &Known) -> Result<Read, RemoteError> {
    read(&remote(url, reference, path), Credentials::default(), known).await
}

/// The files of a set with its commit, and whether it comes after the known one.
fn found(read: Read) -> (Vec<(String, String)>, Arc<str>, Option<String>) {
    let Read::Set {
        set,
        commit,
        rewritten,
    } = read
    else {
        panic!("nothing has changed");
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut files = vec![("index.json".to_owned(), text(&set.index))];
    files.extend(set.files.iter().map(|(path, bytes)| (path.clone(), text(bytes))));
    (files, commit.unwrap(), rewritten)
}

#[tokio::test]
async fn the_files_of_one_folder_at_a_branch_or_a_tag_are_read() {
    let Some(repository) = Repository::make() else {
        return;
    };
    repository.write("deploy/index.json", "{}");
    repository.write("deploy/index.json.sig", "00");
    repository.write("deploy/a/shop.yaml", "one");
    repository.write("deploy/.hidden", "no");
    repository.write("README.md", "elsewhere");
    let first = repository.commit("first");
    repository.git(&["tag", "-a", "-m", "a tag", "v1"]);
    // Many versions of one file, so that the server sends differences.
    let long: String = (0..2_000).map(|line| format!("line {line}\n")).collect();
    for round in 0..20 {
        repository.write("deploy/a/shop.yaml", &format!("{long}round {round}\n"));
        repository.commit("more");
    }
    repository.git(&["gc", "--quiet"]);
    for filters in [false, true] {
        repository.git(&["config", "uploadpack.allowFilter", &filters.to_string()]);
        let server = GitServer::start(&repository);
        let (files, commit, rewritten) = found(
            look(&server.url, "main", "deploy", &nothing_known())
                .await
                .unwrap(),
        );
        assert_eq!(*commit, repository.tip(), "with filters: {filters}");
        assert_eq!(rewritten, None);
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["index.json", "a/shop.yaml"]);
        assert_eq!(files[1].1, format!("{long}round 19\n"));

        let (files, commit, rewritten) =
            found(look(&server.url, "v1", "deploy", &nothing_known()).await.unwrap());
        assert_eq!(
            (&*commit, rewritten),
            (first.as_str(), None),
            "the commit, not the tag"
        );
        assert_eq!(files[1].1, "one");

        // What was looked at is not read again; without a name it is the default branch.
        let looked = Known {
            looked_at: Some(repository.tip().into()),
            ..nothing_known()
        };
        let again = look(&server.url, "", "deploy", &looked).await.unwrap();
        assert!(matches!(again, Read::Unchanged), "{again:?}");
    }
}

#[tokio::test]
async fn a_commit_comes_after_another_one_or_is_said_not_to() {
    let Some(repository) = Repository::make() else {
        return;
    };
    repository.write("index.json", "{}");
    let first = repository.commit("first");
    repository.git(&["checkout", "--quiet", "-b", "side"]);
    repository.write("side", "1");
    repository.commit("beside");
    repository.git(&["checkout", "--quiet", "main"]);
    repository.write("index.json", "{ }");
    let second = repository.commit("second");
    repository.git(&["merge", "--quiet", "--no-edit", "side"]);
    for filters in [false, true] {
        repository.git(&["config", "uploadpack.allowFilter", &filters.to_string()]);
        let server = GitServer::start(&repository);
        let rewritten = async |reference: &str, before: &str| {
            found(look(&server.url, reference, "", &known(before)).await.unwrap()).2
        };
        assert_eq!(rewritten("main", &first).await, None);
        assert_eq!(rewritten("main", &second).await, None);
        assert_eq!(rewritten("main", &repository.tip()).await, None, "the same one");
        let why = rewritten("side", &second).await.unwrap();
        assert!(why.contains("does not come after"), "{why}");
        // The server does not know that one at all.
        let why = rewritten("main", &"1".repeat(40)).await.unwrap();
        assert!(why.contains("does not come after"), "{why}");
    }
    repository.git(&["reset", "--quiet", "--hard", &first]);
    repository.write("index.json", "other");
    repository.commit("another second");
    let server = GitServer::start(&repository);
    let (files, _, why) = found(look(&server.url, "main", "", &known(&second)).await.unwrap());
    assert!(why.is_some(), "the branch was forced");
    assert_eq!(files[0].1, "other");
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let Some(repository) = Repository::make() else {
        return;
    };
    repository.write("deploy/index.json", "{}");
    repository.write("empty/readme", "no index");
    repository.commit("first");
    repository.link("linked/index.json", "/etc/passwd");
    repository.commit("a link");
    let server = GitServer::start(&repository);
    let told = async |url: &str, reference: &str, path: &str| {
        let error = look(url, reference, path, &nothing_known()).await.unwrap_err();
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    };
    for (path, reference, said) in [
        ("deploy", "gone", "no branch or tag `gone`"),
        ("deplo", "main", "no folder `deplo`"),
        ("deploy/index.json", "main", "no folder"),
        ("empty", "main", "no `index.json`"),
        ("linked", "main", "neither a plain file nor a folder"),
    ] {
        let told = told(&server.url, reference, path).await;
        assert!(told.contains(said), "{told} does not say {said:?}");
    }
    let other = told(&format!("{}x", server.url), "main", "deploy").await;
    assert!(other.contains("answered 404"), "{other}");
    let nobody = told("http://127.0.0.1:1/r.git", "main", "deploy").await;
    assert!(nobody.contains("cannot be reached"), "{nobody}");
}

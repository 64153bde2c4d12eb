//! References as people write them, right and wrong.

use super::*;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Parses, and checks the full and the familiar form and that the full form parses back.
#[track_caller]
fn check(text: &str, full: &str, familiar: &str) -> ImageRef {
    let parsed = ImageRef::parse(text).unwrap();
    assert_eq!(parsed.to_string(), full);
    assert_eq!(parsed.familiar(), familiar);
    assert_eq!(ImageRef::parse(full).unwrap(), parsed);
    parsed
}

#[test]
fn docker_hub_defaults() {
    check("nginx", "docker.io/library/nginx:latest", "nginx:latest");
    check("nginx:1.27", "docker.io/library/nginx:1.27", "nginx:1.27");
    check("grafana/loki:3", "docker.io/grafana/loki:3", "grafana/loki:3");
    check("index.docker.io/nginx:1", "docker.io/library/nginx:1", "nginx:1");
    let ImageRef::Registry(hub) = check(
        "docker.io/nginx",
        "docker.io/library/nginx:latest",
        "nginx:latest",
    ) else {
        panic!("a registry reference");
    };
    assert_eq!(hub.api_host(), "registry-1.docker.io");
}

#[test]
fn other_registries() {
    check(
        "registry:5000/a/b:tag",
        "registry:5000/a/b:tag",
        "registry:5000/a/b:tag",
    );
    check("localhost/a", "localhost/a:latest", "localhost/a:latest");
    check(
        "ghcr.io/o/i-m_a.ge__x:v1",
        "ghcr.io/o/i-m_a.ge__x:v1",
        "ghcr.io/o/i-m_a.ge__x:v1",
    );
    check("[::1]:5000/a", "[::1]:5000/a:latest", "[::1]:5000/a:latest");
    check("127.0.0.1:5000/a:1", "127.0.0.1:5000/a:1", "127.0.0.1:5000/a:1");
}

#[test]
fn digests_pin() {
    let pinned = format!("nginx@sha256:{HEX}");
    let parsed = check(&pinned, &format!("docker.io/library/nginx@sha256:{HEX}"), &pinned);
    assert_eq!(parsed.digest(), Some(Digest::of(b"")));
    let both = format!("nginx:1.27@sha256:{HEX}");
    check(
        &both,
        &format!("docker.io/library/nginx:1.27@sha256:{HEX}"),
        &both,
    );
    assert_eq!(
        ImageRef::parse("nginx:1.27")
            .unwrap()
            .pinned(Digest::of(b""))
            .familiar(),
        both
    );
}

#[test]
fn local_sources() {
    for text in [
        "oci:/srv/layout",
        "oci:/srv/layout:v1",
        "oci:lay:v1",
        "docker-archive:/srv/a:b.tar",
    ] {
        check(text, text, text);
        let pinned = format!("{text}@sha256:{HEX}");
        assert_eq!(check(&pinned, &pinned, &pinned).digest(), Some(Digest::of(b"")));
    }
    let ImageRef::OciLayout(layout) = ImageRef::parse("oci:/a:b/c:v1").unwrap() else {
        panic!("a layout reference");
    };
    assert_eq!(
        (layout.dir.to_str(), layout.tag.as_deref()),
        (Some("/a:b/c"), Some("v1"))
    );
}

#[test]
fn errors_speak_to_people() {
    let cases = [
        ("", "write a name such as"),
        ("Nginx:1", "did you mean `nginx:1`"),
        ("ghcr.io/Org/app:1", "did you mean `ghcr.io/org/app:1`"),
        ("https://ghcr.io/a", "write `ghcr.io/a`"),
        ("docker://nginx", "write `nginx`"),
        ("nginx:", "the tag ``"),
        ("nginx:-x", "the tag `-x`"),
        ("nginx@sha256:12", "64 hexadecimal digits"),
        ("nginx@md5:12", "does not start with `sha256:`"),
        ("a//b", "the repository `a//b`"),
        ("a..b", "the repository `a..b`"),
        ("a/../b", "the repository `a/../b`"),
        ("host:99999/a", "the registry `host:99999`"),
        ("-h.x/a", "the registry `-h.x`"),
        ("ng inx", "the character ' '"),
        ("oci:", "the layout directory"),
        ("docker-archive:", "the archive file"),
    ];
    for (text, part) in cases {
        let message = ImageRef::parse(text).unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
    assert!(ImageRef::parse(&"a".repeat(300)).is_err());
    assert!(ImageRef::parse(&"a".repeat(9_000)).is_err());
}

//! The form of an image's name. Whether there is such an image is the node's to find out.

use super::finding::{FieldPath, SpecFinding};
use super::limits::{IMAGE_NAME_MAX_BYTES, PATH_MAX_BYTES};
use super::words::{name_of, quoted};
use crate::spec::{ImageSpec, ServiceSpec};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    if let Some(image) = &spec.image {
        findings.extend(check_image(&at.key("image"), image));
    }
    for (position, group) in spec.replica_groups.iter().enumerate() {
        if let Some(image) = &group.image {
            let place = at.key("replica_groups").index(position).key("image");
            findings.extend(check_image(&place, image));
        }
    }
    for (position, step) in spec.init_steps.iter().enumerate() {
        let place = at.key("init_steps").index(position).key("image");
        findings.extend(step.image.iter().filter_map(|image| check_image(&place, image)));
    }
}

fn check_image(at: &FieldPath, image: &ImageSpec) -> Option<SpecFinding> {
    if let Err((message, hint)) = check_name(&image.name) {
        return Some(SpecFinding::at(at.key("name"), message).hint(hint));
    }
    let digest = image.digest.as_deref()?;
    let (message, hint) = check_digest(digest).err()?;
    Some(SpecFinding::at(at.key("digest"), message).hint(hint))
}

type Verdict = Result<(), (String, String)>;

fn check_name(name: &str) -> Verdict {
    if name.is_empty() {
        return wrong(
            "the image has no name",
            "write a registry's name for it, such as `nginx:1.27`",
        );
    }
    for (prefix, what) in [
        ("oci:", "the directory of an OCI layout"),
        ("docker-archive:", "a file"),
    ] {
        if let Some(path) = name.strip_prefix(prefix) {
            return check_local(path, prefix, what);
        }
    }
    if name.starts_with("$E:") || name.contains("${") {
        return wrong(
            &format!(
                "{} is not an image: variables are read in `env` alone",
                quoted(name)
            ),
            "write the image's name here",
        );
    }
    if let Some((scheme, rest)) = name.split_once("://") {
        return wrong(
            &format!(
                "an image's name has no `{}://`",
                scheme.chars().take(16).collect::<String>()
            ),
            &format!("did you mean {}?", quoted(rest)),
        );
    }
    let (rest, digest) = match name.split_once('@') {
        None => (name, None),
        Some((rest, digest)) => (rest, Some(digest)),
    };
    digest.map_or(Ok(()), check_digest)?;
    let (repository, tag) = match rest.rsplit_once(':') {
        // A colon before a slash belongs to the port of the registry.
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        Some(_) | None => (rest, None),
    };
    tag.map_or(Ok(()), |tag| check_tag(tag, name))?;
    check_repository(repository, name)
}

fn check_local(path: &str, prefix: &str, what: &str) -> Verdict {
    if path.is_empty() {
        return wrong(
            &format!("`{prefix}` needs {what}"),
            &format!("write it behind the colon: `{prefix}/srv/images/web`"),
        );
    }
    if path.len() > PATH_MAX_BYTES {
        return wrong(
            &format!("the path has {} bytes, at most {PATH_MAX_BYTES}", path.len()),
            "shorten it",
        );
    }
    Ok(())
}

fn check_digest(digest: &str) -> Verdict {
    let hex = digest.strip_prefix("sha256:");
    let fits = |hex: &str| hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match hex {
        Some(hex) if fits(hex) => Ok(()),
        Some(_) | None => wrong(
            &format!("{} is not a digest", quoted(digest)),
            "a digest is `sha256:` and 64 digits of 0–9 and a–f",
        ),
    }
}

fn check_tag(tag: &str, name: &str) -> Verdict {
    const TAG_MAX_BYTES: usize = 128;
    if tag.is_empty() {
        return wrong(
            &format!("{} ends with a colon, the tag is missing", quoted(name)),
            "write a tag such as `:1.27`, or remove the colon",
        );
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let bad = tag
        .chars()
        .find(|c| !fits(*c))
        .or_else(|| tag.chars().next().filter(|c| matches!(c, '.' | '-')));
    match bad {
        Some(c) => wrong(
            &format!("the tag {} holds {}", quoted(tag), name_of(c)),
            "a tag has letters, digits, `_`, `.` and `-`, and starts with a letter, a digit or `_`",
        ),
        None if tag.len() > TAG_MAX_BYTES => wrong(
            &format!("a tag has at most {TAG_MAX_BYTES} characters"),
            "shorten it",
        ),
        None => Ok(()),
    }
}

fn check_repository(repository: &str, name: &str) -> Verdict {
    if repository.len() > IMAGE_NAME_MAX_BYTES {
        return wrong(
            &format!(
                "an image's name has at most {IMAGE_NAME_MAX_BYTES} characters, this one has {}",
                repository.len()
            ),
            "shorten it",
        );
    }
    let mut parts = repository.split('/').peekable();
    let is_registry = |part: &str| part.contains(['.', ':']) || part == "localhost";
    if repository.contains('/') && parts.peek().is_some_and(|part| is_registry(part)) {
        parts.next();
    }
    for part in parts {
        if part.is_empty() {
            return wrong(
                &format!("{} has an empty part", quoted(repository)),
                "write it as `registry/name:tag`",
            );
        }
        if part.chars().any(|c| c.is_ascii_uppercase()) {
            return wrong(
                &format!(
                    "{} holds a capital letter, names of images are lower case",
                    quoted(part)
                ),
                &format!(
                    "did you mean {}?",
                    quoted(&name.replacen(repository, &repository.to_ascii_lowercase(), 1))
                ),
            );
        }
        let fits = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-');
        if let Some(c) = part.chars().find(|c| !fits(*c)) {
            return wrong(
                &format!("an image's name holds no {}", name_of(c)),
                "write it as `name:tag` or `registry/name:tag`",
            );
        }
        if !part.starts_with(|c: char| c.is_ascii_alphanumeric())
            || !part.ends_with(|c: char| c.is_ascii_alphanumeric())
        {
            return wrong(
                &format!("{} starts or ends with a mark", quoted(part)),
                "each part of an image's name starts and ends with a letter or a digit",
            );
        }
    }
    Ok(())
}

fn wrong(message: &str, hint: &str) -> Verdict {
    Err((message.into(), hint.into()))
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_of_images() {
        for name in [
            "nginx",
            "nginx:1.27",
            "library/nginx",
            "localhost:5000/bb:1",
            "ghcr.io/Org.x/app:v1".to_ascii_lowercase().as_str(),
            "127.0.0.1:5000/a/b_c:latest",
            "oci:/srv/bb:web",
            "docker-archive:/tmp/x.tar",
            &format!("nginx@sha256:{}", "a".repeat(64)),
            &format!("nginx:1@sha256:{}", "0".repeat(64)),
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "Nginx",
            "nginx:",
            "a b",
            "nginx:1.27 ",
            "https://nginx",
            "nginx@sha256:abc",
            "a//b",
            "oci:",
            "docker-archive:",
            "$E:IMAGE",
            "${IMAGE}",
            "nginx:-x",
            "-nginx",
            "nginx\u{0}",
            "größe",
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name(&"a".repeat(1_000_000)).is_err());
    }
}

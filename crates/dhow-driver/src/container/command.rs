//! What a container runs: the spec's words over the image's, as Docker and Kubernetes do it.

use std::collections::BTreeMap;

use dhow_core::spec::CommandSpec;

use crate::driver::Cause;
use crate::image::ImageConfig;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An entrypoint of the spec replaces all of the image's; arguments alone replace its `cmd`.
pub(super) fn args(command: Option<&CommandSpec>, image: &ImageConfig) -> Result<Vec<String>, Cause> {
    let entrypoint = command.and_then(|command| command.entrypoint.as_ref());
    let given = command.and_then(|command| command.args.as_ref());
    let cmd = match (entrypoint, given) {
        (_, Some(args)) => args.as_slice(),
        (Some(_), None) => &[],
        (None, None) => &image.cmd,
    };
    let words: Vec<String> = entrypoint
        .unwrap_or(&image.entrypoint)
        .iter()
        .chain(cmd)
        .cloned()
        .collect();
    if words.is_empty() {
        Err(Cause::NoCommand)
    } else {
        Ok(words)
    }
}

pub(super) fn workdir(command: Option<&CommandSpec>, image: &ImageConfig) -> String {
    let given = command.and_then(|command| command.workdir.clone());
    let text = given.unwrap_or_else(|| image.working_dir.clone());
    if text.starts_with('/') {
        text
    } else {
        format!("/{text}")
    }
}

/// A base, the image's, the service's, its secrets: the later wins.
pub(super) fn env(
    image: &ImageConfig,
    hostname: &str,
    home: &str,
    layers: [&BTreeMap<String, String>; 2],
) -> Vec<String> {
    let base = [("PATH", PATH), ("HOME", home), ("HOSTNAME", hostname)];
    let mut built: BTreeMap<&str, &str> = base.into_iter().collect();
    built.extend(
        image
            .env
            .iter()
            .map(|pair| pair.split_once('=').unwrap_or((pair, ""))),
    );
    built.extend(
        layers
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str())),
    );
    built
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

/// The folders in which a program is looked for.
pub(super) fn path_of(env: &[String]) -> &str {
    env.iter()
        .find_map(|pair| pair.strip_prefix("PATH="))
        .unwrap_or(PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_spec_wins_over_the_image_as_in_docker() {
        let image = ImageConfig {
            entrypoint: list(&["/entry"]),
            cmd: list(&["serve", "-v"]),
            working_dir: "/srv".into(),
            env: list(&["PATH=/bin", "A=image", "B=image", "EMPTY"]),
            ..ImageConfig::default()
        };
        let spec = |entrypoint: Option<&[&str]>, args: Option<&[&str]>| CommandSpec {
            entrypoint: entrypoint.map(list),
            args: args.map(list),
            workdir: None,
        };
        let cases: [(Option<CommandSpec>, &[&str]); 5] = [
            (None, &["/entry", "serve", "-v"]),
            (Some(spec(None, Some(&["check"]))), &["/entry", "check"]),
            (Some(spec(Some(&["/other"]), None)), &["/other"]),
            (Some(spec(Some(&["/other"]), Some(&["x"]))), &["/other", "x"]),
            (Some(spec(None, Some(&[]))), &["/entry"]),
        ];
        for (command, expected) in cases {
            assert_eq!(
                args(command.as_ref(), &image).unwrap(),
                list(expected),
                "{command:?}"
            );
        }
        assert!(matches!(
            args(None, &ImageConfig::default()),
            Err(Cause::NoCommand)
        ));
        assert_eq!(workdir(None, &image), "/srv");
        assert_eq!(workdir(None, &ImageConfig::default()), "/");
        let env = env(
            &image,
            "h",
            "/root",
            [
                &BTreeMap::from([("B".to_owned(), "spec".to_owned())]),
                &BTreeMap::from([("S".to_owned(), "secret=1".to_owned())]),
            ],
        );
        assert_eq!(
            env,
            list(&[
                "A=image",
                "B=spec",
                "EMPTY=",
                "HOME=/root",
                "HOSTNAME=h",
                "PATH=/bin",
                "S=secret=1"
            ])
        );
        assert_eq!(path_of(&env), "/bin");
    }
}

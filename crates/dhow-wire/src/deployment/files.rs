//! Configs at the top of a file, and configs and secrets that a service sees as files.

use std::collections::BTreeMap;

use dhow_core::spec::check::quoted;
use dhow_core::spec::{ConfigSpec, FileMode, FileMount, OnChange};

use super::Reading;
use super::surroundings::Surroundings;
use crate::document::{Decoder, Fields, Kind, Node, choice, integer, list, loose_text, map_of, text};

const EXAMPLE: &str = "`{ file: app.conf }` or `{ content: \"…\" }`";
const MOUNT: &str = "`app.conf` or `{ source: app.conf, target: /etc/app/app.conf }`";

/// `configs` of a deployment.
pub(super) fn configs(
    decoder: &mut Decoder,
    node: &Node,
    reading: &Reading<'_>,
) -> Option<BTreeMap<String, ConfigSpec>> {
    map_of(
        decoder,
        node,
        "a map of names and configs",
        "write each config below its name: `app.conf: { file: app.conf }`",
        |decoder, _, node| config(decoder, node, reading),
    )
}

fn config(decoder: &mut Decoder, node: &Node, reading: &Reading<'_>) -> Option<ConfigSpec> {
    if node.kind() == Kind::Text {
        let hint = format!("write {EXAMPLE}");
        return decoder.wrong_type(node, "a map", hint);
    }
    let mut fields = Fields::open(decoder, node, "a config", EXAMPLE)?;
    fields.elsewhere(&[
        (
            "environment",
            "write `content: \"${NAME}\"` into a file of its own: contents are taken as they are",
        ),
        (
            "external",
            "configs belong to their deployment: write `file` or `content`",
        ),
        ("data", "write `content`, or `content_base64` for what is no text"),
    ]);
    let given = ["content", "content_base64", "file"]
        .into_iter()
        .filter(|name| fields.has(name))
        .count();
    let content = fields.optional("content", |decoder, node| {
        loose_text(decoder, node).map(|text| ConfigSpec::of_bytes(text.into_bytes()))
    });
    let base64 = fields.optional("content_base64", |decoder, node| {
        text(decoder, node).map(|text| ConfigSpec::ContentBase64(text.into()))
    });
    let file = fields.optional("file", |decoder, node| {
        beside(decoder, node, reading).map(ConfigSpec::of_bytes)
    });
    let span = fields.span();
    if given != 1 {
        let message = match given {
            0 => "a config needs its content",
            _ => "a config has one content",
        };
        let _: Option<()> = fields.decoder().fail(span, message, format!("write {EXAMPLE}"));
    }
    fields.close();
    content.or(base64).or(file)
}

/// The bytes of a file beside the deployment file.
pub(super) fn beside(decoder: &mut Decoder, node: &Node, reading: &Reading<'_>) -> Option<Vec<u8>> {
    let path = text(decoder, node)?;
    let Surroundings::Client(client) = reading.around else {
        let message = format!(
            "the file {} is where the deployment file was written, and not here",
            quoted(&path)
        );
        let hint =
            "the command line reads it before it sends a file: use `dhow deploy`, or write its `content`";
        return decoder.fail(node.span, message, hint);
    };
    match (client.file)(&path) {
        Ok(bytes) => Some(bytes),
        Err(problem) => decoder.fail(node.span, problem.message, problem.hint),
    }
}

/// `configs` or `secrets` of a service.
pub(super) fn mounts(decoder: &mut Decoder, node: &Node) -> Option<Vec<FileMount>> {
    list(
        decoder,
        node,
        "a list",
        "write `- ` and the name of each, such as `- app.conf`",
        FileMount::default,
        mount,
    )
}

fn mount(decoder: &mut Decoder, node: &Node) -> Option<FileMount> {
    match node.kind() {
        Kind::Map | Kind::List | Kind::Nothing => {}
        Kind::Boolean | Kind::Integer | Kind::Float | Kind::Text => {
            return Some(FileMount {
                source: loose_text(decoder, node)?,
                ..FileMount::default()
            });
        }
    }
    let mut fields = Fields::open(decoder, node, "a file", MOUNT)?;
    fields.elsewhere(&[
        ("name", "write `source`"),
        ("path", "the place inside is `target`"),
        (
            "file",
            "configs are at the top of the file: `configs: { app.conf: { file: app.conf } }`",
        ),
        (
            "content",
            "configs are at the top of the file: `configs: { app.conf: { content: … } }`",
        ),
    ]);
    let mount = FileMount {
        source: fields
            .required("source", "source: app.conf", loose_text)
            .unwrap_or_default(),
        target: fields.optional("target", text),
        mode: fields.optional("mode", mode),
        uid: fields.optional("uid", id),
        gid: fields.optional("gid", id),
        on_change: fields.or("on_change", OnChange::default(), on_change),
        signal: fields.optional("signal", loose_text),
        content: None,
        version: None,
    };
    fields.close();
    Some(mount)
}

fn mode(decoder: &mut Decoder, node: &Node) -> Option<FileMode> {
    let text = loose_text(decoder, node)?;
    match FileMode::parse(&text) {
        Some(mode) => Some(mode),
        None => decoder.fail(
            node.span,
            format!("{} is no mode of a file", quoted(&text)),
            "write it in octal, up to `0777`, such as `0440`",
        ),
    }
}

/// Compose writes ids as texts.
fn id(decoder: &mut Decoder, node: &Node) -> Option<u32> {
    let text = loose_text(decoder, node)?;
    match text.parse() {
        Ok(id) => Some(id),
        Err(_) => integer(decoder, node, 0, u64::from(u32::MAX) - 1).map(|id| id as u32),
    }
}

fn on_change(decoder: &mut Decoder, node: &Node) -> Option<OnChange> {
    let allowed = [
        ("restart", OnChange::Restart),
        ("signal", OnChange::Signal),
        ("none", OnChange::None),
    ];
    let synonyms = [
        ("reload", "signal"),
        ("ignore", "none"),
        ("noop", "none"),
        ("replace", "restart"),
    ];
    choice(decoder, node, &allowed, &synonyms)
}

#[cfg(test)]
mod tests {
    use dhow_core::spec::ContentHash;

    use crate::{Sender, parse_deployment, parse_deployment_under, write_deployment};

    #[test]
    fn a_content_that_json_would_swell_is_sent_as_base64_and_is_the_same() {
        let content = "\u{1}".repeat(1024);
        let text = format!(
            "version: v1\ndeployment: shop\nconfigs: {{ bell: {{ content: \"{}\" }} }}\nservices: {{ web: {{ image: \"a:1\", configs: [bell] }} }}\n",
            r"\x01".repeat(1024)
        );
        let spec = parse_deployment(&text, "shop.yaml", &|_| None).unwrap();
        let sent = write_deployment(&spec).unwrap().to_string();
        assert!(sent.len() < 3 * content.len(), "{} bytes", sent.len());
        let read = parse_deployment_under(&sent, "body", Sender::Caller, &|_| Vec::new()).unwrap();
        assert_eq!(
            read.configs["bell"].hash(),
            Some(ContentHash::of(content.as_bytes()))
        );
    }
}

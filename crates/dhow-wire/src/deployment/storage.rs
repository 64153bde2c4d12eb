//! What is mounted.

use dhow_core::spec::Storage;

use crate::document::{Decoder, Fields, Kind, Node, choice, flag, list, size, text};

/// The kinds of storage, as `type` names them.
#[derive(Clone, Copy)]
enum Type {
    Bind,
    Named,
    Tmpfs,
    Ephemeral,
}

const EXAMPLE: &str = "`{ type: named, name: data, target: /data }`";

pub(super) fn storage(decoder: &mut Decoder, node: &Node) -> Option<Vec<Storage>> {
    list(
        decoder,
        node,
        "a list",
        "write `- ` and the fields of each mount",
        || Storage::Tmpfs {
            target: String::new(),
            size: None,
        },
        mount,
    )
}

fn mount(decoder: &mut Decoder, node: &Node) -> Option<Storage> {
    if node.kind() == Kind::Text {
        return decoder.wrong_type(node, "a map", format!("write {EXAMPLE}"));
    }
    let mut fields = Fields::open(decoder, node, "a mount", EXAMPLE)?;
    let example = match (fields.has("source"), fields.has("name")) {
        (true, _) => "type: bind",
        (false, true) => "type: named",
        (false, false) => "type: tmpfs",
    };
    let kind = fields.required("type", example, |decoder, node| {
        let allowed = [
            ("bind", Type::Bind),
            ("named", Type::Named),
            ("tmpfs", Type::Tmpfs),
            ("ephemeral", Type::Ephemeral),
        ];
        choice(
            decoder,
            node,
            &allowed,
            &[
                ("volume", "named"),
                ("host", "bind"),
                ("hostpath", "bind"),
                ("memory", "tmpfs"),
                ("emptydir", "ephemeral"),
                ("empty_dir", "ephemeral"),
                ("scratch", "ephemeral"),
            ],
        )
    });
    fields.elsewhere(&[
        ("path", "the place inside is `target`"),
        ("destination", "the place inside is `target`"),
        ("mount", "the place inside is `target`"),
        ("readonly", "write `read_only: true`, of `bind` and `named`"),
        ("no_copy", "write `nocopy: true`, of `named`"),
    ]);
    let storage = match kind {
        None => {
            fields.ignore_rest();
            None
        }
        Some(kind) => Some(of_type(kind, &mut fields)),
    };
    fields.close();
    storage
}

fn of_type(kind: Type, fields: &mut Fields<'_, '_>) -> Storage {
    match kind {
        Type::Bind => {
            fields.call("a `bind` mount");
            let source = fields.required("source", "source: /srv/data", text);
            let target = fields.required("target", "target: /data", text);
            Storage::Bind {
                source: source.unwrap_or_default(),
                target: target.unwrap_or_default(),
                read_only: fields.or("read_only", false, flag),
            }
        }
        Type::Named => {
            fields.call("a `named` mount");
            fields.elsewhere(&[(
                "source",
                "the volume is called by `name`; a directory of the host is `type: bind`",
            )]);
            let name = fields.required("name", "name: data", text);
            let target = fields.required("target", "target: /data", text);
            Storage::Named {
                name: name.unwrap_or_default(),
                target: target.unwrap_or_default(),
                read_only: fields.or("read_only", false, flag),
                nocopy: fields.or("nocopy", false, flag),
                size: fields.optional("size", size),
            }
        }
        Type::Ephemeral => {
            fields.call("an `ephemeral` mount");
            fields.elsewhere(&[
                ("name", "what lasts and has a name is `type: named`"),
                ("read_only", "nobody else would write to it: remove it"),
            ]);
            let target = fields.required("target", "target: /scratch", text);
            Storage::Ephemeral {
                target: target.unwrap_or_default(),
                size: fields.optional("size", size),
            }
        }
        Type::Tmpfs => {
            fields.call("a `tmpfs` mount");
            let target = fields.required("target", "target: /tmp", text);
            Storage::Tmpfs {
                target: target.unwrap_or_default(),
                size: fields.optional("size", size),
            }
        }
    }
}

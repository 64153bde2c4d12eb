//! What runs: kind, runtime, image, command, resources.

use dhow_core::spec::check::limits::PIDS_MAX;
use dhow_core::spec::{CommandSpec, ImageSpec, Offline, PullPolicy, RType, Resources, Runtime};

use crate::document::{Decoder, Fields, Kind, Node, choice, cpu, integer, list_of, size, text};

pub(super) fn offline(decoder: &mut Decoder, node: &Node) -> Option<Offline> {
    let allowed = [("wait", Offline::Wait), ("run", Offline::Run)];
    choice(decoder, node, &allowed, &[])
}

pub(super) fn rtype(decoder: &mut Decoder, node: &Node) -> Option<RType> {
    let allowed = [
        ("service", RType::Service),
        ("job", RType::Job),
        ("cron", RType::Cron),
        ("system", RType::System),
    ];
    let synonyms = [
        ("daemonset", "system"),
        ("global", "system"),
        ("batch", "job"),
        ("cronjob", "cron"),
        ("periodic", "cron"),
        ("deployment", "service"),
    ];
    choice(decoder, node, &allowed, &synonyms)
}

pub(super) fn runtime(decoder: &mut Decoder, node: &Node) -> Option<Runtime> {
    let allowed = [("container", Runtime::Container), ("process", Runtime::Process)];
    let synonyms = [
        ("docker", "container"),
        ("oci", "container"),
        ("runc", "container"),
        ("exec", "process"),
        ("raw_exec", "process"),
    ];
    choice(decoder, node, &allowed, &synonyms)
}

pub(super) fn image(decoder: &mut Decoder, node: &Node) -> Option<ImageSpec> {
    match node.kind() {
        Kind::Map => {}
        Kind::Text => return text(decoder, node).map(|name| ImageSpec::named(&name)),
        Kind::Nothing | Kind::Boolean | Kind::Integer | Kind::Float | Kind::List => {
            let hint = "such as `nginx:1.27`";
            return decoder.wrong_type(node, "the name of an image or a map", hint);
        }
    }
    let mut fields = Fields::open(decoder, node, "`image`", "`{ name, pull_policy }`")?;
    let name = fields.required("name", "name: nginx:1.27", text);
    let pull_policy = fields.or("pull_policy", PullPolicy::default(), |decoder, node| {
        let allowed = [
            ("if_not_present", PullPolicy::IfNotPresent),
            ("always", PullPolicy::Always),
            ("never", PullPolicy::Never),
        ];
        let synonyms = [("IfNotPresent", "if_not_present"), ("missing", "if_not_present")];
        choice(decoder, node, &allowed, &synonyms)
    });
    let digest = fields.optional("digest", text);
    fields.close();
    Some(ImageSpec {
        name: name.unwrap_or_default(),
        pull_policy,
        digest,
    })
}

/// A list, or the parts by name.
pub(super) fn command(decoder: &mut Decoder, node: &Node) -> Option<CommandSpec> {
    const WORDS: &str = "a list of words";
    const HOW: &str = "write each word as an item: `[sh, -c, \"echo hello\"]`";
    match node.kind() {
        Kind::Map => {}
        Kind::List => {
            let args = list_of(WORDS, HOW)(decoder, node)?;
            return Some(CommandSpec {
                args: Some(args),
                ..CommandSpec::default()
            });
        }
        Kind::Nothing | Kind::Boolean | Kind::Integer | Kind::Float | Kind::Text => {
            return decoder.wrong_type(node, "a list of words or a map", HOW);
        }
    }
    let mut fields = Fields::open(decoder, node, "`command`", "`{ entrypoint, args, workdir }`")?;
    fields.elsewhere(&[
        ("command", "the program is the first word of `entrypoint`"),
        ("cmd", "write `args`"),
        ("working_dir", "write `workdir`"),
        ("cwd", "write `workdir`"),
    ]);
    let command = CommandSpec {
        entrypoint: fields.optional("entrypoint", list_of(WORDS, HOW)),
        args: fields.optional("args", list_of(WORDS, HOW)),
        workdir: fields.optional("workdir", text),
    };
    fields.close();
    Some(command)
}

pub(super) fn resources(decoder: &mut Decoder, node: &Node) -> Option<Resources> {
    let mut fields = Fields::open(decoder, node, "`resources`", "`{ cpu: 0.5, memory: 256Mi }`")?;
    fields.elsewhere(&[
        (
            "limits",
            "there is one amount, both reserved and the limit: write `cpu` and `memory` here",
        ),
        (
            "requests",
            "there is one amount, both reserved and the limit: write `cpu` and `memory` here",
        ),
        ("cpus", "write `cpu`"),
        ("mem", "write `memory`"),
        ("pids_limit", "write `pids`"),
    ]);
    let resources = Resources {
        cpu: fields.optional("cpu", cpu),
        memory: fields.optional("memory", size),
        pids: fields.optional("pids", |decoder, node| {
            integer(decoder, node, 1, u64::from(PIDS_MAX)).map(|pids| pids as u32)
        }),
    };
    fields.close();
    Some(resources)
}

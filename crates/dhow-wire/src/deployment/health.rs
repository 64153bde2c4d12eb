//! Checks, restarts, stops.

use dhow_core::spec::{Backoff, Check, HealthSpec, RestartPolicy, RestartSpec, StopSpec};

use crate::document::{Decoder, Fields, Kind, Node, choice, duration, integer, list_of, port, text};

/// The kinds of check, as `type` names them.
#[derive(Clone, Copy)]
enum Type {
    Tcp,
    Http,
    Command,
}

pub(super) fn health(decoder: &mut Decoder, node: &Node) -> Option<HealthSpec> {
    const INSIDE: &str = "it belongs inside: `check: { type: http, url: /healthz }`";
    let mut fields = Fields::open(
        decoder,
        node,
        "`health`",
        "`{ check: { type: http, url: /healthz } }`",
    )?;
    fields.elsewhere(&[
        ("type", INSIDE),
        ("url", INSIDE),
        ("port", INSIDE),
        ("command", INSIDE),
        ("test", "write `check: { type: command, command: [...] }`"),
        ("start_period", "write `start_grace`"),
        ("initialDelaySeconds", "write `start_grace: 5s`"),
        ("periodSeconds", "write `interval: 10s`"),
        ("failureThreshold", "write `retries`"),
    ]);
    // Any check stands in for one that could not be read: no rule is heard about it.
    let plain = HealthSpec::of(Check::Tcp { port: 1 });
    let found = fields.required("check", "check: { type: http, url: /healthz }", check);
    let health = HealthSpec {
        check: found.unwrap_or(plain.check),
        start_grace: fields.or("start_grace", plain.start_grace, duration),
        interval: fields.or("interval", plain.interval, duration),
        timeout: fields.or("timeout", plain.timeout, duration),
        retries: fields.or("retries", plain.retries, count),
    };
    fields.close();
    Some(health)
}

fn count(decoder: &mut Decoder, node: &Node) -> Option<u32> {
    integer(decoder, node, 0, u64::from(u32::MAX)).map(|count| count as u32)
}

fn check(decoder: &mut Decoder, node: &Node) -> Option<Check> {
    let mut fields = Fields::open(decoder, node, "`check`", "`{ type: http, url: /healthz }`")?;
    let example = match (fields.has("url"), fields.has("command")) {
        (true, _) => "type: http",
        (false, true) => "type: command",
        (false, false) => "type: tcp",
    };
    let kind = fields.required("type", example, |decoder, node| {
        let allowed = [
            ("tcp", Type::Tcp),
            ("http", Type::Http),
            ("command", Type::Command),
        ];
        choice(
            decoder,
            node,
            &allowed,
            &[
                ("exec", "command"),
                ("cmd", "command"),
                ("https", "http"),
                ("script", "command"),
            ],
        )
    });
    let check = match kind {
        None => {
            fields.ignore_rest();
            None
        }
        Some(Type::Tcp) => {
            fields.call("a `tcp` check");
            Some(Check::Tcp {
                port: fields.required("port", "port: 5432", port).unwrap_or(1),
            })
        }
        Some(Type::Http) => {
            fields.call("an `http` check");
            fields.elsewhere(&[
                ("path", "write `url`"),
                ("status", "write `expect_status`"),
                (
                    "port",
                    "the port is a part of the address: `url: http://localhost:8080/healthz`",
                ),
            ]);
            let url = fields.required("url", "url: /healthz", text);
            Some(Check::Http {
                url: url.unwrap_or_default(),
                expect_status: fields.or("expect_status", 200, |decoder, node| {
                    integer(decoder, node, 100, 599).map(|status| status as u16)
                }),
            })
        }
        Some(Type::Command) => {
            fields.call("a `command` check");
            let words = fields.required("command", "command: [pg_isready, -q]", check_command);
            Some(Check::Command {
                command: words.unwrap_or_default(),
            })
        }
    };
    fields.close();
    check
}

/// A list of words, or a text that the workload's shell reads.
fn check_command(decoder: &mut Decoder, node: &Node) -> Option<Vec<String>> {
    const HOW: &str = "write each word as an item, `[pg_isready, -q]`, or a text for the shell";
    if node.kind() != Kind::Text {
        return list_of("a list of words or a text", HOW)(decoder, node);
    }
    let line = text(decoder, node)?;
    if line.trim().is_empty() {
        return decoder.fail(node.span, "this check has no command", HOW);
    }
    Some(vec!["/bin/sh".into(), "-c".into(), line])
}

fn policy(decoder: &mut Decoder, node: &Node) -> Option<RestartPolicy> {
    let allowed = [
        ("always", RestartPolicy::Always),
        ("on_failure", RestartPolicy::OnFailure),
        ("never", RestartPolicy::Never),
    ];
    let synonyms = [
        ("no", "never"),
        ("none", "never"),
        ("false", "never"),
        ("unless-stopped", "always"),
        ("any", "always"),
        ("true", "always"),
        ("OnFailure", "on_failure"),
    ];
    choice(decoder, node, &allowed, &synonyms)
}

/// A policy's name, or the policy with its attempts and pauses.
pub(super) fn restart(decoder: &mut Decoder, node: &Node) -> Option<RestartSpec> {
    match node.kind() {
        Kind::Map | Kind::List => {}
        Kind::Nothing | Kind::Boolean | Kind::Integer | Kind::Float | Kind::Text => {
            let policy = policy(decoder, node)?;
            return Some(RestartSpec {
                policy,
                ..RestartSpec::default()
            });
        }
    }
    let mut fields = Fields::open(
        decoder,
        node,
        "`restart`",
        "`on_failure` or `{ policy: on_failure }`",
    )?;
    fields.elsewhere(&[
        ("condition", "write `policy`"),
        ("attempts", "write `max_attempts`"),
        ("window", "write `interval: 10m`"),
        ("delay", "write `backoff: { initial: 1s }`"),
    ]);
    let restart = RestartSpec {
        policy: fields.or("policy", RestartPolicy::default(), policy),
        max_attempts: fields.optional("max_attempts", count),
        interval: fields.optional("interval", duration),
        backoff: fields.or("backoff", Backoff::default(), backoff),
    };
    fields.close();
    Some(restart)
}

fn backoff(decoder: &mut Decoder, node: &Node) -> Option<Backoff> {
    let plain = Backoff::default();
    let mut fields = Fields::open(decoder, node, "`backoff`", "`{ initial: 1s, max: 60s }`")?;
    let backoff = Backoff {
        initial: fields.or("initial", plain.initial, duration),
        max: fields.or("max", plain.max, duration),
    };
    fields.close();
    Some(backoff)
}

pub(super) fn stop(decoder: &mut Decoder, node: &Node) -> Option<StopSpec> {
    let plain = StopSpec::default();
    let mut fields = Fields::open(decoder, node, "`stop`", "`{ signal: SIGTERM, grace: 10s }`")?;
    fields.elsewhere(&[("timeout", "write `grace`"), ("grace_period", "write `grace`")]);
    let stop = StopSpec {
        signal: fields.or("signal", plain.signal, crate::document::loose_text),
        grace: fields.or("grace", plain.grace, duration),
    };
    fields.close();
    Some(stop)
}

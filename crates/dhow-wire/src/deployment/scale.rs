//! How many, in which groups, after whom.

use dhow_core::ids::{RoleName, ServiceName};
use dhow_core::spec::check::limits::SERVICE_REPLICAS_MAX;
use dhow_core::spec::{Condition, Dependency, OnTimeout, ReplicaGroup, ScaleSpec, ScaleTargets};

use super::{Reading, endpoint, env, names, placement, workload};
use crate::document::{
    Decoder, Fields, Kind, Node, choice, duration, integer, list, number, scalar_text, text,
};

/// The kinds of scale, as `mode` names them.
#[derive(Clone, Copy)]
enum Mode {
    Fixed,
    Adaptive,
    Manual,
}

fn count(decoder: &mut Decoder, node: &Node) -> Option<u32> {
    integer(decoder, node, 0, u64::from(SERVICE_REPLICAS_MAX)).map(|count| count as u32)
}

pub(super) fn scale(decoder: &mut Decoder, node: &Node) -> Option<ScaleSpec> {
    if node.kind() == Kind::Integer {
        let replicas = scalar_text(node).map_or("3", |scalar| &scalar.text);
        let hint = format!(
            "write `{{ mode: fixed, replicas: {} }}`",
            replicas.chars().take(12).collect::<String>()
        );
        return decoder.wrong_type(node, "a map", hint);
    }
    let mut fields = Fields::open(decoder, node, "`scale`", "`{ mode: fixed, replicas: 3 }`")?;
    let example = match (fields.has("replicas"), fields.has("min") || fields.has("max")) {
        (false, true) => "mode: adaptive",
        (true | false, _) => "mode: fixed",
    };
    let mode = fields.required("mode", example, |decoder, node| {
        let allowed = [
            ("fixed", Mode::Fixed),
            ("adaptive", Mode::Adaptive),
            ("manual", Mode::Manual),
        ];
        let synonyms = [
            ("replicated", "fixed"),
            ("static", "fixed"),
            ("auto", "adaptive"),
            ("hpa", "adaptive"),
        ];
        choice(decoder, node, &allowed, &synonyms)
    });
    let scale = match mode {
        None => {
            fields.ignore_rest();
            None
        }
        Some(Mode::Fixed) => Some(fixed(&mut fields)),
        Some(Mode::Adaptive) => Some(adaptive(&mut fields)),
        Some(Mode::Manual) => {
            fields.call("`scale` with `mode: manual`");
            fields.elsewhere(&[(
                "replicas",
                "the count is set by `dhow scale`; a fixed one is `mode: fixed`",
            )]);
            Some(ScaleSpec::Manual {})
        }
    };
    fields.close();
    scale
}

fn fixed(fields: &mut Fields<'_, '_>) -> ScaleSpec {
    const OTHER: &str = "that is a field of `mode: adaptive`";
    fields.call("`scale` with `mode: fixed`");
    fields.elsewhere(&[
        ("min", OTHER),
        ("max", OTHER),
        ("cooldown", OTHER),
        ("targets", OTHER),
        ("cold_start", OTHER),
        ("count", "write `replicas`"),
    ]);
    let replicas = fields.required("replicas", "replicas: 3", count);
    ScaleSpec::Fixed {
        replicas: replicas.unwrap_or(1),
    }
}

fn adaptive(fields: &mut Fields<'_, '_>) -> ScaleSpec {
    fields.call("`scale` with `mode: adaptive`");
    fields.elsewhere(&[(
        "replicas",
        "write `min` and `max`; a fixed count is `mode: fixed`",
    )]);
    let min = fields.required("min", "min: 1", count);
    let max = fields.required("max", "max: 5", count);
    ScaleSpec::Adaptive {
        min: min.unwrap_or(1),
        max: max.unwrap_or(u32::MAX),
        cooldown: fields.or("cooldown", ScaleSpec::default_cooldown(), duration),
        targets: fields.or("targets", ScaleTargets::default(), targets),
        cold_start: fields.optional("cold_start", duration),
    }
}

fn targets(decoder: &mut Decoder, node: &Node) -> Option<ScaleTargets> {
    let mut fields = Fields::open(decoder, node, "`targets`", "`{ cpu: 70 }`")?;
    let targets = ScaleTargets {
        cpu: fields.optional("cpu", number),
        memory: fields.optional("memory", number),
        rps: fields.optional("rps", number),
        in_flight: fields.optional("in_flight", number),
    };
    fields.close();
    Some(targets)
}

pub(super) fn groups(
    decoder: &mut Decoder,
    node: &Node,
    reading: &mut Reading<'_>,
) -> Option<Vec<ReplicaGroup>> {
    let hint = "write `- role: primary` and its `count`";
    list(decoder, node, "a list", hint, unread_group, |decoder, node| {
        group(decoder, node, reading)
    })
}

/// Stands in for a group that could not be read.
fn unread_group() -> ReplicaGroup {
    ReplicaGroup {
        role: RoleName::fallback(),
        count: 0,
        image: None,
        env: Default::default(),
        command: None,
        resources: None,
        affinity: None,
    }
}

fn group(decoder: &mut Decoder, node: &Node, reading: &mut Reading<'_>) -> Option<ReplicaGroup> {
    let mut fields = Fields::open(decoder, node, "a replica group", "`{ role: primary, count: 1 }`")?;
    fields.elsewhere(&[("name", "write `role`"), ("replicas", "write `count`")]);
    let role = fields.required("role", "role: primary", endpoint::role);
    let total = fields.required("count", "count: 1", count);
    let group = ReplicaGroup {
        // A role that could not be read is marked as such; no rule looks at this one.
        role: role.unwrap_or_else(RoleName::fallback),
        count: total.unwrap_or(1),
        image: fields.optional("image", workload::image),
        env: fields
            .optional("env", |decoder, node| env::read(decoder, node, reading))
            .unwrap_or_default(),
        command: fields.optional("command", workload::command),
        resources: fields.optional("resources", workload::resources),
        affinity: fields.optional("affinity", placement::affinity),
    };
    fields.close();
    Some(group)
}

pub(super) fn depends(decoder: &mut Decoder, node: &Node) -> Option<Vec<Dependency>> {
    let hint = "write `- { service: db, condition: healthy }`";
    list(decoder, node, "a list", hint, unread_dependency, dependency)
}

/// Stands in for a dependency that could not be read.
fn unread_dependency() -> Dependency {
    Dependency {
        // This text is a name by the rules above it: it cannot fail.
        service: ServiceName::new("unread").expect("a valid name"),
        condition: Condition::default(),
        timeout: Dependency::default_timeout(),
        on_timeout: OnTimeout::default(),
    }
}

fn dependency(decoder: &mut Decoder, node: &Node) -> Option<Dependency> {
    if node.kind() == Kind::Text {
        let name = scalar_text(node).map_or("db", |scalar| &scalar.text);
        let hint = format!(
            "write `{{ service: {} }}`",
            name.chars().take(63).collect::<String>()
        );
        return decoder.wrong_type(node, "a map", hint);
    }
    let mut fields = Fields::open(
        decoder,
        node,
        "a dependency",
        "`{ service: db, condition: healthy }`",
    )?;
    fields.elsewhere(&[("name", "write `service`")]);
    let service = fields.required("service", "service: db", |decoder, node| {
        let name = text(decoder, node)?;
        names::checked(decoder, node.span, &name, ServiceName::new)
    });
    let condition = fields.or("condition", Condition::default(), |decoder, node| {
        let allowed = [
            ("healthy", Condition::Healthy),
            ("started", Condition::Started),
            ("ready", Condition::Ready),
            ("completed", Condition::Completed),
        ];
        let synonyms = [
            ("service_completed_successfully", "completed"),
            ("complete", "completed"),
            ("done", "completed"),
            ("succeeded", "completed"),
            ("service_healthy", "healthy"),
            ("service_started", "started"),
            ("running", "started"),
        ];
        choice(decoder, node, &allowed, &synonyms)
    });
    let timeout = fields.or("timeout", Dependency::default_timeout(), duration);
    let on_timeout = fields.or("on_timeout", OnTimeout::default(), |decoder, node| {
        let allowed = [
            ("fail", OnTimeout::Fail),
            ("warn", OnTimeout::Warn),
            ("continue", OnTimeout::Continue),
        ];
        choice(decoder, node, &allowed, &[("ignore", "continue")])
    });
    fields.close();
    Some(Dependency {
        service: service.unwrap_or_else(|| unread_dependency().service),
        condition,
        timeout,
        on_timeout,
    })
}

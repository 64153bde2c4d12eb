//! Checks of health, starting again and stopping.

use super::finding::{FieldPath, SpecFinding};
use super::limits::SPAN_MAX_MS;
use super::suggest::nearest;
use super::vocabulary::{REALTIME_OFFSET_MAX, SIGNALS};
use super::words::{name_of, quoted};
use crate::spec::{Check, HealthSpec, Protocol, ServiceSpec, TimeSpan};

pub(super) fn check(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    if let Some(health) = &spec.health {
        check_health(&at.key("health"), at, health, spec, findings);
    }
    check_restart(&at.key("restart"), spec, findings);
    findings.extend(signal_problem(&at.key("stop").key("signal"), &spec.stop.signal));
    findings.extend(too_long(at.key("stop").key("grace"), spec.stop.grace));
}

/// A length of time that nobody means.
pub(super) fn too_long(at: FieldPath, span: TimeSpan) -> Option<SpecFinding> {
    (span.as_millis() > SPAN_MAX_MS).then(|| {
        let most = TimeSpan::from_millis(SPAN_MAX_MS);
        SpecFinding::at(at, format!("{span} is longer than a year"))
            .hint(format!("at most {most} are allowed"))
    })
}

fn check_health(
    at: &FieldPath,
    service: &FieldPath,
    health: &HealthSpec,
    spec: &ServiceSpec,
    findings: &mut Vec<SpecFinding>,
) {
    for (field, span) in [("interval", health.interval), ("timeout", health.timeout)] {
        if span == TimeSpan::ZERO {
            findings.push(
                SpecFinding::at(at.key(field), format!("a check's `{field}` cannot be 0"))
                    .hint("such as `5s`, or leave it out for the default"),
            );
        }
    }
    let spans = [
        ("start_grace", health.start_grace),
        ("interval", health.interval),
        ("timeout", health.timeout),
    ];
    for (field, span) in spans {
        findings.extend(too_long(at.key(field), span));
    }
    if health.retries == 0 {
        findings.push(
            SpecFinding::at(
                at.key("retries"),
                "`retries` is 0, so that no failed check would ever count",
            )
            .hint("1 restarts at the first failure, 3 is the default"),
        );
    }
    let at = at.key("check");
    match &health.check {
        Check::Tcp { port: 0 } => findings.push(
            SpecFinding::at(at.key("port"), "0 is not a port").hint("the port that the replica listens on"),
        ),
        Check::Tcp { port: _ } => {}
        Check::Http { url, expect_status } => {
            check_url(&at.key("url"), service, url, spec, findings);
            if !(100..=599).contains(expect_status) {
                findings.push(
                    SpecFinding::at(
                        at.key("expect_status"),
                        format!("{expect_status} is not a status of HTTP"),
                    )
                    .hint("100 to 599, such as 200"),
                );
            }
        }
        Check::Command { command } => {
            if command.first().is_none_or(String::is_empty) {
                findings.push(
                    SpecFinding::at(at.key("command"), "the check's command is empty")
                        .hint("name a program inside the workload, such as `[pg_isready, -q]`"),
                );
            }
        }
    }
}

fn check_url(
    at: &FieldPath,
    service: &FieldPath,
    url: &str,
    spec: &ServiceSpec,
    findings: &mut Vec<SpecFinding>,
) {
    let mut report = |message: String, hint: &str| {
        findings.push(
            SpecFinding::at(at.clone(), message)
                .because(service.key("endpoints"))
                .hint(hint),
        );
    };
    if let Some(c) = url.chars().find(|c| c.is_whitespace() || c.is_control()) {
        report(
            format!("an address holds no {}", name_of(c)),
            "write `/healthz` or `http://localhost:8080/healthz`",
        );
        return;
    }
    if url.starts_with('/') {
        let speaks_http = |protocol: Protocol| match protocol {
            Protocol::Http | Protocol::Https | Protocol::Websocket => true,
            Protocol::Tcp | Protocol::Udp => false,
        };
        if !spec
            .endpoints
            .iter()
            .any(|endpoint| speaks_http(endpoint.protocol))
        {
            report(
                format!(
                    "{} names no port, and the service has no http endpoint to take it from",
                    quoted(url)
                ),
                "write the whole address: `http://localhost:8080/healthz`",
            );
        }
        return;
    }
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    match rest {
        None => report(
            format!("{} is neither a path nor an address", quoted(url)),
            "write `/healthz` or `http://localhost:8080/healthz`",
        ),
        Some(rest) if rest.is_empty() || rest.starts_with(['/', ':', '?', '#']) => {
            report(
                format!("{} names no host", quoted(url)),
                "write `http://localhost:8080/healthz`",
            );
        }
        Some(_) => {}
    }
}

fn check_interval(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let Some(interval) = spec.restart.interval else {
        return;
    };
    let place = at.key("interval");
    let problem = match (spec.restart.max_attempts, interval) {
        _ if spec.runs_to_completion() => Some((
            "the attempts of a job are counted until it is done",
            "leave it out; `max_attempts` says how many there are",
        )),
        (None, _) => Some((
            "`interval` is the time within which `max_attempts` are counted, which is not there",
            "add `max_attempts: 3`",
        )),
        (Some(_), TimeSpan::ZERO) => Some(("within no time nothing is counted", "such as `10m`")),
        (Some(_), _) => None,
    };
    findings.extend(problem.map(|(message, hint)| SpecFinding::at(place.clone(), message).hint(hint)));
    findings.extend(too_long(place, interval));
}

fn check_restart(at: &FieldPath, spec: &ServiceSpec, findings: &mut Vec<SpecFinding>) {
    let restart = &spec.restart;
    if restart.max_attempts == Some(0) {
        findings.push(
            SpecFinding::at(
                at.key("max_attempts"),
                "with 0 attempts nothing is ever started again",
            )
            .hint("write `restart: never` if that is meant"),
        );
    }
    check_interval(at, spec, findings);
    let (initial, max) = (restart.backoff.initial, restart.backoff.max);
    let at = at.key("backoff");
    if initial == TimeSpan::ZERO {
        findings.push(
            SpecFinding::at(
                at.key("initial"),
                "without a pause a crashing replica would start without end",
            )
            .hint("such as `100ms`, or leave it out for `1s`"),
        );
    } else if initial > max {
        findings.push(
            SpecFinding::at(
                at.key("initial"),
                format!("`initial` is {initial}, above `max`, which is {max}"),
            )
            .because(at.key("max"))
            .hint("swap them, or raise `max`"),
        );
    }
    findings.extend(too_long(at.key("max"), max));
}

pub(super) fn signal_problem(at: &FieldPath, signal: &str) -> Option<SpecFinding> {
    let upper = signal.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if SIGNALS.contains(&name) || is_realtime(name) {
        return None;
    }
    if signal.bytes().all(|byte| byte.is_ascii_digit()) && !signal.is_empty() {
        let hint = "numbers differ between architectures: write its name, such as `SIGTERM`";
        return Some(
            SpecFinding::at(
                at.clone(),
                format!("{} is not the name of a signal", quoted(signal)),
            )
            .hint(hint),
        );
    }
    let hint = match nearest(name, SIGNALS.iter().copied()) {
        Some(near) => format!("did you mean `SIG{near}`?"),
        None => "such as `SIGTERM`, `SIGINT` or `SIGQUIT`".into(),
    };
    Some(SpecFinding::at(at.clone(), format!("there is no signal {}", quoted(signal))).hint(hint))
}

/// `RTMIN`, `RTMIN+3`, `RTMAX-2`.
fn is_realtime(name: &str) -> bool {
    let offset = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(""), _) | (_, Some("")) => return true,
        (Some(rest), _) => rest.strip_prefix('+'),
        (_, Some(rest)) => rest.strip_prefix('-'),
        (None, None) => None,
    };
    offset.is_some_and(|text| {
        text.parse::<u32>()
            .is_ok_and(|offset| offset <= REALTIME_OFFSET_MAX)
    })
}

//! A service's check, with the defaults of compose.

use dhow_core::spec::{Check, HealthSpec, TimeSpan};

use crate::item::Item;
use crate::service::Reader;

pub(crate) fn read(reader: &mut Reader<'_, '_>, service: &Item) -> Option<HealthSpec> {
    let item = service.get("healthcheck")?;
    const KNOWN: [&str; 7] = [
        "test",
        "interval",
        "timeout",
        "retries",
        "start_period",
        "start_interval",
        "disable",
    ];
    reader.known(item, "healthcheck", &KNOWN);
    if let Some(disable) = item.get("disable")
        && reader.flag(disable, "healthcheck")?
    {
        return None;
    }
    let fields = item.fields().unwrap_or_default();
    if !fields.is_empty() && fields.iter().all(|field| &*field.key == "disable") {
        // As good as nothing: the check of the image stays on, as it does where nothing is written.
        let message = "the check of the image itself is not known here: write its `test` where it matters";
        reader.note(item.place, message);
        return None;
    }
    let Some(test) = item.get("test") else {
        let message = "the check of the image itself is not known here";
        let hint = "write its `test`, or remove `healthcheck`";
        return reader.refuse(item.place, "healthcheck", message, hint);
    };
    let command = command(reader, test)?;
    let mut health = HealthSpec {
        start_grace: TimeSpan::ZERO,
        interval: TimeSpan::from_secs(30),
        timeout: TimeSpan::from_secs(30),
        ..HealthSpec::of(Check::Command { command })
    };
    for (name, field) in [
        ("interval", &mut health.interval),
        ("timeout", &mut health.timeout),
        ("start_period", &mut health.start_grace),
    ] {
        if let Some(item) = item.get(name)
            && let Some(span) = reader.span(item, name)
            && (span != TimeSpan::ZERO || name == "start_period")
        {
            *field = span;
        }
    }
    if let Some(retries) = item.get("retries")
        && let Some(retries) = reader.number(retries, "retries")
        && retries != 0
    {
        health.retries = retries;
    }
    if let Some(item) = item.get("start_interval") {
        reader.note(
            item.place,
            "`start_interval` has no effect: `interval` holds from the start",
        );
    }
    reader.at(&["health"], item.place);
    reader.note(
        item.place,
        "a replica that stays unhealthy is started again, as in Swarm",
    );
    Some(health)
}

/// What is run inside. Nothing where that is said to be nothing, or cannot be read.
fn command(reader: &mut Reader<'_, '_>, test: &Item) -> Option<Vec<String>> {
    let shell = |line: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), line];
    if test.items().is_none() {
        return reader.text(test, "healthcheck").map(shell);
    }
    let texts = reader.texts(test, "healthcheck");
    let mut words = texts.into_iter().map(|(word, _)| word);
    match words.next().as_deref() {
        Some("NONE") => None,
        Some("CMD") => Some(words.collect()),
        Some("CMD-SHELL") => Some(shell(words.collect::<Vec<_>>().join(" "))),
        Some(_) | None => {
            let hint = "begin the list with `CMD` or `CMD-SHELL`, or write a text for the shell";
            let message = "this list does not say how it is run";
            reader.refuse(test.place, "healthcheck", message, hint)
        }
    }
}

//! A service's progress in words.

use dhow_wire::api::{PullingProgress, ServiceProgress};

use crate::human::{bytes, one_line};

/// What a service does at the moment, in the order in which a person wants to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Failed,
    Healthy,
    Pulling,
    Starting,
    /// Running, and not yet healthy.
    Running,
    Waiting,
    /// More runs than is wanted: the old version, or a scaled-down service.
    Stopping,
}

impl Phase {
    pub fn of(service: &ServiceProgress) -> Self {
        let works = service.done.is_some_and(|done| done < service.desired);
        let is_full =
            service.running == service.desired && service.healthy_count >= service.desired && !works;
        if service.failed > 0 {
            Self::Failed
        } else if is_full && (service.healthy || service.desired == 0) {
            Self::Healthy
        } else if service.pulling.is_some() {
            Self::Pulling
        } else if service.starting > 0 {
            Self::Starting
        } else if service.pending > 0 {
            Self::Waiting
        } else if service.running > service.desired {
            Self::Stopping
        } else {
            Self::Running
        }
    }

    pub fn is_settled(self) -> bool {
        self == Self::Healthy
    }
}

/// Without the bytes, which change too often for lines that stay.
pub fn words(service: &ServiceProgress) -> String {
    sentence(service, None)
}

/// With the bytes of what is being pulled.
pub fn words_with_bytes(service: &ServiceProgress) -> String {
    sentence(service, service.pulling)
}

/// Replicas of the current revision are counted; those of others are told apart.
fn sentence(service: &ServiceProgress, pulling: Option<PullingProgress>) -> String {
    // A job is for its work, everything else for being there.
    let count = match service.done {
        Some(done) => format!("done {done}/{}", service.desired),
        None => format!("healthy {}/{}", service.healthy_count, service.desired),
    };
    let updated = service.updated.unwrap_or(service.running);
    let mut text = match Phase::of(service) {
        Phase::Healthy => count,
        Phase::Failed => format!("{} failed, {count}", service.failed),
        Phase::Pulling => format!("pulling{}, {count}", pulling.map(amount).unwrap_or_default()),
        Phase::Starting => format!("starting {}, {count}", service.starting),
        Phase::Running => format!("running {updated}/{}, {count}", service.desired),
        Phase::Waiting => format!("waiting, {count}"),
        Phase::Stopping if service.outdated > 0 => count,
        Phase::Stopping => format!(
            "{count}, {} to end",
            service.running.saturating_sub(service.desired)
        ),
    };
    if service.outdated > 0 {
        text += &format!(", {} to be replaced", service.outdated);
    }
    if let Some(message) = service
        .message
        .as_deref()
        .map(one_line)
        .filter(|message| !message.is_empty())
    {
        text += ": ";
        text += &message;
    }
    text
}

fn amount(pulling: PullingProgress) -> String {
    match pulling.total_bytes {
        Some(total) => format!(" {} of {}", bytes(pulling.done_bytes), bytes(total)),
        None if pulling.done_bytes == 0 => String::new(),
        None => format!(" {}", bytes(pulling.done_bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(change: impl FnOnce(&mut ServiceProgress)) -> ServiceProgress {
        let mut service = ServiceProgress {
            name: "web".into(),
            desired: 3,
            ..ServiceProgress::default()
        };
        change(&mut service);
        service
    }

    #[test]
    fn a_service_is_told_in_few_words() {
        let pulling = service(|s| {
            s.pulling = Some(PullingProgress {
                replicas: 2,
                done_bytes: 3 << 20,
                total_bytes: Some(40 << 20),
            });
        });
        assert_eq!(words(&pulling), "pulling, healthy 0/3");
        assert_eq!(
            words_with_bytes(&pulling),
            "pulling 3.0 MiB of 40 MiB, healthy 0/3"
        );
        let cases = [
            (service(|s| s.pending = 3), "waiting, healthy 0/3"),
            (service(|s| s.starting = 2), "starting 2, healthy 0/3"),
            (
                service(|s| (s.running, s.healthy_count) = (3, 1)),
                "running 3/3, healthy 1/3",
            ),
            (
                service(|s| (s.running, s.healthy_count, s.healthy) = (3, 3, true)),
                "healthy 3/3",
            ),
            (
                service(|s| (s.running, s.desired) = (2, 0)),
                "healthy 0/0, 2 to end",
            ),
            (service(|s| s.desired = 0), "healthy 0/0"),
            (
                service(|s| (s.running, s.updated, s.outdated) = (3, Some(1), 2)),
                "running 1/3, healthy 0/3, 2 to be replaced",
            ),
            (
                service(|s| {
                    (s.running, s.updated, s.outdated) = (4, Some(3), 1);
                    s.healthy_count = 3;
                }),
                "healthy 3/3, 1 to be replaced",
            ),
            (
                service(|s| {
                    (s.running, s.updated, s.done) = (3, Some(3), Some(1));
                    (s.healthy_count, s.healthy) = (3, true);
                    s.message = Some("at work, 1 of 3 done".into());
                }),
                "running 3/3, done 1/3: at work, 1 of 3 done",
            ),
            (
                service(|s| {
                    (s.running, s.desired, s.healthy_count, s.done) = (2, 1, 1, Some(1));
                }),
                "done 1/1, 1 to end",
            ),
            (
                service(|s| {
                    s.failed = 1;
                    s.message = Some("exit code 42\n".into());
                }),
                "1 failed, healthy 0/3: exit code 42",
            ),
        ];
        for (service, text) in cases {
            assert_eq!(words(&service), text);
        }
    }
}

//! A worker's certificate renews itself: after two thirds of its life, or as soon as it can where that has passed.

use std::sync::Arc;
use std::time::Duration;

use dhow_agent::session::grpc::{Errand, ErrandError};
use dhow_server::clock::Clock;
use dhow_server::net::keys::WorkerIdentity;
use tokio_util::sync::CancellationToken;

use super::identity_dir::IdentityDir;
use super::refused::Refused;

/// How often the age is looked at. Wall time may jump, so that one long sleep would not do.
const LOOK_EVERY_MS: u64 = 60_000;

/// The task of a worker's daemon that asks a server for a new certificate in time, keeps it on disk and puts it into
/// use.
pub struct Renewal {
    pub identity: Arc<WorkerIdentity>,
    pub dir: IdentityDir,
    pub errand: Errand,
    pub clock: Arc<dyn Clock>,
    /// Cancelled where the cluster does not know this worker any more.
    pub unknown: CancellationToken,
}

impl Renewal {
    /// Renews for ever; ends where the certificate is over and the cluster gives no other.
    pub async fn run(self) -> Refused {
        loop {
            // Workers that joined together do not all come back at one moment.
            let late_secs = self.late_secs(rand::random::<f64>());
            while self.now_unix_secs() < self.identity.validity().renew_at_unix_secs() + late_secs {
                let at_ms = self.clock.monotonic_ms().saturating_add(LOOK_EVERY_MS);
                self.clock.sleep_until_monotonic(at_ms).await;
            }
            match self.renew().await {
                Ok(()) => tracing::info!(node = %self.identity.node(), "the worker's certificate is renewed"),
                Err(Failed::Unknown) => {
                    self.unknown.cancel();
                    std::future::pending::<()>().await;
                }
                Err(Failed::Refused(why)) if self.has_expired() => {
                    return Refused(format!("{why}; what runs here goes on without this worker"));
                }
                Err(Failed::Refused(why) | Failed::Other(why)) => {
                    tracing::error!(why, "the worker's certificate cannot be renewed; trying again");
                    tokio::time::sleep(Duration::from_millis(LOOK_EVERY_MS)).await;
                }
            }
        }
    }

    async fn renew(&self) -> Result<(), Failed> {
        let other = |error: String| Failed::Other(error);
        let csr_pem = self
            .identity
            .csr_pem()
            .map_err(|error| other(error.to_string()))?;
        let chain = self.errand.renew(&csr_pem).await.map_err(|error| match error {
            ErrandError::Refused(why) => Failed::Refused(why),
            ErrandError::UnknownNode => Failed::Unknown,
            ErrandError::OtherCluster { .. } => Failed::Other(error.to_string()),
        })?;
        // Checked before it takes the place of the old one on the disk.
        self.identity
            .replace(&chain)
            .map_err(|error| other(error.to_string()))?;
        let dir = self.dir.clone();
        let kept = tokio::task::spawn_blocking(move || dir.keep(&chain)).await;
        match kept {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(other(format!("{error:#}"))),
            Err(error) => Err(other(error.to_string())),
        }
    }

    /// At most a twelfth of its life after its time.
    fn late_secs(&self, random: f64) -> i64 {
        let validity = self.identity.validity();
        let life = validity.not_after_unix_secs - validity.not_before_unix_secs;
        // Far below what a float holds exactly.
        ((life.max(0) / 12) as f64 * random) as i64
    }

    fn has_expired(&self) -> bool {
        self.now_unix_secs() > self.identity.validity().not_after_unix_secs
    }

    fn now_unix_secs(&self) -> i64 {
        self.clock.wall_unix_ms().div_euclid(1_000)
    }
}

enum Failed {
    Unknown,
    Refused(String),
    Other(String),
}

//! Certificates that the cluster orders from an ACME server, where this server leads.
//!
//! The daemon starts it beside the runtime where its configuration names an ACME server. What is to be ordered, what there
//! is and what has failed is read from the state, so that another leader goes on where this one was; an order that was
//! under way is begun anew. Nodes answer the ACME server by themselves, with the thumbprint that the state gives them.

mod authority;
mod client;
mod http;
mod kept;
mod turn;

pub use authority::{Authority, KeptAccount, OrderError};
pub use client::{AcmeClient, ClientError};
pub(crate) use kept::Kept;

use std::sync::Arc;

use dhow_core::command::{ClusterCommand, Command};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::plane::runtime::{InputSender, RuntimeView, WriteError};
use crate::plane::secrets::SecretBox;
use turn::Turn;

/// How often it is looked what is due: certificates have weeks, and a new host waits this long.
const TICK_MS: u64 = 1_000;

/// Orders what is due. The daemon runs one.
pub struct CertificateOrders {
    pub view: RuntimeView,
    pub input: InputSender,
    pub secrets: Arc<SecretBox>,
    pub clock: Arc<dyn Clock>,
    pub authority: Arc<dyn Authority>,
    /// Chance, for the times at which failed orders are tried again.
    pub random: fn() -> u64,
}

impl CertificateOrders {
    /// Runs until it is cancelled.
    pub async fn run(self, cancel: CancellationToken) {
        let mut turn = self.begin();
        loop {
            match self.view.leadership().is_here {
                true => self.look(&mut turn).await,
                // What is under way is another leader's to begin anew.
                false => turn = self.begin(),
            }
            let next_ms = self.clock.monotonic_ms().saturating_add(TICK_MS);
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.input.closed() => return,
                () = self.clock.sleep_until_monotonic(next_ms) => {}
                () = turn.ended() => {}
            }
        }
    }

    fn begin(&self) -> Turn {
        let kept = Kept::new(Arc::clone(&self.secrets));
        Turn::new(kept, Arc::clone(&self.authority))
    }

    async fn look(&self, turn: &mut Turn) {
        let (now_unix_secs, now_ms) = (
            self.clock.wall_unix_ms().div_euclid(1_000),
            self.clock.monotonic_ms(),
        );
        turn.take_ended(&self.view.state(), now_unix_secs, self.random);
        // Written before anything else is begun: what is done is not done twice.
        if !self.keep(turn).await {
            return;
        }
        turn.choose_due(&self.view.state(), now_unix_secs, now_ms);
        // Counted before it is begun: the next leader knows of it.
        if self.keep(turn).await {
            turn.begin_chosen(&self.view.state());
        }
    }

    /// Writes what the state is to keep; whether all of it is written.
    async fn keep(&self, turn: &mut Turn) -> bool {
        while let Some(command) = turn.unwritten.front().cloned() {
            if !self.write(command).await {
                return false;
            }
            turn.unwritten.pop_front();
        }
        true
    }

    /// Whether there is nothing to try again.
    async fn write(&self, command: ClusterCommand) -> bool {
        match self.input.write(Command::Cluster(command), None).await {
            Ok(_) => true,
            Err(WriteError::Refused(why)) => {
                tracing::debug!(%why, "what was ordered is not kept");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "what was ordered cannot be kept yet");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;

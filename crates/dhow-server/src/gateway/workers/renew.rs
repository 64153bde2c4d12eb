//! A worker's next certificate. Who asks is proved by the one it has, which may have expired a while ago.

use dhow_core::ids::NodeId;
use dhow_wire::grpc::Refusal;
use dhow_wire::grpc::proto::{HeldRenewal, RenewReply, RenewRequest};
use tonic::Request;

use super::join_error::JoinError;
use super::join_key;
use crate::gateway::caller::Caller;
use crate::gateway::node_gateway::{GatewayState, Serving, kept_with_session};
use crate::gateway::rates::Kind;
use crate::net::identity::Identity;
use crate::plane::runtime::{Event, EventKind};

const DAY_SECS: i64 = 24 * 60 * 60;

/// A certificate of this cluster's worker CA that is sound but has expired: good for a renewal and for nothing else.
/// Put into a request's extensions by whoever ends TLS, in place of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredIdentity {
    pub node: NodeId,
    pub expired_unix_secs: i64,
}

/// A span as people say it.
fn span(secs: i64) -> String {
    match secs < 2 * DAY_SECS {
        true => format!("{secs} seconds"),
        false => format!("{} days", secs / DAY_SECS),
    }
}

impl GatewayState {
    /// The call.
    pub(in crate::gateway) async fn renew(
        &self,
        request: &Request<RenewRequest>,
    ) -> Result<RenewReply, Refusal> {
        let renewal = HeldRenewal {
            node_id: self.renewing(request)?.0,
            expired_unix_secs: request
                .extensions()
                .get::<ExpiredIdentity>()
                .map(|expired| expired.expired_unix_secs),
            csr_pem: request.get_ref().csr_pem.clone(),
            for_proxy: request.get_ref().for_proxy,
        };
        match self.serving(Some(NodeId(renewal.node_id))).await? {
            Serving::Leads => self.renew_for(renewal).await,
            Serving::Holds => {
                let reply = self.holder.renew(renewal).await;
                reply.map_err(kept_with_session)
            }
        }
    }

    /// A worker that has proved who it is, here or at another server, wants its next certificate. Only the leader gives it.
    pub(in crate::gateway) async fn renew_for(&self, renewal: HeldRenewal) -> Result<RenewReply, Refusal> {
        let certificate_chain_pem = self.renew_certificate(renewal).await?;
        Ok(RenewReply {
            certificate_chain_pem,
        })
    }

    async fn renew_certificate(&self, renewal: HeldRenewal) -> Result<String, JoinError> {
        let tier = self.tier()?;
        let (node, csr_pem) = (NodeId(renewal.node_id), &renewal.csr_pem);
        self.leading_term().await?;
        if !self
            .rates
            .allow(node, Kind::Renewal, self.options.clock.monotonic_ms())
        {
            return Err(Refusal::TooOften.into());
        }
        join_key::of_csr(csr_pem)?;
        if self.confirmed_state().await?.node(node).is_none() {
            return Err(Refusal::UnknownNode.into());
        }
        self.check_role(Identity::Worker(node))?;
        if renewal.for_proxy {
            return match renewal.expired_unix_secs {
                None => tier
                    .certificates
                    .issue_proxy(csr_pem, node)
                    .map_err(JoinError::Csr),
                Some(_) => {
                    let why = "the worker's certificate has expired: it renews that one first";
                    Err(Refusal::Identity(why.into()).into())
                }
            };
        }
        let chain = tier.certificates.issue(csr_pem, node).map_err(JoinError::Csr)?;
        let mut renewed = Event::new(EventKind::CertificateRenewed).with_node(node);
        if let Some(expired_unix_secs) = renewal.expired_unix_secs {
            let ago_secs = self.now_unix_secs().saturating_sub(expired_unix_secs);
            tracing::warn!(%node, ago_secs, "a worker renews a certificate that has expired");
            renewed = renewed.with_message(format!("it had expired {ago_secs} s ago"));
        }
        tier.event_log.note(Event {
            author: Some(format!("worker {node}")),
            ..renewed
        });
        Ok(chain)
    }

    fn renewing<T>(&self, request: &Request<T>) -> Result<NodeId, JoinError> {
        if let Some(expired) = request.extensions().get::<ExpiredIdentity>() {
            let ago_secs = self.now_unix_secs().saturating_sub(expired.expired_unix_secs);
            let max_secs = self.tier()?.renew_expired_secs;
            if ago_secs > max_secs {
                return Err(JoinError::TooOld {
                    ago: span(ago_secs),
                    max: span(max_secs),
                });
            }
            return Ok(expired.node);
        }
        match Caller::of(request)?.identity {
            Identity::Worker(node) => Ok(node),
            Identity::Member(_) => {
                let why = "servers make their own certificates; only workers renew theirs here";
                Err(Refusal::Identity(why.into()).into())
            }
        }
    }
}

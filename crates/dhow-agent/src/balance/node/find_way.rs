//! Which way a call goes, for whoever looks: a service that nobody on this node has called yet is asked for first.

use std::time::Duration;

use dhow_core::ids::ServiceKey;
use dhow_core::spec::Runtime;
use tokio::time::{Instant, timeout_at};

use super::{CallWay, NoWay, NodeBalancer};

/// Whoever looks at a way waits no longer for servers to say what there is of a service.
const LOOK_WAIT: Duration = Duration::from_secs(2);

impl NodeBalancer {
    /// Which way a call goes. Servers are asked for a service that nobody here has called yet.
    pub(super) async fn find_way(
        &self,
        from: &ServiceKey,
        runtime: Runtime,
        to: &ServiceKey,
        endpoint: &str,
    ) -> Result<CallWay, NoWay> {
        let deadline = Instant::now() + LOOK_WAIT;
        let mut heard = self.heard.subscribe();
        loop {
            heard.borrow_and_update();
            let (found, may_be_there) = {
                let wanted = self.wanted();
                let known = &wanted.routes.known;
                (
                    wanted.routes.way(from, runtime, to, endpoint),
                    known.is_by_interest() && !known.is_absent(to),
                )
            };
            let is_awake = match &found {
                Ok(way) => !way.here.is_empty() || !way.there.is_empty(),
                Err(NoWay::Service) => false,
                Err(NoWay::Endpoint(_) | NoWay::Address) => true,
            };
            if is_awake || !may_be_there {
                return found;
            }
            self.wants.look_at(to);
            if timeout_at(deadline, heard.changed()).await.is_err() {
                return found;
            }
        }
    }
}

//! `dhow net check A B`: whether one service reaches another, tried from inside a replica.

use dhow_core::ids::{DeploymentName, ServiceName};
use dhow_wire::api::{NetCheck, NetVerdict};

use crate::target::{self, NamedTarget};

/// Try whether one service reaches another
///
/// The call is made from inside a replica of the first one. Ends with 0 where it comes about, with 1 where it does not,
/// and with 4 where there is no such service or no replica of it runs.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// Who calls: a service, or one of its replicas
    #[arg(value_name = "DEPLOYMENT/NAME", value_parser = target::named_target)]
    pub from: NamedTarget,

    /// Whom it calls; without an endpoint the first one
    #[arg(value_name = "DEPLOYMENT/SERVICE[:ENDPOINT]", value_parser = called)]
    pub to: Called,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// An endpoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    pub deployment: DeploymentName,
    pub service: ServiceName,
    pub endpoint: Option<String>,
}

fn called(text: &str) -> Result<Called, String> {
    let (place, endpoint) = match text.split_once(':') {
        Some((_, "")) => return Err("write the endpoint's name behind the colon".into()),
        Some((place, endpoint)) => (place, Some(endpoint.to_owned())),
        None => (text, None),
    };
    let NamedTarget { deployment, name } = target::named_target(place)?;
    Ok(Called {
        deployment,
        service: ServiceName::new(&name).map_err(|error| error.to_string())?,
        endpoint,
    })
}

/// One line for each step, and what came of it.
pub fn text(check: &NetCheck) -> String {
    let mut text = format!(
        "{} on node {} calls {}:{}\n",
        check.from, check.node_id, check.to, check.endpoint
    );
    for step in &check.steps {
        let ok = if step.ok { "ok" } else { "no" };
        text += &format!("  {ok}  {:<8}  {}\n", step.step.word(), step.text);
    }
    text += match check.verdict {
        NetVerdict::Reachable => "reachable\n",
        NetVerdict::NoName => "not reachable: the name is not known there\n",
        NetVerdict::Refused => "not reachable: the endpoint does not let it in\n",
        NetVerdict::NoReplica => "not reachable: no replica is ready\n",
        NetVerdict::NotConnected => "not reachable: no connection comes about\n",
    };
    text
}

#[cfg(test)]
mod tests {
    use dhow_wire::api::{NetStep, NetStepKind};

    use super::*;

    #[test]
    fn a_check_is_told_step_by_step() {
        let step = |step, ok, text: &str| NetStep {
            step,
            ok,
            text: text.into(),
        };
        let check = NetCheck {
            from: "shop/web-default-0".into(),
            node_id: 1,
            to: "blog/db".into(),
            endpoint: "pg".into(),
            verdict: NetVerdict::Refused,
            steps: vec![
                step(NetStepKind::Name, true, "db.blog.dhow is 10.87.0.16"),
                step(NetStepKind::Rule, false, "it may not"),
            ],
        };
        let expected = "shop/web-default-0 on node 1 calls blog/db:pg\n  ok  name      db.blog.dhow is 10.87.0.16\n  \
                        no  rule      it may not\nnot reachable: the endpoint does not let it in\n";
        assert_eq!(text(&check), expected);
    }

    #[test]
    fn an_endpoint_may_stand_behind_the_service() {
        let found = called("shop/db:pg").unwrap();
        assert_eq!(found.service.as_str(), "db");
        assert_eq!(found.endpoint.as_deref(), Some("pg"));
        assert_eq!(called("shop/db").unwrap().endpoint, None);
        for wrong in ["shop", "shop/db:", "/db", "shop/DB"] {
            assert!(called(wrong).is_err(), "{wrong}");
        }
    }
}

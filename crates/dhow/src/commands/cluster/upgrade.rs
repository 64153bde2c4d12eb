//! `dhow cluster upgrade-check`: how far an upgrade is, and what keeps the cluster at an older feature level.

use dhow_wire::api::UpgradeCheck;

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output::{self, Table};

/// Show what each server and node knows, and what keeps the cluster at an older feature level
///
/// Ends with 0 once every server and every node is of the version that answers and the cluster has its level, else with 1.
#[derive(clap::Args)]
pub struct Args {
    /// Print the API's JSON on stdout
    #[arg(long)]
    json: bool,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let value = client.fetch(Request::get(&["cluster", "upgrade"])).await?;
    let check: UpgradeCheck = client.decode(value.clone())?;
    match args.json {
        true => output::json(&value)?,
        false => output::data(&text(&check))?,
    }
    Ok(match check.is_done() {
        true => Exit::Done,
        false => Exit::Failed,
    })
}

fn text(check: &UpgradeCheck) -> String {
    let mut text = format!(
        "feature level of the cluster: {}, newest that this version knows: {}\n",
        check.cluster_level, check.newest_level
    );
    let mut servers = Table::new(&["SERVER", "VERSION", "KNOWS LEVEL"]);
    for server in &check.servers {
        let version = server.version.clone().unwrap_or_default();
        let level = server
            .level
            .map_or("does not answer".to_owned(), |level| level.to_string());
        servers.row([server.node_id.to_string(), version, level]);
    }
    text += &servers.render();
    for node in &check.nodes {
        text += &format!(
            "node {} runs an older version, without {}\n",
            node.node_id,
            node.lacks.join(", ")
        );
    }
    for why in &check.blocked_by {
        text += &format!("the level stays as it is: {why}\n");
    }
    if check.blocked_by.is_empty() && check.cluster_level < check.newest_level {
        text += "nothing is in the way: the leader raises the level within seconds\n";
    }
    if check.is_done() {
        text += "every server and node is of this version\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use dhow_wire::api::{OlderNode, ServerLevel};

    use super::*;

    fn server(node_id: u64, version: Option<&str>, level: Option<u32>) -> ServerLevel {
        ServerLevel {
            node_id,
            version: version.map(str::to_owned),
            level,
        }
    }

    #[test]
    fn it_says_what_is_in_the_way() {
        let servers = vec![
            server(1, Some("0.2.0"), Some(6)),
            server(2, None, Some(5)),
            server(3, None, None),
        ];
        let older = OlderNode {
            node_id: 9,
            lacks: vec!["`init` steps".into()],
        };
        let check = UpgradeCheck::of((5, 6), servers, vec![older]);
        assert!(!check.is_done());
        let expected = "feature level of the cluster: 5, newest that this version knows: 6\n\
            SERVER  VERSION  KNOWS LEVEL\n\
            1       0.2.0    6\n\
            2       -        5\n\
            3       -        does not answer\n\
            node 9 runs an older version, without `init` steps\n\
            the level stays as it is: server 2 knows level 5 and no newer one\n\
            the level stays as it is: server 3 does not answer\n";
        assert_eq!(text(&check), expected);
    }

    #[test]
    fn it_is_done_when_all_know_it_and_the_cluster_has_it() {
        let all = || {
            vec![
                server(1, Some("0.2.0"), Some(6)),
                server(2, Some("0.2.0"), Some(6)),
            ]
        };
        let before = UpgradeCheck::of((5, 6), all(), Vec::new());
        assert!(!before.is_done() && before.blocked_by.is_empty());
        assert!(text(&before).contains("raises the level within seconds"));
        assert!(UpgradeCheck::of((6, 6), all(), Vec::new()).is_done());
    }
}

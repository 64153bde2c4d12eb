//! `dhow explain DEPLOYMENT/NAME`: why it is where it is, or why it is not running.

use dhow_wire::api::Explanation;

use crate::target::{self, NamedTarget};

/// Say why a service or a replica is where it is, or why it is not running
#[derive(clap::Args)]
pub struct Args {
    /// A service or a replica; an exact service name wins
    #[arg(value_name = "DEPLOYMENT/NAME", value_parser = target::named_target)]
    pub target: NamedTarget,

    /// Print the API's JSON on stdout
    #[arg(long)]
    pub json: bool,
}

pub fn text(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", explanation.subject);
    for line in &explanation.lines {
        // A message that a node has sent may have lines of its own: none of them is to look like one of ours.
        let mut parts = line.lines();
        text += &format!("  {}\n", parts.next().unwrap_or_default());
        for more in parts {
            text += &format!("    | {more}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_message_adds_no_line_of_ours() {
        let explanation = Explanation {
            subject: "shop/web-default-0".into(),
            lines: vec![
                "it could not start on node 4: no\n  it runs, and is healthy".into(),
                "it is tried again".into(),
            ],
            replicas: Vec::new(),
            waiting: Vec::new(),
        };
        let expected = "shop/web-default-0\n  it could not start on node 4: no\n    |   it runs, and is healthy\n  it is \
                        tried again\n";
        assert_eq!(text(&explanation), expected);
    }
}

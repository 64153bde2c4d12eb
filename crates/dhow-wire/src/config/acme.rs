//! `acme`: where the cluster orders certificates for the hosts of public endpoints.

use std::path::PathBuf;

use dhow_core::spec::check::{FieldPath, SpecFinding, quoted};
use serde::Serialize;

use super::effective::Draft;
use super::read::path;
use crate::document::{Decoder, Fields, Node, flag, text};

/// Where certificates are ordered if nothing else is said.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The longest that the path of an address of mail can be.
const EMAIL_MAX_BYTES: usize = 254;

/// An ACME server, and what it is told of this cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AcmeConfig {
    /// The URL of its directory.
    pub directory: String,
    /// Whom it may write to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Whoever runs the cluster agrees to the server's terms; without that nothing is ordered.
    pub agree_to_terms: bool,
    /// A file with certificates, in PEM form, of authorities to trust for this server besides the host's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authority_file: Option<PathBuf>,
}

pub(super) fn read(decoder: &mut Decoder, node: &Node) -> Option<AcmeConfig> {
    const EXAMPLE: &str = "`{ email: ops@shop.example, agree_to_terms: true }`";
    let mut fields = Fields::open(decoder, node, "`acme`", EXAMPLE)?;
    fields.elsewhere(&[
        ("server", "write `directory`"),
        ("directory_url", "write `directory`"),
        ("url", "write `directory`"),
        ("contact", "write `email`"),
        ("mail", "write `email`"),
        ("ca_file", "write `authority_file`"),
        ("tos", "write `agree_to_terms: true`"),
        ("terms", "write `agree_to_terms: true`"),
        ("challenge", "remove it: hosts are proved by HTTP-01 alone"),
    ]);
    let acme = AcmeConfig {
        directory: fields.or("directory", DIRECTORY.to_owned(), text),
        email: fields.optional("email", text),
        agree_to_terms: fields.or("agree_to_terms", false, flag),
        authority_file: fields.optional("authority_file", path).map(PathBuf::from),
    };
    fields.close();
    Some(acme)
}

pub(super) fn check(draft: &Draft, findings: &mut Vec<SpecFinding>) {
    let Some(acme) = &draft.acme else { return };
    let at = FieldPath::of("acme");
    if draft.cluster.is_worker_tier_worker() {
        let message = "a worker orders no certificates";
        findings.push(SpecFinding::at(at.clone(), message).hint("the servers' configuration says where"));
    }
    if !acme.agree_to_terms {
        let message = "an ACME server orders for those who agree to its terms";
        let hint = "read them, and write `agree_to_terms: true` if you agree";
        findings.push(SpecFinding::at(at.clone(), message).hint(hint));
    }
    if let Some(what) = directory_problem(&acme.directory) {
        let message = format!("{} {what}", quoted(&acme.directory));
        let hint = format!("write the URL of an ACME directory, such as `{DIRECTORY}`");
        findings.push(SpecFinding::at(at.key("directory"), message).hint(hint));
    }
    if let Some(email) = acme.email.as_ref().filter(|email| !is_email(email)) {
        let message = format!("{} is no address of mail", quoted(email));
        let hint = "write one such as `ops@shop.example`, without `mailto:`";
        findings.push(SpecFinding::at(at.key("email"), message).hint(hint));
    }
}

fn directory_problem(url: &str) -> Option<&'static str> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Some("does not begin with `https://`");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let odd = url.chars().any(|c| c.is_whitespace() || c.is_control());
    match host.is_empty() || host.contains('@') || odd {
        true => Some("is no URL of a server"),
        false => None,
    }
}

/// Whether it can be written behind `mailto:` as it is.
fn is_email(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | '?' | '<' | '>' | ':' | '"');
    let parts = text.split_once('@');
    let is_whole =
        parts.is_some_and(|(who, host)| !who.is_empty() && !host.is_empty() && !host.contains('@'));
    is_whole && text.len() <= EMAIL_MAX_BYTES && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use crate::parse_config;

    #[test]
    fn an_acme_server_is_named_and_its_terms_agreed_to() {
        let plain = parse_config("acme: { agree_to_terms: true }\n", "dhow.yaml").unwrap();
        let acme = plain.acme.clone().unwrap();
        assert!(acme.directory.starts_with("https://acme-v02."));
        assert_eq!((acme.email, acme.authority_file), (None, None));
        let text = "acme: { directory: \"https://ca.lan:14000/dir\", email: ops@shop.example, agree_to_terms: true, authority_file: /etc/ca.pem }\n";
        let config = parse_config(text, "dhow.yaml").unwrap();
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(parse_config(&written, "written").unwrap(), config);
        assert_eq!(parse_config("{}", "dhow.yaml").unwrap().acme, None);
    }

    #[test]
    fn what_could_not_order_is_refused() {
        for (text, told) in [
            ("acme: {}", "agree_to_terms: true"),
            ("acme: { agree_to_terms: false }", "agree to its terms"),
            (
                "acme: { directory: \"http://ca.lan/dir\", agree_to_terms: true }",
                "https://",
            ),
            (
                "acme: { directory: \"https://\", agree_to_terms: true }",
                "no URL of a server",
            ),
            (
                "acme: { directory: \"https://a b/\", agree_to_terms: true }",
                "no URL of a server",
            ),
            (
                "acme: { email: \"mailto:a@b\", agree_to_terms: true }",
                "no address of mail",
            ),
            (
                "acme: { email: nobody, agree_to_terms: true }",
                "no address of mail",
            ),
            (
                "acme: { challenge: dns-01, agree_to_terms: true }",
                "HTTP-01 alone",
            ),
            ("acme: true", "acme"),
        ] {
            let refused = parse_config(text, "dhow.yaml").unwrap_err().to_string();
            assert!(refused.contains(told), "{text}: {refused}");
        }
    }
}

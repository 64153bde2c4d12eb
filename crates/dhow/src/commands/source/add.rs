//! `dhow source add NAME PLACE`: follows a directory, an address or a git repository.

use dhow_core::spec::TimeSpan;
use dhow_wire::api::{SourceAddRequest, WriteDone};

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Follow a source: what is signed there is deployed, what is gone from there is removed
///
/// A directory is on every server at the same path, because whoever leads reads its own. An address has the files of a set
/// below it. With --git the address is a repository's.
#[derive(clap::Args)]
pub struct AddArgs {
    #[arg(value_name = "NAME")]
    name: String,

    /// A directory on the servers, or an https address
    #[arg(value_name = "DIR|URL")]
    place: String,

    /// A public key that may sign, as `dhow source keygen` prints it; may be given several times
    #[arg(long = "key", value_name = "KEY", required = true)]
    keys: Vec<String>,

    /// The address is a git repository's
    #[arg(long)]
    git: bool,

    /// The branch or tag of the repository; else its default branch
    #[arg(long = "ref", value_name = "REF", requires = "git")]
    reference: Option<String>,

    /// The folder of the repository that has the index; else its root
    #[arg(long, value_name = "PATH", requires = "git")]
    path: Option<String>,

    /// The secret with the authorities that the server's certificate is believed by, as PEM
    #[arg(long, value_name = "SECRET")]
    ca_secret: Option<String>,

    /// The secret with `USER:PASSWORD` or a token for the server
    #[arg(long, value_name = "SECRET")]
    login_secret: Option<String>,

    /// The secret that whoever calls the source's webhook must know
    #[arg(long, value_name = "SECRET")]
    hook_secret: Option<String>,

    /// Do not take a set that was signed longer ago
    #[arg(long, value_name = "DURATION")]
    max_age: Option<TimeSpan>,
}

impl AddArgs {
    fn request(&self) -> SourceAddRequest {
        let place = || Some(self.place.clone());
        let is_address = self.place.contains("://");
        SourceAddRequest {
            dir: place().filter(|_| !is_address && !self.git),
            url: place().filter(|_| is_address && !self.git),
            git: place().filter(|_| self.git),
            reference: self.reference.clone(),
            path: self.path.clone(),
            keys: self.keys.clone(),
            ca_secret: self.ca_secret.clone(),
            login_secret: self.login_secret.clone(),
            hook_secret: self.hook_secret.clone(),
            max_age_secs: self.max_age.map(|age| age.as_millis() / 1_000),
        }
    }
}

pub async fn add(client: &Client, args: &AddArgs) -> anyhow::Result<Exit> {
    let request = args.request();
    if let Some(problem) = request.written().problems().into_iter().next() {
        output::failure(&format!("{}: {}", problem.message, problem.hint));
        return Ok(Exit::BadInput);
    }
    let body = serde_json::to_value(request)?;
    let path = ["sources", args.name.as_str()];
    let _: WriteDone = client.fetch_as(Request::put(&path).json(body)).await?;
    output::note(&format!("source {} is followed", args.name));
    Ok(Exit::Done)
}

//! Where a deployment file is read, and what stands around it there.

/// Why a file beside the deployment file could not be read: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    pub message: String,
    pub hint: String,
}

/// Gives the bytes of a file beside the deployment file, by its path from there.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<Vec<u8>, FileProblem> + 'a;

/// The environment and the folder of whoever reads a file for himself.
pub struct Client<'a> {
    pub env: &'a dyn Fn(&str) -> Option<String>,
    pub file: &'a ReadFile<'a>,
}

/// Who has sent a file: nothing of the reader's own goes into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A caller of the API. The command line has put its variables in; `$` stands for itself.
    Caller,
    /// A signed source, whose files are as people wrote them.
    Source,
}

/// Where a file is read.
pub(super) enum Surroundings<'a> {
    Client(&'a Client<'a>),
    Sent(Sender),
}

impl Surroundings<'_> {
    pub fn variable(&self, name: &str) -> Option<String> {
        match self {
            Self::Client(client) => (client.env)(name),
            Self::Sent(_) => None,
        }
    }
}

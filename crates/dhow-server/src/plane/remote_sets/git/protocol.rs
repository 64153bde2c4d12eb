//! What is asked of a git server, and what of its answers counts.

use bytes::{Bytes, BytesMut};
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::object::ObjectId;
use super::pkt_line::{Line, Lines, Message};
use crate::plane::remote_sets::error::{RemoteError, one_line};
use crate::plane::remote_sets::http::{Ask, RemoteHttp};
use crate::plane::remote_sets::limits::{PACK_BYTES_MAX, REFS_BYTES_MAX};

static PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");

/// A server that has said what it can do.
pub(super) struct Server<'a> {
    http: &'a RemoteHttp,
    /// It can leave out objects that were not asked for.
    filters: bool,
}

/// What of a repository is wanted.
pub(super) struct Want {
    ids: Vec<ObjectId>,
    /// What this side has.
    have: Option<ObjectId>,
    is_shallow: bool,
    /// What is left out, where the server can.
    filter: Option<&'static str>,
}

impl Want {
    /// One commit with its folders, and its files unless they can be asked for apart.
    pub fn snapshot(tip: ObjectId) -> Self {
        Self {
            ids: vec![tip],
            have: None,
            is_shallow: true,
            filter: Some("blob:none"),
        }
    }

    /// Just these.
    pub fn objects(ids: Vec<ObjectId>) -> Self {
        Self {
            ids,
            have: None,
            is_shallow: false,
            filter: None,
        }
    }

    /// The commits that came after another one.
    pub fn commits_since(tip: ObjectId, before: ObjectId) -> Self {
        Self {
            ids: vec![tip],
            have: Some(before),
            is_shallow: false,
            filter: Some("tree:0"),
        }
    }
}

impl<'a> Server<'a> {
    /// Asks what the server can do.
    pub async fn greet(http: &'a RemoteHttp) -> Result<Self, RemoteError> {
        let ask = Ask {
            headers: headers(None),
            ..Ask::get("info/refs?service=git-upload-pack", REFS_BYTES_MAX)
        };
        let mut lines = Lines(http.ask(ask).await?);
        let mut texts = Vec::new();
        for line in &mut lines {
            match line? {
                Line::Flush if texts.len() > 1 => break,
                line => texts.extend(line.text().map(str::to_owned)),
            }
        }
        // Over HTTP the service is named first.
        texts.retain(|text| !text.starts_with("# service="));
        if texts.first().map(String::as_str) != Some("version 2") {
            let found = texts.first().map(|text| one_line(text.as_bytes()));
            return Err(RemoteError::NoProtocol(found.unwrap_or_default()));
        }
        let of = |word: &str| {
            let mut texts = texts.iter();
            texts.find_map(|text| text.strip_prefix(word)).map(str::to_owned)
        };
        if let Some(other) = of("object-format=").filter(|format| format != "sha1") {
            return Err(RemoteError::NoProtocol(format!(
                "it names objects by {}, and only sha1 is known here",
                one_line(other.as_bytes())
            )));
        }
        let fetch = of("fetch=").unwrap_or_default();
        let filters = fetch.split(' ').any(|can| can == "filter");
        Ok(Self { http, filters })
    }

    /// The commit that a branch or a tag names.
    pub async fn find(&self, reference: &str) -> Result<ObjectId, RemoteError> {
        let names: Vec<String> = match reference {
            "" => vec!["HEAD".into()],
            full if full.starts_with("refs/") => vec![full.into()],
            short => vec![format!("refs/heads/{short}"), format!("refs/tags/{short}")],
        };
        let message = Message::default()
            .line("command=ls-refs")
            .delimiter()
            .line("peel")
            .lines(names.iter().map(|name| format!("ref-prefix {name}")))
            .finish();
        let lines = Lines(self.command(message, REFS_BYTES_MAX).await?);
        let mut found = Vec::new();
        for line in lines {
            let line = line?;
            found.extend(line.text().and_then(Reference::read));
        }
        // A branch counts before a tag of the same name.
        let mut named = names
            .iter()
            .filter_map(|name| found.iter().find(|found| found.name == *name));
        let found = named.next().map(|found| found.commit);
        found.ok_or_else(|| {
            let name = match reference {
                "" => "HEAD",
                name => name,
            };
            RemoteError::NoReference(name.into())
        })
    }

    /// The pack with what is wanted.
    pub async fn fetch(&self, want: &Want) -> Result<Bytes, RemoteError> {
        let mut message = Message::default()
            .line("command=fetch")
            .delimiter()
            .line("no-progress")
            .line("ofs-delta")
            .lines(want.ids.iter().map(|id| format!("want {id}")))
            .lines(want.have.iter().map(|id| format!("have {id}")));
        if want.is_shallow {
            message = message.line("deepen 1");
        }
        if let Some(filter) = want.filter.filter(|_| self.filters) {
            message = message.line(&format!("filter {filter}"));
        }
        let message = message.line("done").finish();
        pack_of(self.command(message, PACK_BYTES_MAX).await?)
    }

    async fn command(&self, body: Bytes, max_bytes: usize) -> Result<Bytes, RemoteError> {
        let ask = Ask {
            method: Method::POST,
            path: "git-upload-pack",
            headers: headers(Some("application/x-git-upload-pack-request")),
            body,
            max_bytes,
        };
        self.http.ask(ask).await
    }
}

/// One line of the list of references.
struct Reference {
    name: String,
    commit: ObjectId,
}

impl Reference {
    /// `ID NAME`, and behind it what a tag points to.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let id = ObjectId::from_text(words.next()?)?;
        let name = words.next()?.to_owned();
        let peeled = words.find_map(|word| ObjectId::from_text(word.strip_prefix("peeled:")?));
        Some(Self {
            name,
            commit: peeled.unwrap_or(id),
        })
    }
}

fn headers(content: Option<&'static str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(&PROTOCOL, HeaderValue::from_static("version=2"));
    if let Some(content) = content {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        let result = HeaderValue::from_static("application/x-git-upload-pack-result");
        headers.insert(ACCEPT, result);
    }
    headers
}

/// Joins the pack out of the answer's bands: 1 is the pack, 2 is for people, 3 is why there is none.
fn pack_of(answer: Bytes) -> Result<Bytes, RemoteError> {
    let mut lines = Lines(answer);
    loop {
        match lines.next().transpose()? {
            Some(line) if line.text() == Some("packfile") => break,
            Some(Line::Data(bytes)) if bytes.starts_with(b"ERR ") => {
                return Err(RemoteError::Said(one_line(&bytes[4..])));
            }
            Some(_) => {}
            None => return Err(RemoteError::Malformed("an answer without a pack".into())),
        }
    }
    let mut pack = BytesMut::new();
    for line in lines {
        match line? {
            Line::Data(bytes) => match bytes.first() {
                Some(1) => pack.extend_from_slice(&bytes[1..]),
                Some(2) => {}
                Some(3) => return Err(RemoteError::Said(one_line(&bytes[1..]))),
                Some(_) | None => return Err(RemoteError::Malformed("a band that is none".into())),
            },
            Line::Flush | Line::Delimiter | Line::End => break,
        }
    }
    Ok(pack.freeze())
}

//! Judges what was read from a source: who signed it, whether it is newer, fresh and whole, and what to do with it.

use std::path::Path;
use std::sync::Arc;

use dhow_core::command::{ApplyReason, Refused};
use dhow_core::spec::DeploymentSpec;
use dhow_core::spec::check::SpecFinding;
use dhow_core::spec::policy::FilePolicy;
use dhow_core::state::ManifestVersion;
use dhow_wire::manifest::{FileHash, ManifestError, ManifestKey, ReceivedSet, Verdict};
use dhow_wire::{Sender, parse_deployment_under};

use super::dir::ReadSetError;
use super::sources::{ManifestSource, WaitingSet, waits_for_a_person};
use crate::plane::remote_sets::RemoteError;

/// How far the clocks of this host and of the one that signs may differ.
const CLOCK_SKEW_MAX_SECS: u32 = 300;

/// Why somebody looks at a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What is new is put in force.
    Follow,
    /// A person has said yes to what a set may not do unasked.
    Accept,
    /// What was taken back is to be tried again.
    Retry,
}

/// Why a source brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the set of manifests in {place} was refused")]
    Refused {
        place: String,
        #[source]
        cause: ManifestError,
    },
    #[error("the set of manifests in {place} cannot be read")]
    Unreadable {
        place: String,
        #[source]
        cause: ReadSetError,
    },
    #[error("{place} cannot be read")]
    Elsewhere {
        place: String,
        #[source]
        cause: Box<RemoteError>,
    },
    #[error("the history of {place} was rewritten: {why}; `dhow source accept` takes it as it is")]
    Rewritten {
        place: String,
        waiting: WaitingSet,
        why: String,
    },
    #[error("version {version} of {name} was not taken", version = waiting.version)]
    NotTaken {
        name: Arc<str>,
        waiting: WaitingSet,
        #[source]
        cause: Box<Refused>,
    },
    #[error("the reading of the manifests was cut off")]
    CutOff,
}

impl SourceError {
    /// The whole of it on one line.
    pub fn reason(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(next) = cause {
            text.push_str(&format!(": {next}"));
            cause = next.source();
        }
        text
    }

    /// What a person can say yes to.
    pub(super) fn waiting(&self) -> Option<WaitingSet> {
        match self {
            Self::NotTaken { waiting, cause, .. } => waits_for_a_person(cause).then(|| waiting.clone()),
            Self::Rewritten { waiting, .. } => Some(waiting.clone()),
            Self::Refused { .. } | Self::Unreadable { .. } | Self::Elsewhere { .. } | Self::CutOff => None,
        }
    }
}

/// What is known when a source is looked at.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    pub source: ManifestSource,
    /// The set in force.
    pub taken: Option<ManifestVersion>,
    pub purpose: Purpose,
    /// The set in force is to be put in force once more.
    pub is_wanted_again: bool,
    pub now_unix_secs: i64,
    pub policy: Option<Arc<FilePolicy>>,
}

impl Judge {
    pub fn place(&self) -> String {
        self.source.settings.place()
    }

    pub fn unreadable(&self, cause: ReadSetError) -> SourceError {
        SourceError::Unreadable {
            place: self.place(),
            cause,
        }
    }

    pub fn refused(&self, cause: ManifestError) -> SourceError {
        SourceError::Refused {
            place: self.place(),
            cause,
        }
    }

    pub fn is_in_force(&self, index: &[u8]) -> bool {
        let hash = *FileHash::of(index).as_bytes();
        self.taken.is_some_and(|taken| taken.index_hash == hash)
    }

    /// What is to be done with a set. One whose index is in force needs no files, unless it is wanted again.
    /// What comes from a rewritten history waits for a person, also where its set is the one in force: then the commit is
    /// what is taken.
    pub fn verdict(
        &self,
        set: &ReceivedSet,
        commit: Option<&Arc<str>>,
        rewritten: Option<String>,
    ) -> Result<Verdict, SourceError> {
        let is_accepted = rewritten.is_some() && self.purpose == Purpose::Accept;
        let is_again = (self.is_wanted_again || is_accepted) && self.is_in_force(&set.index);
        let verdict = self.proved(set, commit, is_again)?;
        let Some(why) = rewritten.filter(|_| !is_accepted) else {
            return Ok(verdict);
        };
        let waiting = match &verdict {
            Verdict::Newer(set) => WaitingSet::of(set),
            Verdict::Unchanged => WaitingSet {
                version: self.taken.map_or(0, |taken| taken.version),
                commit: commit.cloned(),
            },
        };
        Err(SourceError::Rewritten {
            place: self.place(),
            waiting,
            why,
        })
    }

    fn proved(
        &self,
        set: &ReceivedSet,
        commit: Option<&Arc<str>>,
        is_again: bool,
    ) -> Result<Verdict, SourceError> {
        let previous = self.taken.as_ref().filter(|_| !is_again);
        let keys: Vec<_> = self
            .source
            .keys()
            .filter_map(|key: ManifestKey| key.verifying())
            .collect();
        let parse = |path: &str, text: &str| self.parse(path, text);
        let verdict = set
            .verify(&keys, previous, self.now_unix_secs, CLOCK_SKEW_MAX_SECS, &parse)
            .map_err(|cause| self.refused(cause))?;
        let Verdict::Newer(set) = verdict else {
            return Ok(Verdict::Unchanged);
        };
        let why = match (is_again, self.purpose) {
            (true, Purpose::Retry) => ApplyReason::Retry,
            (_, Purpose::Accept) => ApplyReason::Accepted,
            (true, Purpose::Follow) => ApplyReason::SuspensionOver,
            (false, Purpose::Follow | Purpose::Retry) => ApplyReason::Newer,
        };
        if !is_again {
            self.check_age(set.version())?;
        }
        let set = set.from_source(self.source.name.clone());
        Ok(Verdict::Newer(set.at_commit(commit.cloned()).because(why)))
    }

    /// A set that was signed long ago may be all that somebody lets this server see.
    fn check_age(&self, version: ManifestVersion) -> Result<(), SourceError> {
        let Some(max_secs) = self.source.settings.max_age_secs else {
            return Ok(());
        };
        let age_secs = self.now_unix_secs.saturating_sub(version.created_unix_secs);
        match u64::try_from(age_secs) {
            Ok(age_secs) if age_secs > max_secs => Err(self.refused(ManifestError::Stale {
                version: version.version,
                age_secs,
                max_secs,
            })),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A signed file means the same on every server, so nothing of a server's environment enters it.
    fn parse(&self, path: &str, text: &str) -> Result<DeploymentSpec, String> {
        let rules = |spec: &DeploymentSpec| -> Vec<SpecFinding> {
            let policy = self.policy.as_ref();
            policy.map(|policy| policy.check(spec)).unwrap_or_default()
        };
        let name = Path::new(path)
            .file_name()
            .map_or(path.into(), |name| name.to_string_lossy());
        parse_deployment_under(text, &name, Sender::Source, &rules).map_err(|findings| findings.to_string())
    }
}

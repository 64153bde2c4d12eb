//! Whether what the ledger says is still the node's: after a restart of the host others may run it by now.
//!
//! Within one start of the host nothing is asked: replicas of a daemon that crashed or was restarted are the node's
//! until a server says otherwise.

use dhow_core::spec::ServiceSpec;

use crate::agent::Returning;

/// Whether a server has confirmed the node since the host was started. The keeper asks it before it starts a replica
/// that others may run by now.
pub struct Confirmation {
    returning: Returning,
    is_confirmed: bool,
}

impl Confirmation {
    pub fn new(returning: Returning) -> Self {
        Self {
            is_confirmed: returning == Returning::Alone,
            returning,
        }
    }

    /// Compares this start of the host with the one in which a server last confirmed the node. A ledger that says
    /// nothing of it is of an older version: then what was found on the host shows whether it was started again.
    pub fn begin(&mut self, confirmed: Option<&str>, has_found_another_boot: bool) {
        let Returning::Confirmed { boot_id } = &self.returning else {
            return;
        };
        self.is_confirmed = match confirmed {
            Some(confirmed) => confirmed == boot_id,
            None => !has_found_another_boot,
        };
    }

    pub fn is_needed_for(&self, spec: &ServiceSpec) -> bool {
        !self.is_confirmed && !spec.starts_unconfirmed()
    }

    /// A server has spoken. Gives the start of the host that it spoke in, where that is of interest.
    pub fn confirm(&mut self) -> Option<String> {
        self.is_confirmed = true;
        match &self.returning {
            Returning::Alone => None,
            Returning::Confirmed { boot_id } => Some(boot_id.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use dhow_core::spec::{Offline, Storage};

    use super::*;

    fn member() -> Confirmation {
        let boot_id = "now".to_owned();
        Confirmation::new(Returning::Confirmed { boot_id })
    }

    #[test]
    fn only_another_start_of_the_host_needs_a_word() {
        let plain = ServiceSpec::default();
        let cases = [
            ((Some("now"), false), false),
            ((Some("now"), true), false),
            ((Some("before"), false), true),
            ((None, false), false),
            ((None, true), true),
        ];
        for ((confirmed, found), needed) in cases {
            let mut confirmation = member();
            confirmation.begin(confirmed, found);
            assert_eq!(
                confirmation.is_needed_for(&plain),
                needed,
                "{confirmed:?} {found}"
            );
        }
        let mut alone = Confirmation::new(Returning::Alone);
        alone.begin(Some("before"), false);
        assert!(!alone.is_needed_for(&plain));
    }

    #[test]
    fn what_is_bound_here_or_may_run_twice_needs_none() {
        let mut confirmation = member();
        confirmation.begin(Some("before"), false);
        let bound = ServiceSpec {
            storage: vec![Storage::Named {
                name: "data".into(),
                target: "/data".into(),
                read_only: false,
                nocopy: false,
                size: None,
            }],
            ..ServiceSpec::default()
        };
        let twice = ServiceSpec {
            offline: Offline::Run,
            ..ServiceSpec::default()
        };
        assert!(!confirmation.is_needed_for(&bound));
        assert!(!confirmation.is_needed_for(&twice));
        assert!(confirmation.is_needed_for(&ServiceSpec::default()));
        assert_eq!(confirmation.confirm().as_deref(), Some("now"));
        assert!(!confirmation.is_needed_for(&ServiceSpec::default()));
    }
}

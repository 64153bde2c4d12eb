//! When something happened, by the wall clock, told by the marks that the log has of it.

use dhow_core::ids::DeploymentName;
use dhow_core::state::State;
use dhow_core::time::ClusterTime;

/// The times of one state, as they look from now.
#[derive(Clone, Copy)]
pub(super) struct WallTimes<'a> {
    pub state: &'a State,
    pub now: ClusterTime,
    pub now_unix_ms: i64,
    /// The time that this server was started with: what passed before it is not known without a note of it.
    pub began: ClusterTime,
}

impl WallTimes<'_> {
    /// In seconds since 1970; none where nobody can say.
    pub fn unix_secs(&self, deployment: &DeploymentName, then: ClusterTime) -> Option<i64> {
        let marks = &self.state.clock_marks;
        let noted = match marks.reaches(then) {
            true => marks.wall_unix_ms(then),
            // Earlier versions made no marks, but each revision has always had its date.
            false => self
                .by_revision(deployment, then)
                .or_else(|| marks.wall_unix_ms(then)),
        };
        let seen = (then >= self.began).then(|| self.now_unix_ms.saturating_sub(millis(self.now, then)));
        noted.or(seen).map(|ms| ms.div_euclid(1_000))
    }

    /// How long ago it was. Time in which no server ran counts.
    pub fn secs_since(&self, deployment: &DeploymentName, then: ClusterTime) -> i64 {
        let secs = match self.unix_secs(deployment, then) {
            Some(then) => self.now_unix_secs().saturating_sub(then),
            None => millis(self.now, then) / 1_000,
        };
        secs.max(0)
    }

    pub fn now_unix_secs(&self) -> i64 {
        self.now_unix_ms.div_euclid(1_000)
    }

    /// By the date of the last revision that users asked for before.
    fn by_revision(&self, deployment: &DeploymentName, then: ClusterTime) -> Option<i64> {
        let history = self.state.deployment(deployment)?.history.values();
        let before = history.filter(|record| record.asked <= then);
        let last = before.max_by_key(|record| record.asked)?;
        let began_ms = last.wall_unix_secs.saturating_mul(1_000);
        Some(began_ms.saturating_add(millis(then, last.asked)))
    }
}

fn millis(now: ClusterTime, then: ClusterTime) -> i64 {
    i64::try_from(now.since(then).as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dhow_core::command::{Command, DeploymentCommand, Entry};
    use dhow_core::ids::Term;
    use dhow_core::state::ClockMark;

    /// A state that an earlier version left, which noted no clock: the daemon was away for an hour since.
    #[test]
    fn what_happened_before_an_upgrade_is_told_by_the_dates_of_revisions() {
        let text = "version: v1\ndeployment: shop\nservices: { web: { image: shop:1 } }\n";
        let spec = dhow_wire::parse_deployment(text, "shop.yaml", &|_| None).unwrap();
        let mut state = State {
            feature_level: 1,
            ..State::default()
        };
        let deploy = Command::Deployment(DeploymentCommand::Deploy {
            spec: std::sync::Arc::new(spec),
            author: "user".into(),
            wall_unix_secs: 1_000,
            force: false,
        });
        let asked = ClusterTime(10_000);
        let entry = Entry {
            time: asked,
            term: Term(0),
            request: None,
            command: deploy,
        };
        dhow_core::step::step(&mut state, &entry, &mut ()).unwrap();
        state.clock_marks.note(ClockMark {
            term: Term(2),
            time: ClusterTime(100_000),
            wall_unix_ms: 4_690_000,
        });
        let times = WallTimes {
            state: &state,
            now: ClusterTime(100_000),
            now_unix_ms: 4_690_000,
            began: ClusterTime(100_000),
        };
        let shop = DeploymentName::new("shop").unwrap();
        assert_eq!(times.unix_secs(&shop, ClusterTime(20_000)), Some(1_010));
        assert_eq!(times.secs_since(&shop, ClusterTime(20_000)), 3_680);
        assert_eq!(times.unix_secs(&shop, ClusterTime(100_000)), Some(4_690));
    }
}

//! Services that start after others.

use super::Planner;
use super::report::{ServiceReport, Why};
use super::settled::meets;
use crate::command::PlanCommand;
use crate::ids::Slot;
use crate::spec::{Dependency, OnTimeout};
use crate::state::Service;

impl Planner<'_> {
    /// Lets a service start once what it depends on is there, or once it need not wait any longer. The next
    /// plan sees it released.
    pub(super) fn release(&mut self, service: &Service) -> bool {
        let mut without = Vec::new();
        for dependency in self.dependencies(service) {
            if self.is_met(service, &dependency) {
                continue;
            }
            let waited = self.now >= service.asked.after(dependency.timeout);
            match (waited, dependency.on_timeout) {
                (true, OnTimeout::Warn) => without.push(format!("`{}`", dependency.service)),
                (true, OnTimeout::Continue) => {}
                (true, OnTimeout::Fail) | (false, _) => return false,
            }
        }
        let without = (!without.is_empty())
            .then(|| format!("without waiting any longer for {}", without.join(", ")).into());
        self.push(PlanCommand::Release {
            service: service.id,
            generation: service.target,
            without,
        });
        false
    }

    pub(super) fn dependencies(&self, service: &Service) -> Vec<Dependency> {
        service
            .spec()
            .map(|spec| spec.depends.clone())
            .unwrap_or_default()
    }

    pub(super) fn is_met(&self, service: &Service, dependency: &Dependency) -> bool {
        let other = self
            .state
            .service_named(&service.key.deployment, &dependency.service);
        other.is_some_and(|other| meets(self.state, other, dependency.condition, self.now))
    }

    /// What it depends on, where people have stopped that: then its time does not run out.
    pub(super) fn stopped_one(&self, service: &Service, dependency: &Dependency) -> Option<&Service> {
        let other = self
            .state
            .service_named(&service.key.deployment, &dependency.service);
        other
            .map(|other| other.as_ref())
            .filter(|other| other.stopped.is_some())
    }

    /// Says for whom it waits, and looks again when it need not any more.
    pub(super) fn report_dependencies(&mut self, service: &Service) {
        let mut report = ServiceReport::default();
        for dependency in self.dependencies(service) {
            if self.is_met(service, &dependency) {
                continue;
            }
            self.cache
                .wake_at(service.id, service.asked.after(dependency.timeout));
            let why = match self.stopped_one(service, &dependency) {
                Some(stopped) => Why::WaitsForStopped {
                    service: stopped.key.clone(),
                },
                None => Why::WaitsFor {
                    service: dependency.service,
                    condition: dependency.condition,
                },
            };
            for slot in service.wanted_slots().take(1) {
                let Slot { role, .. } = slot;
                let Some(role) = service.role(role) else { continue };
                report.add(role, slot, why.clone());
                if let Some(last) = report.waiting.last_mut() {
                    last.slots = service.count_total();
                }
            }
        }
        self.cache.report_service(service.id, report);
    }
}

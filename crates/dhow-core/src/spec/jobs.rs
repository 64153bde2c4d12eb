//! What a deployment file says of jobs, beside that they are such.

use super::scale::Condition;
use super::{DeploymentSpec, ServiceSpec};

impl DeploymentSpec {
    /// Whether it has rules of jobs that came with feature level 5.
    pub fn needs_job_rules(&self) -> bool {
        self.services.values().any(|service| service.awaits_jobs())
    }
}

impl ServiceSpec {
    fn awaits_jobs(&self) -> bool {
        let mut depends = self.depends.iter();
        depends.any(|dependency| dependency.condition == Condition::Completed)
    }

    /// The spec as nodes are told of it, where that differs: an agent waits for nobody, and one of an older version could
    /// not read a condition that it does not know.
    pub fn without_job_rules(&self) -> Option<ServiceSpec> {
        self.awaits_jobs().then(|| ServiceSpec {
            depends: Vec::new(),
            ..self.clone()
        })
    }
}

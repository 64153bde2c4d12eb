//! What a deployment file says of jobs, schedules and the steps before a program, beside that they are such.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::command::{CommandSpec, ImageSpec};
use super::scale::Condition;
use super::units::TimeSpan;
use super::{DeploymentSpec, ServiceSpec};

/// How much work a job does, how much of it at a time, until when, and how many of its runs are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// How many replicas have to complete; as many as `scale` says where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<u32>,
    /// How many of them are under way at a time; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    /// How long a run may take from its beginning to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<TimeSpan>,
    /// How many ended runs of a schedule are kept with their logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
}

impl JobSpec {
    /// Ended runs of a schedule that are kept where nothing is said.
    pub const KEEP: u32 = 3;

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub fn kept_runs(&self) -> usize {
        self.keep.unwrap_or(Self::KEEP).max(1) as usize
    }
}

/// What a due time does while an earlier run of the schedule is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concurrency {
    /// Both run.
    Allow,
    /// The later one is left out.
    #[default]
    Forbid,
    /// The earlier one ends.
    Replace,
}

/// What becomes of due times at which no server could start a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// They are left out.
    Skip,
    /// The last of them is made up for.
    #[default]
    Once,
}

/// A command that runs to its end before the program of a replica starts, each time that this starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InitStep {
    /// What people call it; its number where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The service's own where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    #[serde(default)]
    pub command: CommandSpec,
    /// Beside what the service has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl DeploymentSpec {
    /// Whether it has rules of jobs that came with feature level 5.
    pub fn needs_job_rules(&self) -> bool {
        self.services.values().any(|service| service.has_job_rules())
    }
}

impl ServiceSpec {
    fn has_job_rules(&self) -> bool {
        self.has_run_rules() || self.awaits_jobs() || self.has_init_steps() || self.has_seconds()
    }

    /// What only the control plane has to know.
    fn has_run_rules(&self) -> bool {
        let says = self.zone.is_some() || self.concurrency.is_some() || self.missed.is_some();
        says || !self.job.is_default()
    }

    fn awaits_jobs(&self) -> bool {
        let mut depends = self.depends.iter();
        depends.any(|dependency| dependency.condition == Condition::Completed)
    }

    /// Whether something runs before the program of each replica.
    pub fn has_init_steps(&self) -> bool {
        !self.init_steps.is_empty()
    }

    /// A schedule with a field for seconds.
    fn has_seconds(&self) -> bool {
        let fields = self.schedule.as_deref().map(str::split_ascii_whitespace);
        fields.is_some_and(|fields| fields.count() > 5)
    }

    /// How many replicas of a job or of one run of a schedule have to complete, where its `job` says so.
    pub fn completions(&self) -> Option<u32> {
        self.job.completions.filter(|_| self.runs_to_completion())
    }

    /// How many slots of a job may be under way at a time.
    pub fn parallelism(&self) -> Option<u32> {
        self.job.parallelism.filter(|_| self.runs_to_completion())
    }

    pub fn concurrency(&self) -> Concurrency {
        self.concurrency.unwrap_or_default()
    }

    pub fn missed(&self) -> Missed {
        self.missed.unwrap_or_default()
    }

    /// What a step runs: the service's own surroundings with the step's command in place of the service's.
    pub fn for_step(&self, step: &InitStep) -> ServiceSpec {
        let mut spec = ServiceSpec {
            init_steps: Vec::new(),
            health: None,
            ..self.clone()
        };
        // With an image of its own and no command it runs what the image says.
        let has_command = step.command != CommandSpec::default();
        spec.command = has_command.then(|| step.command.clone());
        spec.image = step.image.clone().or(spec.image);
        spec.user = step.user.clone().or(spec.user);
        spec.env.extend(step.env.clone());
        spec
    }

    /// The spec as nodes are told of it, where that differs: an agent waits for nobody, and one of an older version could
    /// not read a condition that it does not know.
    pub fn without_job_rules(&self) -> Option<ServiceSpec> {
        (self.awaits_jobs() || self.has_run_rules()).then(|| ServiceSpec {
            depends: Vec::new(),
            job: JobSpec::default(),
            zone: None,
            concurrency: None,
            missed: None,
            ..self.clone()
        })
    }
}

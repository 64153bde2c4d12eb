//! Why things were not done yet.

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanReport {}

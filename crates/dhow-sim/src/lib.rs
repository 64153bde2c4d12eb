//! Whole clusters in one thread, from a seed or a script: the real `step`, `plan_next` and replica machine,
//! with agents, links and time made up. Used by tests and benchmarks; never shipped.

pub mod lab;
pub mod scenario;

//! Whole clusters in one thread, from a seed or a script: the real `step`, `plan_next`, replica machine, decisions of agents
//! and tables of sessions, with workloads, links and time made up; and, beside that, thousands of workers over real connections as a load on real
//! servers. Used by tests and benchmarks; never shipped.

pub mod lab;
pub mod load;
pub mod scenario;
pub mod world;

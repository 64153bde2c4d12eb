//! What a scenario shows of a cluster, read off its state.

mod assignments;
mod explain;
mod history;
mod nodes;
mod replicas;
mod status;

pub(super) use assignments::assignments;
pub(super) use explain::explain;
pub(super) use history::history;
pub(super) use nodes::nodes;
pub(super) use replicas::{ended, replicas};
pub(super) use status::status;

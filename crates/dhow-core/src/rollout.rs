//! What a rollout goes by: the gates that it waits at, and how a canary is judged. Pure, and told in words that people
//! read; the planner asks, and a judgement is an entry of the log with its figures.

mod gate;
mod judgement;
mod waves;

pub use gate::{AtGate, Gate, paused};
pub(crate) use gate::{CanaryLook, Passage, canary_passage};
pub use judgement::{Counted, Figures, Judgement, Verdict};
pub(crate) use waves::{Wave, wave};

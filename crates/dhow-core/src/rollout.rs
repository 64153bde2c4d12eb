//! What a rollout goes by: the gates that it waits at, and how a canary is judged. Pure, and told in words that people
//! read; the planner asks, and a judgement is an entry of the log with its figures.

mod gate;
mod judgement;
mod waves;

pub use gate::{AtGate, CanaryLook, Gate, Passage, canary_passage, paused};
pub use judgement::{Counted, Figures, JUDGED_FROM, Judgement, Verdict, judge};
pub use waves::{WAVES_FROM, Wave, wave};

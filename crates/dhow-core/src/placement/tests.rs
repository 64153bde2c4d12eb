//! Laws and examples of placement. What the engine does quickly, [`naive`] does plainly; the laws say that
//! both do the same.

mod displacing;
mod examples;
mod extremes;
mod laws;
mod naive;
mod world;

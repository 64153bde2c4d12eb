//! Placeholder of the measurement, replaced below.
fn main() {}

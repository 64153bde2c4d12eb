//! The runtime as a whole.

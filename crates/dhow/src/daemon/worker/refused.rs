//! A definite no: trying again changes nothing.

/// Shown to whoever runs the worker; the process ends with 4.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

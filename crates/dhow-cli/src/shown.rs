//! What verbs have to say, and the words that several of them use.

use serde::Serialize;
use serde_json::Value;

/// What stands before what went wrong.
pub const ERROR: &str = "error:";

/// What a listing comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// For stdout.
    Data(String),
    /// There is nothing to list, and that is said beside the data.
    Note(String),
}

/// The name that a closed list of the API has in its JSON.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        // Every state and role of the API is written as text.
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}

pub fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.into()
}

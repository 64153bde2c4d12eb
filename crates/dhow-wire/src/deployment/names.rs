//! Names of deployments, services and roles, with a suggestion where one can be made.

use dhow_core::ids::NameError;

use crate::document::{Decoder, Span};

/// A checked name, or the finding that says what a name looks like.
pub(super) fn checked<T>(
    decoder: &mut Decoder,
    span: Span,
    text: &str,
    make: fn(&str) -> Result<T, NameError>,
) -> Option<T> {
    let error = match make(text) {
        Ok(name) => return Some(name),
        Err(error) => error,
    };
    let meant = tidied(text);
    let hint = match make(&meant) {
        Ok(_) => format!("did you mean `{meant}`?"),
        Err(_) => "use a–z, 0–9 and -, starting with a letter, such as `shop-web`".into(),
    };
    decoder.fail(span, error.to_string(), hint)
}

/// The text with capitals lowered and other characters replaced.
fn tidied(text: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let lowered = text.chars().take(64).map(|c| c.to_ascii_lowercase());
    let replaced: String = lowered.map(|c| if fits(c) { c } else { '-' }).collect();
    let parts: Vec<&str> = replaced.split('-').filter(|part| !part.is_empty()).collect();
    parts.join("-")
}

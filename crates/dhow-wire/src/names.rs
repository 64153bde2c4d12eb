//! From the plain text of a message to checked names. Called where a message is used, never where it is read.

use dhow_core::ids::{DeploymentName, NameError, RoleName, ServiceKey, ServiceName};

/// A peer's message names something that cannot exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message names the {field} {text:?}, which is not a name")]
pub struct WireNameError {
    pub field: &'static str,
    pub text: String,
    #[source]
    pub cause: NameError,
}

/// The longest text of a peer that an error repeats: a valid name has at most 63 characters, so that this
/// shows what is wrong without letting a peer fill the log.
const SHOWN_CHARS_MAX: usize = 80;

impl WireNameError {
    fn new(field: &'static str, text: &str, cause: NameError) -> Self {
        let text = text.chars().take(SHOWN_CHARS_MAX).collect();
        Self { field, text, cause }
    }
}

/// The deployment of a message; an absent one is `default`, as an old peer means it.
pub fn deployment_name(text: Option<&str>) -> Result<DeploymentName, WireNameError> {
    match text {
        None => Ok(DeploymentName::fallback()),
        Some(text) => {
            DeploymentName::new(text).map_err(|cause| WireNameError::new("deployment", text, cause))
        }
    }
}

/// What goes into a message's `deployment`: nothing for `default`, so that old peers see what they know.
pub fn deployment_on_wire(name: &DeploymentName) -> Option<String> {
    (*name != DeploymentName::fallback()).then(|| name.to_string())
}

pub fn service_key(deployment: Option<&str>, service: &str) -> Result<ServiceKey, WireNameError> {
    Ok(ServiceKey {
        deployment: deployment_name(deployment)?,
        service: ServiceName::new(service).map_err(|cause| WireNameError::new("service", service, cause))?,
    })
}

pub fn role_name(text: &str) -> Result<RoleName, WireNameError> {
    RoleName::new(text).map_err(|cause| WireNameError::new("role", text, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_deployment_is_default_and_the_other_way_round() {
        assert_eq!(deployment_name(None).unwrap().as_str(), "default");
        assert_eq!(deployment_on_wire(&DeploymentName::fallback()), None);
        let shop = DeploymentName::new("shop").unwrap();
        assert_eq!(deployment_on_wire(&shop).as_deref(), Some("shop"));
        assert_eq!(deployment_name(Some("shop")), Ok(shop));
        assert_eq!(service_key(None, "web").unwrap().to_string(), "default/web");
    }

    #[test]
    fn a_wrong_name_says_which_and_stays_short() {
        let error = service_key(Some("shop"), "We b").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the message names the service \"We b\", which is not a name"
        );
        assert_eq!(
            error.cause.to_string(),
            "a service name holds only a–z, 0–9 and -, found 'W'"
        );
        assert_eq!(service_key(Some(""), "web").unwrap_err().field, "deployment");
        let long = role_name(&"é".repeat(1_000_000)).unwrap_err();
        assert_eq!(long.text.chars().count(), SHOWN_CHARS_MAX);
    }
}

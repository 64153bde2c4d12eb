//! What people name on the command line: `DEPLOYMENT`, `DEPLOYMENT/NAME`, `DEPLOYMENT/SERVICE=N`. A wrong one is an
//! error of usage that says how it is written.

use dhow_core::ids::{DeploymentName, RoleName, ServiceName};

/// The longest id there can be: three names of 63 characters, an index, and what stands between.
const ID_CHARS_MAX: usize = 256;

/// A deployment, and perhaps a service or a replica of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub deployment: DeploymentName,
    pub name: Option<String>,
}

impl Target {
    /// As people write it.
    pub fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.deployment),
            None => self.deployment.to_string(),
        }
    }
}

/// A service or a replica of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTarget {
    pub deployment: DeploymentName,
    pub name: String,
}

/// How many replicas a service, or one role of it, is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleTarget {
    pub deployment: DeploymentName,
    pub service: ServiceName,
    pub role: Option<RoleName>,
    pub replicas: u32,
}

/// `DEPLOYMENT`.
pub fn deployment(text: &str) -> Result<DeploymentName, String> {
    if let Some((name, _)) = text.split_once('/') {
        return Err(format!("this takes a deployment alone: `{name}`"));
    }
    DeploymentName::new(text).map_err(|error| error.to_string())
}

/// `DEPLOYMENT` or `DEPLOYMENT/NAME`.
pub fn target(text: &str) -> Result<Target, String> {
    let Some((first, name)) = text.split_once('/') else {
        return Ok(Target {
            deployment: deployment(text)?,
            name: None,
        });
    };
    Ok(Target {
        deployment: deployment(first)?,
        name: Some(part(first, name)?),
    })
}

/// `DEPLOYMENT/NAME`.
pub fn named_target(text: &str) -> Result<NamedTarget, String> {
    let Target { deployment, name } = target(text)?;
    match name {
        Some(name) => Ok(NamedTarget { deployment, name }),
        None => Err(format!(
            "write DEPLOYMENT/NAME: `dhow ps {deployment}` shows what it has"
        )),
    }
}

/// `DEPLOYMENT/SERVICE=N`, or `DEPLOYMENT/SERVICE/ROLE=N` where a service has several roles.
pub fn scale_target(text: &str) -> Result<ScaleTarget, String> {
    const FORM: &str = "write DEPLOYMENT/SERVICE=N, such as `shop/web=3`";
    let (place, count) = text.split_once('=').ok_or(FORM)?;
    let (first, rest) = place.split_once('/').ok_or(FORM)?;
    let (service, role) = match rest.split_once('/') {
        Some((service, role)) => (service, Some(role)),
        None => (rest, None),
    };
    let replicas = count
        .parse()
        .map_err(|_| format!("`{count}` is no number of replicas: {FORM}"))?;
    Ok(ScaleTarget {
        deployment: deployment(first)?,
        service: ServiceName::new(service).map_err(|error| error.to_string())?,
        role: role
            .map(RoleName::new)
            .transpose()
            .map_err(|error| error.to_string())?,
        replicas,
    })
}

/// Ids are made of names, so that they hold no other characters.
fn part(deployment: &str, name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err(format!(
            "the name after `/` is missing; the whole deployment is `{deployment}`"
        ));
    }
    let wrong = name
        .chars()
        .find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-'));
    if let Some(wrong) = wrong {
        return Err(format!(
            "the name of a service or a replica holds only a–z, 0–9 and -, found {wrong:?}"
        ));
    }
    if name.len() > ID_CHARS_MAX {
        return Err(format!(
            "the name of a service or a replica has at most {ID_CHARS_MAX} characters"
        ));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_people_write_them() {
        assert_eq!(target("shop").unwrap().name, None);
        assert_eq!(
            target("shop/web-default-0").unwrap().name.as_deref(),
            Some("web-default-0")
        );
        assert_eq!(named_target("shop/web").unwrap().name, "web");
        let scale = scale_target("shop/web=3").unwrap();
        assert_eq!(
            (scale.service.as_str(), scale.role, scale.replicas),
            ("web", None, 3)
        );
        let role = scale_target("shop/db/primary=0").unwrap();
        assert_eq!((role.role.unwrap().as_str(), role.replicas), ("primary", 0));
    }

    #[test]
    fn what_is_wrong_says_how_it_is_written() {
        let cases = [
            (target("shop/").unwrap_err(), "the name after `/` is missing"),
            (target("shop/We").unwrap_err(), "found 'W'"),
            (target("shop/a/b").unwrap_err(), "found '/'"),
            (target("Shop").unwrap_err(), "found 'S'"),
            (deployment("shop/web").unwrap_err(), "a deployment alone: `shop`"),
            (named_target("shop").unwrap_err(), "dhow ps shop"),
            (scale_target("shop/web").unwrap_err(), "shop/web=3"),
            (scale_target("web=3").unwrap_err(), "shop/web=3"),
            (scale_target("shop/web=many").unwrap_err(), "`many` is no number"),
            (scale_target("shop/web=-1").unwrap_err(), "`-1` is no number"),
            (scale_target("shop/=1").unwrap_err(), "service name"),
        ];
        for (error, part) in cases {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }
}

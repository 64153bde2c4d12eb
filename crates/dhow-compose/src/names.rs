//! Names of compose as names of Dhow.

use std::collections::{BTreeMap, BTreeSet};

use dhow_core::ids::{DeploymentName, ServiceName};

use crate::item::Item;
use crate::report::Report;

/// The name of a project, as compose cleans it, with `-` for `_`.
pub(crate) fn project(name: &str) -> String {
    let clean: String = name
        .to_lowercase()
        .chars()
        .map(|c| if matches!(c, '_' | '.' | ' ') { '-' } else { c })
        .filter(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'))
        .collect();
    clean.trim_matches('-').to_owned()
}

/// The deployment's name, or what is wrong with it.
pub(crate) fn deployment(name: &str) -> Result<DeploymentName, String> {
    DeploymentName::new(name).map_err(|error| format!("`{name}` cannot be the name of a deployment: {error}"))
}

/// A name of compose as one of a service: small letters, `-` for `_` and `.`.
pub(crate) fn service(name: &str) -> String {
    let plain = name.to_lowercase().replace(['_', '.'], "-");
    plain.trim_end_matches('-').to_owned()
}

/// The services of a project, by the name that compose has for them.
pub(crate) fn services<'i>(
    services: impl Iterator<Item = (&'i str, &'i Item)>,
    report: &mut Report,
) -> BTreeMap<String, ServiceName> {
    let mut names: BTreeMap<String, ServiceName> = BTreeMap::new();
    let mut taken: BTreeSet<ServiceName> = BTreeSet::new();
    for (written, item) in services {
        let at = format!("services.{written}");
        match ServiceName::new(&service(written)) {
            Ok(name) => {
                if !taken.insert(name.clone()) {
                    let message = format!("`{written}` would be called `{name}`, as another service is");
                    report.refuse(item.place, &at, message, "rename one of the two");
                }
                names.insert(written.to_owned(), name);
            }
            Err(error) => {
                let message = format!("`{written}` cannot be the name of a service: {error}");
                let hint = "rename it; `container_name` keeps the old name as one more that it is reached by";
                report.refuse(item.place, &at, message, hint);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cleaned() {
        for (written, name) in [
            ("My_App", "my-app"),
            ("a.b c", "a-b-c"),
            ("_x_", "x"),
            ("9lives", "9lives"),
        ] {
            assert_eq!(project(written), name);
        }
        assert_eq!(service("Redis_master.1"), "redis-master-1");
        assert!(deployment("9lives").is_err() && deployment("ab").is_err() && deployment("abc").is_ok());
    }
}

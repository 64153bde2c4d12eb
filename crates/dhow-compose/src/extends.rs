//! `extends`: a service that begins as another one, of the same file or of another.

use std::path::{Path, PathBuf};

use crate::item::{Field, Item, Tree};
use crate::load::{Loader, Variables};
use crate::merge;

/// Follows `extends` of all services of a file.
pub(crate) fn resolve(loader: &mut Loader<'_, '_>, root: &mut Item, path: &Path, variables: &Variables) {
    let whole = root.clone();
    let Tree::Map(fields) = &mut root.value else {
        return;
    };
    let Some(services) = fields.iter_mut().find(|field| &*field.key == "services") else {
        return;
    };
    let Tree::Map(services) = &mut services.value.value else {
        return;
    };
    for field in services {
        let name = field.key.to_string();
        let mut open = vec![(path.to_owned(), name.clone())];
        if let Some(service) = whole_service(loader, &whole, path, &name, variables, &mut open) {
            field.value = service;
        }
    }
}

fn find<'i>(root: &'i Item, name: &str) -> Option<&'i Item> {
    let services = root.get("services")?;
    services
        .fields()?
        .iter()
        .find(|field| &*field.key == name)
        .map(|field| &field.value)
}

/// A service with everything that it extends below it.
fn whole_service(
    loader: &mut Loader<'_, '_>,
    root: &Item,
    path: &Path,
    name: &str,
    variables: &Variables,
    open: &mut Vec<(PathBuf, String)>,
) -> Option<Item> {
    let service = find(root, name)?;
    let Some(extends) = service.get("extends") else {
        return Some(service.clone());
    };
    let at = format!("services.{name}.extends");
    let target = match extends.text() {
        Some(text) => text.to_owned(),
        None => match extends.get("service").and_then(Item::text) {
            Some(text) => text.to_owned(),
            None => {
                let hint = "write `extends: { service: base }`, with `file` where it stands in another one";
                loader
                    .report
                    .refuse(extends.place, &at, "`extends` names no service", hint);
                return None;
            }
        },
    };
    let other = match extends.get("file").and_then(Item::text) {
        None => None,
        Some(file) => {
            let base = loader.report.base(extends.place).to_owned();
            let file = base.join(file);
            let folder = file.parent().unwrap_or(&base).to_owned();
            let is_same = file == path;
            match is_same {
                true => None,
                false => Some((loader.file(&file, &folder, variables)?, file)),
            }
        }
    };
    let (root, path) = match &other {
        Some((root, path)) => (root, path.as_path()),
        None => (root, path),
    };
    let key = (path.to_owned(), target.clone());
    if open.contains(&key) {
        loader.report.refuse(
            extends.place,
            &at,
            format!("`{name}` extends itself by this"),
            "remove it",
        );
        return None;
    }
    if find(root, &target).is_none() {
        let message = format!("there is no service `{target}` in {}", path.display());
        loader
            .report
            .refuse(extends.place, &at, message, "check the name and the file");
        return None;
    }
    open.push(key);
    let below = whole_service(loader, root, path, &target, variables, open);
    open.pop();
    let mut merged = merge::service(without_extends(below?), without_extends(service.clone()));
    merged.place = service.place;
    Some(merged)
}

fn without_extends(mut service: Item) -> Item {
    if let Tree::Map(fields) = &mut service.value {
        fields.retain(|field: &Field| &*field.key != "extends");
    }
    service
}

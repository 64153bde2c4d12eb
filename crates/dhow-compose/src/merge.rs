//! How files are put over each other, field by field, as compose does it.

use std::sync::Arc;

use dhow_wire::document::Tag;

use crate::item::{Field, Item, Tree};
use crate::pairs;

/// What becomes of two values at one place.
enum Rule {
    /// The later one.
    Replace,
    /// Key by key; a list of `KEY=value` is a map.
    Pairs,
    /// Key by key; a list of names is a map of names.
    Names,
    /// Entry by entry: those with the same key are one.
    Keyed(fn(&Item) -> Option<String>),
    /// Key by key, one list behind the other.
    Usual,
}

/// `services.NAME` is left out of the path.
fn rule(path: &[&str]) -> Rule {
    match path {
        ["command" | "entrypoint"] | ["healthcheck", "test"] => Rule::Replace,
        ["environment" | "labels" | "extra_hosts" | "sysctls" | "annotations"]
        | ["build", "args" | "labels" | "extra_hosts"]
        | ["deploy", "labels"] => Rule::Pairs,
        ["depends_on" | "networks"] => Rule::Names,
        ["volumes"] => Rule::Keyed(|item| pairs::mount_target(item)),
        ["devices"] => Rule::Keyed(|item| pairs::mount_target(item)),
        ["configs" | "secrets"] => Rule::Keyed(|item| {
            let target = item.get("target").or_else(|| item.get("source")).unwrap_or(item);
            target.text().map(str::to_owned)
        }),
        ["ports"] => Rule::Keyed(|item| Some(format!("{:?}", said(item)))),
        [_, ..] | [] => Rule::Usual,
    }
}

/// Everything that a value says, to know the same one again.
fn said(item: &Item) -> Vec<String> {
    match &item.value {
        Tree::Scalar(scalar) => vec![scalar.text.to_string()],
        Tree::List(items) => items.iter().flat_map(said).collect(),
        Tree::Map(fields) => {
            let mut all: Vec<String> = fields
                .iter()
                .map(|field| format!("{}={}", field.key, said(&field.value).join(",")))
                .collect();
            all.sort();
            all
        }
    }
}

/// One whole file over another.
pub(crate) fn files(base: Item, over: Item) -> Item {
    let per_name =
        |base: Item, over: Item, merge: fn(Item, Item) -> Item| map(base, over, &|_, a, b| merge(a, b));
    map(base, over, &|key, base, over| match key {
        "services" => per_name(base, over, service),
        _ => per_name(base, over, |a, b| usual(a, b, &[])),
    })
}

/// One service over another.
pub(crate) fn service(base: Item, over: Item) -> Item {
    usual(base, over, &[])
}

fn usual(base: Item, over: Item, path: &[&str]) -> Item {
    match (over.tag, over.is_nothing()) {
        (Tag::Override | Tag::Reset, _) => return over,
        (Tag::Plain, true) => return base,
        (Tag::Plain, false) => {}
    }
    let (base, over) = match rule(path) {
        Rule::Replace => return over,
        Rule::Pairs => (pairs::as_map(base), pairs::as_map(over)),
        Rule::Names => (pairs::named(base), pairs::named(over)),
        Rule::Keyed(key) => return keyed(base, over, key),
        Rule::Usual => (base, over),
    };
    match (&base.value, &over.value) {
        (Tree::Map(_), Tree::Map(_)) => map(base, over, &|key, base, over| {
            let mut inner = path.to_vec();
            inner.push(key);
            usual(base, over, &inner)
        }),
        (Tree::List(_), Tree::List(_)) => keyed(base, over, |item| Some(format!("{:?}", said(item)))),
        // One text is a list of one where the other is a list: `env_file`, `tmpfs`, `dns`.
        (Tree::Scalar(_), Tree::List(_)) => usual(Item::list_at(base.place, vec![base.clone()]), over, path),
        (Tree::List(_), Tree::Scalar(_)) => {
            let over = Item::list_at(over.place, vec![over.clone()]);
            usual(base, over, path)
        }
        (Tree::Scalar(_) | Tree::List(_) | Tree::Map(_), _) => over,
    }
}

fn map(base: Item, over: Item, merge: &dyn Fn(&str, Item, Item) -> Item) -> Item {
    let (Tree::Map(mut fields), Tree::Map(others)) = (base.value.clone(), over.value.clone()) else {
        return if over.is_nothing() { base } else { over };
    };
    for other in others {
        match fields.iter().position(|field| field.key == other.key) {
            Some(position) => {
                let old = fields[position].value.clone();
                fields[position] = Field {
                    key: Arc::clone(&other.key),
                    key_place: other.key_place,
                    value: merge(&other.key, old, other.value),
                };
            }
            None => fields.push(other),
        }
    }
    Item {
        place: over.place,
        tag: base.tag,
        value: Tree::Map(fields),
    }
}

/// One list behind the other; what has the key of an earlier entry takes its place.
fn keyed(base: Item, over: Item, key: fn(&Item) -> Option<String>) -> Item {
    let (Tree::List(mut items), Tree::List(others)) = (base.value.clone(), over.value.clone()) else {
        return over;
    };
    for other in others {
        let wanted = key(&other);
        let found = items
            .iter()
            .position(|item| wanted.is_some() && key(item) == wanted);
        match found {
            Some(position) => items[position] = other,
            None => items.push(other),
        }
    }
    Item {
        place: over.place,
        tag: base.tag,
        value: Tree::List(items),
    }
}

/// Takes away what is to be reset, once everything is merged.
pub(crate) fn without_resets(item: &mut Item) {
    match &mut item.value {
        Tree::Map(fields) => {
            fields.retain(|field| field.value.tag != Tag::Reset);
            fields
                .iter_mut()
                .for_each(|field| without_resets(&mut field.value));
        }
        Tree::List(items) => {
            items.retain(|item| item.tag != Tag::Reset);
            items.iter_mut().for_each(without_resets);
        }
        Tree::Scalar(_) => {}
    }
}

//! Short and long forms of the same thing.

use dhow_wire::document::{Scalar, ScalarStyle, Tag};

use crate::item::{Field, Item, Tree};
use crate::report::Location;

/// `[KEY=value, KEY]` as `{KEY: value, KEY: }`; a map stays one. Hosts are `name:address` too.
pub(crate) fn as_map(item: Item) -> Item {
    let Tree::List(items) = &item.value else {
        return item;
    };
    let mut fields: Vec<Field> = Vec::new();
    for entry in items {
        let Some(text) = entry.text() else { continue };
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => match text.split_once(':') {
                Some((key, value)) => (key, Some(value)),
                None => (text, None),
            },
        };
        let field = Field {
            key: key.trim().into(),
            key_place: entry.place,
            value: value.map_or_else(|| nothing(entry.place), |value| Item::text_at(entry.place, value)),
        };
        // Several addresses of a host are kept.
        fields.push(field);
    }
    Item {
        tag: item.tag,
        ..Item::map_at(item.place, fields)
    }
}

/// `[a, b]` as `{a: , b: }`.
pub(crate) fn named(item: Item) -> Item {
    let Tree::List(items) = &item.value else {
        return item;
    };
    let fields = items.iter().filter_map(|entry| {
        Some(Field {
            key: entry.text()?.into(),
            key_place: entry.place,
            value: nothing(entry.place),
        })
    });
    let fields = fields.collect();
    Item {
        tag: item.tag,
        ..Item::map_at(item.place, fields)
    }
}

fn nothing(place: Location) -> Item {
    Item {
        place,
        tag: Tag::Plain,
        value: Tree::Scalar(Scalar {
            text: "".into(),
            style: ScalarStyle::Plain,
        }),
    }
}

/// Where a mount appears, in its short or its long form.
pub(crate) fn mount_target(item: &Item) -> Option<String> {
    if let Some(target) = item.get("target") {
        return target.text().map(plain_path);
    }
    let text = item.text()?;
    let mut parts = text.split(':');
    let first = parts.next()?;
    Some(plain_path(parts.next().unwrap_or(first)))
}

fn plain_path(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

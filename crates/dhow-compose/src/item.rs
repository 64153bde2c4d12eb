//! The tree of one compose file or of several that were merged: each value knows its file and its place.

use std::sync::Arc;

use dhow_wire::document::{Kind, Node, Scalar, ScalarStyle, Span, Tag, Value};

use crate::report::Location;

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub place: Location,
    pub tag: Tag,
    pub value: Tree,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Scalar(Scalar),
    List(Vec<Item>),
    Map(Vec<Field>),
}

/// A key of a map and its value.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub key: Arc<str>,
    pub key_place: Location,
    pub value: Item,
}

impl Item {
    pub fn of(file: usize, node: &Node) -> Self {
        let place = |span: Span| Location { file, span };
        let value = match &node.value {
            Value::Scalar(scalar) => Tree::Scalar(scalar.clone()),
            Value::Sequence(items) => Tree::List(items.iter().map(|item| Self::of(file, item)).collect()),
            Value::Mapping(mapping) => {
                let fields = mapping.entries.iter().map(|entry| Field {
                    key: entry.key.clone(),
                    key_place: place(entry.key_span),
                    value: Self::of(file, &entry.value),
                });
                Tree::Map(fields.collect())
            }
        };
        Self {
            place: place(node.span),
            tag: node.tag,
            value,
        }
    }

    pub fn text_at(place: Location, text: &str) -> Self {
        Self {
            place,
            tag: Tag::Plain,
            value: Tree::Scalar(Scalar {
                text: text.into(),
                style: ScalarStyle::Quoted,
            }),
        }
    }

    pub fn map_at(place: Location, fields: Vec<Field>) -> Self {
        Self {
            place,
            tag: Tag::Plain,
            value: Tree::Map(fields),
        }
    }

    pub fn list_at(place: Location, items: Vec<Item>) -> Self {
        Self {
            place,
            tag: Tag::Plain,
            value: Tree::List(items),
        }
    }

    pub fn kind(&self) -> Kind {
        match &self.value {
            Tree::Scalar(scalar) => scalar.kind(),
            Tree::List(_) => Kind::List,
            Tree::Map(_) => Kind::Map,
        }
    }

    pub fn is_nothing(&self) -> bool {
        self.kind() == Kind::Nothing
    }

    /// The text of a value of one piece.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Tree::Scalar(scalar) if scalar.kind() != Kind::Nothing => Some(&scalar.text),
            Tree::Scalar(_) | Tree::List(_) | Tree::Map(_) => None,
        }
    }

    pub fn fields(&self) -> Option<&[Field]> {
        match &self.value {
            Tree::Map(fields) => Some(fields),
            Tree::Scalar(_) | Tree::List(_) => None,
        }
    }

    pub fn items(&self) -> Option<&[Item]> {
        match &self.value {
            Tree::List(items) => Some(items),
            Tree::Scalar(_) | Tree::Map(_) => None,
        }
    }

    /// A field's value, where it is there and says something.
    pub fn get(&self, key: &str) -> Option<&Item> {
        let field = self.fields()?.iter().find(|field| &*field.key == key)?;
        (!field.value.is_nothing()).then_some(&field.value)
    }

    /// A value of one piece, as people name it in messages.
    pub fn shown(&self) -> String {
        match self.kind() {
            Kind::Nothing => "nothing".into(),
            Kind::List => "a list".into(),
            Kind::Map => "a map".into(),
            Kind::Boolean | Kind::Integer | Kind::Float | Kind::Text => {
                let text: String = self.text().unwrap_or_default().chars().take(60).collect();
                format!("`{text}`")
            }
        }
    }

    /// Whether both say the same, wherever they stand.
    pub fn is_same(&self, other: &Item) -> bool {
        match (&self.value, &other.value) {
            (Tree::Scalar(a), Tree::Scalar(b)) => a.text == b.text,
            (Tree::List(a), Tree::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b))
            }
            (Tree::Map(a), Tree::Map(b)) => {
                let same = |field: &Field| {
                    let found = b.iter().find(|other| other.key == field.key);
                    found.is_some_and(|other| field.value.is_same(&other.value))
                };
                a.len() == b.len() && a.iter().all(same)
            }
            (Tree::Scalar(_) | Tree::List(_) | Tree::Map(_), _) => false,
        }
    }
}

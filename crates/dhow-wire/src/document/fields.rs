//! The fields of one map, taken one by one; what nobody took is unknown.

use std::borrow::Cow;

use dhow_core::spec::check::{PathPart, nearest, quoted};

use super::decoder::Decoder;
use super::node::{Entry, Kind, Mapping, Node, Value};
use super::span::Span;

/// A hint that lists the known fields has at most this many characters.
const LIST_MAX_CHARS: usize = 90;

/// Reads a map field by field. Every field is asked for by name exactly once, then [`Fields::close`] reports
/// what is left over.
pub struct Fields<'d, 'n> {
    decoder: &'d mut Decoder,
    mapping: &'n Mapping,
    span: Span,
    what: Cow<'static, str>,
    known: Vec<&'static str>,
    /// Names that other tools or other forms use, with what to write here.
    elsewhere: Vec<(&'static str, &'static str)>,
    /// Required fields that are not there, each with an example. They are reported at the end: a field with a
    /// slip in its name is there after all.
    missing: Vec<(&'static str, String)>,
    ignores_rest: bool,
}

impl<'d, 'n> Fields<'d, 'n> {
    /// `what` names the map in messages, such as `` `scale` `` or `a service`.
    pub fn open(
        decoder: &'d mut Decoder,
        node: &'n Node,
        what: impl Into<Cow<'static, str>>,
        example: &str,
    ) -> Option<Self> {
        let Value::Mapping(mapping) = &node.value else {
            let hint = match node.kind() {
                Kind::Nothing if decoder.path().parts().is_empty() => format!("write {example}"),
                Kind::Nothing => format!("write {example}, or remove the line"),
                Kind::Boolean | Kind::Integer | Kind::Float | Kind::Text | Kind::List | Kind::Map => {
                    format!("write {example}")
                }
            };
            return decoder.wrong_type(node, "a map", hint);
        };
        Some(Self {
            decoder,
            mapping,
            span: node.span,
            what: what.into(),
            known: Vec::new(),
            elsewhere: Vec::new(),
            missing: Vec::new(),
            ignores_rest: false,
        })
    }

    pub fn decoder(&mut self) -> &mut Decoder {
        self.decoder
    }

    pub fn span(&self) -> Span {
        self.span
    }

    /// Whether a field was written, whatever it holds.
    pub fn has(&self, name: &str) -> bool {
        self.mapping.get(name).is_some()
    }

    /// Renames the map in messages once more is known of it.
    pub fn call(&mut self, what: impl Into<Cow<'static, str>>) {
        self.what = what.into();
    }

    /// Hints for names that are not known here.
    pub fn elsewhere(&mut self, names: &[(&'static str, &'static str)]) {
        self.elsewhere.extend_from_slice(names);
    }

    /// What is left over is not reported: without knowing the kind of map nothing can be said about it.
    pub fn ignore_rest(&mut self) {
        self.ignores_rest = true;
    }

    /// A field that may be left out. Nothing where it is missing or wrong.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Decoder, &Node) -> Option<T>,
    ) -> Option<T> {
        self.optional_or_say(name, "give it one, or remove the line", read)
    }

    /// The same, with a hint of its own for a field that was written without a value.
    pub fn optional_or_say<T>(
        &mut self,
        name: &'static str,
        hint: &str,
        read: impl FnOnce(&mut Decoder, &Node) -> Option<T>,
    ) -> Option<T> {
        self.known.push(name);
        let Entry { value, .. } = self.mapping.get(name)?;
        self.decoder.within(PathPart::Key(name.into()), |decoder| {
            if value.kind() == Kind::Nothing {
                return decoder.fail(value.span, format!("`{name}` has no value"), hint);
            }
            read(decoder, value)
        })
    }

    /// A field with a default.
    pub fn or<T>(
        &mut self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&mut Decoder, &Node) -> Option<T>,
    ) -> T {
        self.optional(name, read).unwrap_or(default)
    }

    /// A field that must be there; the example shows what to add.
    pub fn required<T>(
        &mut self,
        name: &'static str,
        example: &str,
        read: impl FnOnce(&mut Decoder, &Node) -> Option<T>,
    ) -> Option<T> {
        if !self.has(name) {
            self.known.push(name);
            self.missing.push((name, example.into()));
            let path = self.decoder.path().key(name);
            self.decoder.mark_failed(path);
            return None;
        }
        self.optional_or_say(name, &format!("such as `{example}`"), read)
    }

    /// Reports the fields that nobody asked for, and those that were asked for in vain.
    pub fn close(mut self) {
        let unknown = self
            .mapping
            .entries
            .iter()
            .filter(|entry| !self.known.contains(&&*entry.key));
        let unknown: Vec<&Entry> = if self.ignores_rest {
            Vec::new()
        } else {
            unknown.collect()
        };
        for entry in unknown {
            if self.decoder.findings.is_full() {
                self.decoder.findings.count_only();
                continue;
            }
            let (hint, meant) = self.hint(&entry.key);
            let message = format!("{} is not a field of {}", quoted(&entry.key), self.what);
            let path = self.decoder.path().key(entry.key.to_string());
            let _: Option<()> = self.decoder.fail_at(path, entry.key_span, message, hint);
            for meant in meant {
                self.missing.retain(|(name, _)| *name != meant);
                let path = self.decoder.path().key(meant);
                self.decoder.mark_failed(path);
            }
        }
        for (name, example) in std::mem::take(&mut self.missing) {
            let message = format!("{} needs `{name}`", self.what);
            let path = self.decoder.path().key(name);
            let _: Option<()> = self
                .decoder
                .fail_at(path, self.span, message, format!("add `{example}`"));
        }
    }

    /// Known fields that were not written.
    fn unused(&self) -> impl Iterator<Item = &'static str> {
        self.known.iter().copied().filter(|name| !self.has(name))
    }

    /// What to do about an unknown field, and the known ones that were meant.
    fn hint(&self, key: &str) -> (String, Vec<&'static str>) {
        let exact = self.elsewhere.iter().find(|(name, _)| *name == key);
        if let Some((_, hint)) = exact {
            let meant = self.unused().filter(|name| hint.contains(&format!("`{name}")));
            return ((*hint).into(), meant.collect());
        }
        if let Some(meant) = nearest(key, self.unused()) {
            return (format!("did you mean `{meant}`?"), vec![meant]);
        }
        let mut list = String::new();
        for name in &self.known {
            let separator = if list.is_empty() { "" } else { ", " };
            if list.chars().count() + name.len() > LIST_MAX_CHARS {
                list.push_str(", …");
                break;
            }
            list = format!("{list}{separator}`{name}`");
        }
        match self.known.as_slice() {
            [] => ("it has no fields: remove this one".into(), Vec::new()),
            [_] => (format!("its one field is {list}"), Vec::new()),
            _ => (format!("its fields are {list}"), Vec::new()),
        }
    }
}

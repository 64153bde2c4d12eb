//! From the parser's events to the tree, without recursion and within the limits.

use std::collections::HashMap;
use std::sync::Arc;

use dhow_core::spec::check::quoted;
use serde_saphyr::granit_parser::{
    Event, Marker, Parser, ScalarStyle as Written, Span as Marked, StructureStyle, Tag as WrittenTag, options,
};

use super::finding::{Finding, Findings};
use super::limits::{DEPTH_MAX, INPUT_MAX_BYTES, NODES_MAX, TEXT_MAX_BYTES};
use super::node::{Entry, Mapping, Node, Scalar, ScalarStyle, Tag, Value};
use super::source::Source;
use super::span::Span;
use super::syntax;

/// A document that could be read: its tree, or nothing where the text is empty.
#[derive(Debug)]
pub struct Document {
    pub root: Option<Node>,
}

/// Reads a text. Findings are added; without a tree the text is no document at all.
pub fn parse(source: &Source, findings: &mut Findings) -> Option<Document> {
    read(source, findings, false)
}

/// The same for a text that is merged with others: `!reset` and `!override` have a meaning there.
pub fn parse_mergeable(source: &Source, findings: &mut Findings) -> Option<Document> {
    read(source, findings, true)
}

fn read(source: &Source, findings: &mut Findings, is_mergeable: bool) -> Option<Document> {
    let text = source.text();
    if text.len() > INPUT_MAX_BYTES {
        let message = format!("this file has more than {} MiB", INPUT_MAX_BYTES >> 20);
        let hint = "no file of this kind is so large: is it the right one?";
        findings.add(Finding::outside(source.name(), message).with_hint(hint));
        return None;
    }
    let options = options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
        // A key that is too long for its field is that field's finding, not a mistake of syntax.
        simple_key_max_lookahead: INPUT_MAX_BYTES,
    };
    let mut builder = Builder::new(source, findings);
    builder.is_mergeable = is_mergeable;
    for event in Parser::new_from_str_with_options(text, options) {
        let done = match event {
            Ok((event, span)) => builder.event(event, &span),
            Err(error) => {
                let finding =
                    syntax::finding(source, error.kind(), span_of(*error.marker(), *error.marker()));
                builder.findings.add(finding);
                Err(Stop)
            }
        };
        if done.is_err() {
            return None;
        }
    }
    if builder.is_broken {
        return None;
    }
    Some(Document {
        root: builder.root.filter(is_something),
    })
}

/// A lone `---` holds as little as an empty file.
fn is_something(root: &Node) -> bool {
    !matches!(&root.value, Value::Scalar(scalar) if scalar.is_absent())
}

/// The rest of the text is not worth reading; the finding says why.
struct Stop;

/// A list or a map that is not closed yet.
struct Frame {
    open: Open,
    tag: Tag,
    span: Span,
    is_block: bool,
    anchor: usize,
    /// How many levels it has below it so far.
    height: usize,
    /// Nodes and bytes before it, to know what is inside once it is closed.
    nodes_before: usize,
    bytes_before: usize,
}

enum Open {
    Sequence(Vec<Node>),
    Mapping(OpenMapping),
}

#[derive(Default)]
struct OpenMapping {
    mapping: Mapping,
    /// Where each key stands in the entries.
    seen: HashMap<Arc<str>, usize>,
    key: Option<Key>,
    merges: Vec<Node>,
}

/// A key whose value is still to come.
enum Key {
    Plain(Arc<str>, Span),
    Merge(Span),
    /// A key that was reported; its value is read and dropped.
    Refused,
}

/// A node that an alias can repeat, with its cost.
struct Anchored {
    node: Node,
    height: usize,
    nodes: usize,
    bytes: usize,
}

struct Builder<'a> {
    source: &'a Source,
    findings: &'a mut Findings,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Anchored>,
    root: Option<Node>,
    /// Where the present document starts.
    document: Option<Span>,
    nodes: usize,
    bytes: usize,
    /// Something is missing from the tree: it is not worth decoding.
    is_broken: bool,
    /// Whether tags of a merge are known, and the one of the value that is being read.
    is_mergeable: bool,
    tag: Tag,
}

impl<'a> Builder<'a> {
    fn new(source: &'a Source, findings: &'a mut Findings) -> Self {
        Self {
            source,
            findings,
            stack: Vec::new(),
            anchors: HashMap::new(),
            root: None,
            document: None,
            nodes: 0,
            bytes: 0,
            is_broken: false,
            is_mergeable: false,
            tag: Tag::Plain,
        }
    }

    fn event(&mut self, event: Event<'_>, marked: &Marked) -> Result<(), Stop> {
        let span = span_of(marked.start, marked.end);
        let own = event.tag().filter(|tag| !tag.is_yaml_core_schema());
        self.tag = match own.map(|tag| tag.original().to_string()).as_deref() {
            Some("!reset") if self.is_mergeable => Tag::Reset,
            Some("!override") if self.is_mergeable => Tag::Override,
            Some(_) | None => Tag::Plain,
        };
        if let Some(tag) = own.filter(|_| self.tag == Tag::Plain) {
            let token = marked.tag_span().map_or(span, |tag| span_of(tag.start, tag.end));
            let message = format!("the tag {} means nothing here", quoted(&tag.original()));
            self.report(
                token,
                message,
                "remove it; text that starts with `!` goes into quotes",
            );
        }
        if self.is_of_another_document(&event, span)? {
            return Ok(());
        }
        match event {
            Event::DocumentStart(..) => {
                self.document = Some(span);
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.scalar(&text, style, anchor, tag.as_deref(), span)
            }
            Event::SequenceStart(style, anchor, _) => {
                self.open(Open::Sequence(Vec::new()), style, anchor, span)
            }
            Event::MappingStart(style, anchor, _) => {
                self.open(Open::Mapping(OpenMapping::default()), style, anchor, span)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::UnresolvedAlias(name) => {
                let message = format!(
                    "there is no anchor {} before this place",
                    quoted(&format!("&{name}"))
                );
                self.report(
                    span,
                    message,
                    "an alias `*name` repeats what an earlier `&name` marks",
                );
                self.is_broken = true;
                self.scalar("", Written::Plain, 0, None, span)
            }
            // The ends of stream and document, comments and names of anchors carry no value.
            _ => Ok(()),
        }
    }

    fn report(&mut self, span: Span, message: impl Into<String>, hint: &str) {
        self.findings
            .add(Finding::at(self.source, span, message).with_hint(hint));
    }

    /// Whether this begins what stands in one more document: nothing at all is passed over, anything else refused.
    fn is_of_another_document(&mut self, event: &Event<'_>, span: Span) -> Result<bool, Stop> {
        let is_nothing = match event {
            Event::Scalar(_, style, _, _) => *style == Written::Plain && span.is_empty(),
            Event::SequenceStart(..)
            | Event::MappingStart(..)
            | Event::Alias(_)
            | Event::UnresolvedAlias(_) => false,
            // The rest begins no value.
            _ => return Ok(false),
        };
        let has_root = self.root.as_ref().is_some_and(is_something);
        if !self.stack.is_empty() || !has_root {
            return Ok(false);
        }
        if !is_nothing {
            self.report(
                self.document.unwrap_or(span),
                "a second document starts here, a file holds one",
                "put it into a file of its own, or remove the line `---`",
            );
            return Err(Stop);
        }
        Ok(true)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: Written,
        anchor: usize,
        tag: Option<&WrittenTag>,
        span: Span,
    ) -> Result<(), Stop> {
        let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
        let style = match style {
            Written::Plain if !is_text => ScalarStyle::Plain,
            Written::Plain
            | Written::SingleQuoted
            | Written::DoubleQuoted
            | Written::Literal
            | Written::Folded => ScalarStyle::Quoted,
        };
        // The parser writes `~` where nothing stands.
        let is_absent = style == ScalarStyle::Plain && span.is_empty();
        let text = if is_absent { "" } else { text };
        let scalar = Scalar {
            text: text.into(),
            style,
        };
        self.spend(1, text.len(), span)?;
        let node = Node {
            tag: self.tag,
            span,
            value: Value::Scalar(scalar),
        };
        self.keep(anchor, &node, 0, (1, text.len()))?;
        self.place(node, 0);
        Ok(())
    }

    fn open(&mut self, open: Open, style: StructureStyle, anchor: usize, span: Span) -> Result<(), Stop> {
        if self.stack.len() >= DEPTH_MAX {
            return Err(self.too_deep(span));
        }
        self.spend(1, 0, span)?;
        self.stack.push(Frame {
            open,
            tag: self.tag,
            span,
            is_block: style == StructureStyle::Block,
            anchor,
            height: 0,
            nodes_before: self.nodes - 1,
            bytes_before: self.bytes,
        });
        Ok(())
    }

    fn close(&mut self, end: Span) -> Result<(), Stop> {
        let Some(frame) = self.stack.pop() else {
            return Ok(());
        };
        let mut span = frame.span;
        // A block reaches over lines of other things: its first character stands for it.
        span.end = if frame.is_block {
            span.start + 1
        } else {
            end.end.max(span.start + 1)
        };
        let value = match frame.open {
            Open::Sequence(items) => Value::Sequence(items),
            Open::Mapping(open) => Value::Mapping(self.merged(open)),
        };
        let tag = frame.tag;
        let node = Node { tag, span, value };
        let cost = (self.nodes - frame.nodes_before, self.bytes - frame.bytes_before);
        self.keep(frame.anchor, &node, frame.height + 1, cost)?;
        let node = self.pointed(node, frame.is_block);
        self.place(node, frame.height + 1);
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Stop> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            self.report(
                span,
                "this alias repeats the very thing that it stands in",
                "remove it",
            );
            return Err(Stop);
        };
        let (nodes, bytes, height) = (anchored.nodes, anchored.bytes, anchored.height);
        if self.stack.len() + height > DEPTH_MAX {
            return Err(self.too_deep(span));
        }
        self.spend(nodes, bytes, span)?;
        let node = self.anchors[&anchor].node.clone();
        self.place(node, height);
        Ok(())
    }

    /// Keeps a copy of an anchored node for its aliases. The copy counts too: anchors may be nested.
    fn keep(&mut self, anchor: usize, node: &Node, height: usize, cost: (usize, usize)) -> Result<(), Stop> {
        if anchor != 0 {
            let (nodes, bytes) = cost;
            self.spend(nodes, bytes, node.span)?;
            let node = node.clone();
            self.anchors.insert(
                anchor,
                Anchored {
                    node,
                    height,
                    nodes,
                    bytes,
                },
            );
        }
        Ok(())
    }

    /// Counts against the limits before anything is made.
    fn spend(&mut self, nodes: usize, bytes: usize, span: Span) -> Result<(), Stop> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > NODES_MAX || self.bytes > TEXT_MAX_BYTES {
            self.report(
                span,
                format!("this file becomes too large here: more than {NODES_MAX} values once its aliases are followed"),
                "split it, or repeat less",
            );
            return Err(Stop);
        }
        Ok(())
    }

    fn too_deep(&mut self, span: Span) -> Stop {
        self.findings.add(syntax::too_deep(self.source, span));
        Stop
    }

    /// Lets a block or an empty value point at its key, which is where its author looks.
    fn pointed(&self, mut node: Node, is_block: bool) -> Node {
        let key = self.stack.last().and_then(|frame| match &frame.open {
            Open::Mapping(OpenMapping {
                key: Some(Key::Plain(_, span) | Key::Merge(span)),
                ..
            }) => Some(*span),
            Open::Mapping(_) | Open::Sequence(_) => None,
        });
        if let Some(span) = key
            && (is_block || node.span.is_empty())
        {
            node.span = span;
        }
        node
    }

    /// Puts a finished node where it belongs.
    fn place(&mut self, node: Node, height: usize) {
        let node = self.pointed(node, false);
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        frame.height = frame.height.max(height);
        match &mut frame.open {
            Open::Sequence(items) => items.push(node),
            Open::Mapping(open) => match open.key.take() {
                None => {
                    let key = self.key(node);
                    // The frame is still there: nothing was closed in between.
                    if let Some(Frame {
                        open: Open::Mapping(open),
                        ..
                    }) = self.stack.last_mut()
                    {
                        open.key = Some(key);
                    }
                }
                Some(Key::Plain(key, key_span)) => {
                    open.seen.insert(key.clone(), open.mapping.entries.len());
                    open.mapping.entries.push(Entry {
                        key,
                        key_span,
                        value: node,
                    });
                }
                Some(Key::Merge(_)) => open.merges.push(node),
                Some(Key::Refused) => {}
            },
        }
    }

    fn key(&mut self, node: Node) -> Key {
        let Value::Scalar(scalar) = node.value else {
            self.report(
                node.span,
                "a key is a word, not a list or a map",
                "write `key: value`",
            );
            return Key::Refused;
        };
        if &*scalar.text == "<<" && scalar.style == ScalarStyle::Plain {
            return Key::Merge(node.span);
        }
        let Some(Frame {
            open: Open::Mapping(open),
            ..
        }) = self.stack.last()
        else {
            return Key::Refused;
        };
        if let Some(first) = open
            .seen
            .get(&scalar.text)
            .map(|position| open.mapping.entries[*position].key_span)
        {
            let message = format!("{} is there twice", quoted(&scalar.text));
            let finding = Finding::at(self.source, node.span, message);
            self.findings.add(
                finding
                    .with_note(first, "first here")
                    .with_hint("keep one of the two"),
            );
            return Key::Refused;
        }
        Key::Plain(scalar.text, node.span)
    }

    /// Fills in what `<<` brings: everything that the map does not say itself; the first of several wins.
    fn merged(&mut self, mut open: OpenMapping) -> Mapping {
        for merge in std::mem::take(&mut open.merges) {
            let parts = match merge.value {
                Value::Sequence(items) => items,
                Value::Mapping(_) | Value::Scalar(_) => vec![merge],
            };
            for part in parts {
                let Value::Mapping(mapping) = part.value else {
                    self.report(
                        part.span,
                        "`<<` merges maps, this is none",
                        "write `<<: *name` with the alias of a map",
                    );
                    continue;
                };
                for entry in mapping.entries {
                    if !open.seen.contains_key(&entry.key) {
                        open.seen.insert(entry.key.clone(), open.mapping.entries.len());
                        open.mapping.entries.push(entry);
                    }
                }
            }
        }
        open.mapping
    }
}

fn span_of(start: Marker, end: Marker) -> Span {
    // A text from a string always has byte offsets.
    let start_byte = start.byte_offset().unwrap_or(0) as u32;
    let end_byte = end.byte_offset().map_or(start_byte, |end| end as u32);
    Span {
        line: start.line() as u32,
        column: start.col() as u32 + 1,
        start: start_byte,
        end: end_byte.max(start_byte),
    }
}

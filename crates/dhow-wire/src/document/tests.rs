//! The tree and its limits, and how findings are kept and shown.

use super::*;

fn tree(text: &str) -> (Option<Node>, Findings) {
    let source = Source::new("test.yaml", text);
    let mut findings = Findings::of(source.clone());
    let document = parse(&source, &mut findings);
    (document.and_then(|document| document.root), findings)
}

fn root(text: &str) -> Node {
    let (root, findings) = tree(text);
    assert!(findings.is_empty(), "{findings}");
    root.unwrap()
}

fn kinds(text: &str) -> Vec<Kind> {
    match root(text).value {
        Value::Sequence(items) => items.iter().map(Node::kind).collect(),
        Value::Scalar(_) | Value::Mapping(_) => panic!("no list"),
    }
}

/// The messages that a text gives.
fn messages(text: &str) -> Vec<String> {
    tree(text)
        .1
        .list()
        .iter()
        .map(|finding| finding.message.clone())
        .collect()
}

#[test]
fn quotes_make_text_of_anything() {
    let text = "[8080, \"8080\", '8080', true, \"true\", null, ~, \"\", yes, on, 1.5, 0x1F, .nan, -.inf, 1e3, !!str 5, inf]";
    use Kind::{Boolean, Float, Integer, Nothing, Text};
    assert_eq!(
        kinds(text),
        [
            Integer, Text, Text, Boolean, Text, Nothing, Nothing, Text, Text, Text, Float, Integer, Float,
            Float, Float, Text, Text
        ]
    );
}

#[test]
fn every_node_knows_its_place() {
    let text = "a:\n  - x: \"é\"\n    y: [1, 2]\n";
    let Value::Mapping(top) = root(text).value else {
        panic!()
    };
    let entry = top.get("a").unwrap();
    assert_eq!((entry.key_span.line, entry.key_span.column), (1, 1));
    // A block points at its key.
    assert_eq!(entry.value.span, entry.key_span);
    let Value::Sequence(items) = &entry.value.value else {
        panic!()
    };
    let Value::Mapping(item) = &items[0].value else {
        panic!()
    };
    let (x, y) = (item.get("x").unwrap(), item.get("y").unwrap());
    assert_eq!(&text[x.value.span.bytes()], "\"é\"");
    assert_eq!((x.value.span.line, x.value.span.column), (2, 8));
    assert_eq!(&text[y.value.span.bytes()], "[1, 2]");
    assert_eq!((y.value.span.line, y.value.span.column), (3, 8));
}

#[test]
fn a_byte_order_mark_moves_nothing() {
    let (root, _) = tree("\u{feff}a: b");
    assert_eq!(root.unwrap().span.column, 1);
}

#[test]
fn merges_fill_in_what_is_not_said() {
    let text = "base: &b { a: 1, b: 2 }\nmore: &m { b: 3, c: 4 }\nout: { <<: [*b, *m], a: 9 }\n";
    let Value::Mapping(top) = root(text).value else {
        panic!()
    };
    let Value::Mapping(out) = &top.get("out").unwrap().value.value else {
        panic!()
    };
    let value = |key: &str| match &out.get(key).unwrap().value.value {
        Value::Scalar(scalar) => scalar.text.to_string(),
        Value::Sequence(_) | Value::Mapping(_) => panic!(),
    };
    assert_eq!(
        (value("a"), value("b"), value("c")),
        ("9".into(), "2".into(), "4".into())
    );
    assert!(out.get("<<").is_none());
}

#[test]
fn what_is_too_much_is_refused() {
    let deep = "this is nested deeper than 64 levels";
    for opener in ["[", "{a: ", "- ", "? ", "[{a: "] {
        assert_eq!(messages(&opener.repeat(100_000)), [deep], "{opener}");
    }
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    assert!(messages(&nested(64)).is_empty());
    assert_eq!(messages(&nested(65)), [deep]);
    // Aliases bring their own depth.
    let stacked = format!("a: &a {}\nb: {}*a{}", nested(60), "[".repeat(10), "]".repeat(10));
    assert_eq!(messages(&stacked), [deep]);

    let too_large = |text: &str| {
        messages(text)
            .iter()
            .any(|message| message.starts_with("this file becomes too large"))
    };
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..20 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    assert!(too_large(&bomb));
    let text = format!(
        "a: &a {}\nb: [{}]",
        "x".repeat(1 << 20),
        vec!["*a"; 100].join(",")
    );
    assert!(too_large(&text));
    let anchors: String = (0..60).map(|level| format!("&a{level} [")).collect();
    assert!(too_large(&format!(
        "{anchors}{}{}",
        "1,".repeat(100_000),
        "]".repeat(60)
    )));

    assert_eq!(
        messages(&" ".repeat(limits::INPUT_MAX_BYTES + 1)),
        ["this file has more than 4 MiB"]
    );
}

#[test]
fn an_alias_of_itself_is_refused() {
    assert_eq!(
        messages("a: &a [*a]"),
        ["this alias repeats the very thing that it stands in"]
    );
}

#[test]
fn bytes_that_are_no_text_have_a_place() {
    let findings = text_of(b"a: b\nc: \xff\xfe", "x.yaml").unwrap_err();
    let finding = &findings.list()[0];
    assert_eq!((finding.line, finding.column), (Some(2), Some(4)));
    assert_eq!(finding.message, "the byte 0xff here is not UTF-8");
    let wide = text_of(&[0xff, 0xfe, b'a', 0], "x.yaml").unwrap_err();
    assert_eq!(wide.list()[0].message, "this file is UTF-16");
}

#[test]
fn findings_are_bounded_and_counted() {
    let (_, findings) = tree(&"k: 1\n".repeat(5_000));
    assert_eq!(findings.list().len(), limits::FINDINGS_MAX);
    assert_eq!(findings.count(), 4_999);
    let text = findings.render(Style::Plain);
    assert!(text.contains("… and 4949 more"), "{text}");
    assert!(text.ends_with("4999 problems in test.yaml\n"), "{text}");
    assert!(text.len() < 20_000);
}

#[test]
fn the_machine_form_has_six_keys() {
    let (_, findings) = tree("a: 1\na: 2\n");
    assert_eq!(
        serde_json::to_string(&findings).unwrap(),
        r#"[{"file":"test.yaml","line":2,"column":1,"path":"","message":"`a` is there twice","hint":"keep one of the two"}]"#
    );
}

#[test]
fn a_long_line_is_cut_around_its_mark() {
    let text = format!(
        "a: {{ b: \"{}\", b: 2, c: \"{}\" }}",
        "日本".repeat(100_000),
        "x".repeat(100_000)
    );
    let shown = tree(&text).1.render(Style::Plain);
    assert!(shown.len() < 2_000, "{} bytes", shown.len());
    let widest = shown
        .lines()
        .map(unicode_width::UnicodeWidthStr::width)
        .max()
        .unwrap();
    assert!(widest <= 120, "{widest} columns:\n{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let mark = lines.iter().position(|line| line.contains('^')).unwrap();
    let width_before = |line: &str, at: usize| unicode_width::UnicodeWidthStr::width(&line[..at]);
    let excerpt = lines[..mark]
        .iter()
        .rev()
        .find(|line| line.contains(", b: 2"))
        .unwrap();
    let key = excerpt.find(", b: 2").unwrap() + 2;
    assert_eq!(
        width_before(excerpt, key),
        width_before(lines[mark], lines[mark].find('^').unwrap())
    );
}

#[test]
fn colour_is_only_where_it_is_asked_for() {
    let (_, findings) = tree("a: 1\na: 2\n");
    assert!(!findings.render(Style::Plain).contains('\x1b'));
    let coloured = findings.render(Style::Colour);
    assert!(coloured.contains("\x1b[1;31merror:\x1b[0m"), "{coloured}");
    // Without the colours it is the same text.
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some(start) = rest.find('\x1b') {
        plain += &rest[..start];
        rest = &rest[start + rest[start..].find('m').unwrap() + 1..];
    }
    assert_eq!(plain + rest, findings.render(Style::Plain));
}

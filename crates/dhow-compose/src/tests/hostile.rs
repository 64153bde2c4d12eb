//! Whatever somebody writes, there is an answer, and what is carried out is written so that it says the same.

use proptest::prelude::*;

use super::world;
use crate::keys;

/// Values that compose files have somewhere, and some that they have nowhere.
fn value() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "1",
        "-1",
        "80:80",
        "8080-8082:80-82/udp",
        "true",
        "null",
        "\"\"",
        "db",
        "./data:/data",
        "v:/v:ro",
        "A=b",
        "5s",
        "64m",
        "{}",
        "[]",
        "{ a: b }",
        "[db]",
        "[[a]]",
        "$X",
        "\"${X:-y}\"",
        "\"$$S:x\"",
        "host",
        "always",
        "\"a 'b' c\"",
        "{ target: 80 }",
        "[127.0.0.1:1:1]",
        "!reset null",
        "!override [a]",
        "\"ü\\u2028: #\"",
        "[CMD, a]",
        "{ file: ./x }",
        "0",
        "999999999999",
    ]);
    word.prop_map(str::to_owned)
}

proptest! {
    #[test]
    fn any_service_has_an_answer(fields in prop::collection::vec((0..keys::all().count(), value()), 0..6)) {
        let mut text = "volumes: { v: }\nsecrets: { db: { environment: X } }\nservices:\n  db: { image: b:1 }\n  web:\n".to_owned();
        let mut seen = vec!["image"];
        text.push_str("    image: a:1\n");
        for (index, value) in fields {
            let Some(key) = keys::all().nth(index).filter(|key| !seen.contains(key)) else { continue };
            seen.push(key);
            text.push_str(&format!("    {key}: {value}\n"));
        }
        let mut world = world(&text);
        world.set("X", "$S:odd ${x} \"'\n#: ");
        if let Ok(converted) = world.convert() {
            let written = crate::write_file(&converted.deployment).unwrap();
            let read = dhow_wire::parse_deployment(&written, "x", &|_| None);
            prop_assert!(read.is_ok(), "{}\n{}", text, written);
            prop_assert_eq!(read.unwrap(), converted.deployment, "{}\n{}", text, written);
        }
    }

    #[test]
    fn any_text_has_an_answer(text in "(services|web|image|: |\\n|  |- |\\$\\{|\\}|\\{|\\[|\\]|[a-z]|\"|&a|\\*a|<<){0,40}") {
        let world = world(&format!("services:\n  web:\n    image: a:1\n    environment:\n      - {text}\n"));
        let _ = world.convert();
        let world = super::world(&text);
        let _ = world.convert();
    }

    #[test]
    fn any_value_is_written_so_that_it_reads_back(value in "\\PC{0,20}|[\\n\\t $:{}#\"'\\\\S-]{0,20}") {
        let mut world = world("services: { web: { image: a:1, environment: { A: $V }, command: [\"$V\"], labels: { k: \"$V\" } } }\n");
        world.set("V", &value);
        if world.convert().is_ok() {
            world.deployment();
        }
    }
}

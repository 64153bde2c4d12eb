//! A text as the words of a command, split as a shell would and without one: nothing is expanded.

/// The words, or what is wrong.
pub(crate) fn split(text: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is never closed"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                            Some('\n') => {}
                            Some(c) => word.extend(['\\', c]),
                            None => return Err("a double quote is never closed"),
                        },
                        Some(c) => word.push(c),
                        None => return Err("a double quote is never closed"),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("nothing follows the last `\\`"),
            },
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn words_are_split_without_a_shell() {
        for (text, words) in [
            (
                "redis-server --save 60 1",
                &["redis-server", "--save", "60", "1"][..],
            ),
            ("sh -c 'a && b $X'", &["sh", "-c", "a && b $X"]),
            ("a \"b \\\"c\\\" \\n\" d\\ e", &["a", "b \"c\" \\n", "d e"]),
            ("a ''  b", &["a", "", "b"]),
            ("a\n  b", &["a", "b"]),
            ("", &[]),
        ] {
            assert_eq!(split(text).unwrap(), words, "{text}");
        }
        for text in ["'a", "\"a", "a\\"] {
            split(text).unwrap_err();
        }
    }
}

//! Files of variables: a `NAME=value` on each line.
//!
//! Empty lines and lines that begin with `#` count for nothing, `export` before a name neither. A value in single quotes is
//! taken as it stands, one in double quotes knows `\\n`, `\\t`, `\\r`, `\\"`, `\\\\` and `\\$`; both may go over several lines.
//! A value without quotes ends with its line or before ` #`. A name without `=` is taken from the client's environment, and
//! left out where it is not set there. Nothing else is replaced in a value.

/// What is wrong with a file of variables.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EnvFileProblem {
    pub line: usize,
    pub message: String,
    pub hint: String,
}

pub(super) fn parse(
    bytes: &[u8],
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, EnvFileProblem> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(error) => {
            let before = &bytes[..error.valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            return Err(problem(
                line,
                "this is not text in UTF-8",
                "save the file as UTF-8",
            ));
        }
    };
    let mut values = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let entry = first.trim();
        if entry.is_empty() || entry.starts_with('#') {
            (rest, line) = (after, line + 1);
            continue;
        }
        let start = rest.trim_start();
        let start = start.strip_prefix("export ").unwrap_or(start);
        let length = start.find(|c: char| !c.is_ascii_alphanumeric() && !"_.-".contains(c));
        let (name, then) = start.split_at(length.unwrap_or(start.len()));
        if name.is_empty() {
            let hint = "write `NAME=value`, or `#` before a remark";
            return Err(problem(line, "this line names no variable", hint));
        }
        let then = then.trim_start_matches([' ', '\t']);
        let Some(value) = then.strip_prefix('=') else {
            if !then.is_empty() && !then.starts_with(['\n', '\r', '#']) {
                let message = format!("`{}` is not followed by `=`", short(name));
                return Err(problem(line, &message, "write `NAME=value`"));
            }
            values.extend(env(name).map(|value| (name.to_owned(), value)));
            (rest, line) = (after, line + 1);
            continue;
        };
        let (value, left, lines) = read_value(value.trim_start_matches([' ', '\t']), line)?;
        values.push((name.to_owned(), value));
        (rest, line) = (left, line + lines);
    }
    Ok(values)
}

/// A value, what follows its line, and how many lines it takes.
fn read_value(text: &str, line: usize) -> Result<(String, &str, usize), EnvFileProblem> {
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        let (value, after) = text.split_once('\n').unwrap_or((text, ""));
        let end = match value.starts_with('#') {
            true => Some(0),
            false => value.find(" #").or_else(|| value.find("\t#")),
        };
        let value = &value[..end.unwrap_or(value.len())];
        return Ok((value.trim().to_owned(), after, 1));
    };
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((position, c)) = chars.next() {
        match c {
            c if c == quote => {
                let (left, after) = text[position + 1..]
                    .split_once('\n')
                    .unwrap_or((&text[position + 1..], ""));
                let left = left.trim();
                if !left.is_empty() && !left.starts_with('#') {
                    let hint = "put the whole value into the quotes";
                    return Err(problem(line, "something follows the closing quote", hint));
                }
                let lines = text[..position].matches('\n').count() + 1;
                return Ok((value, after, lines));
            }
            '\\' if quote == '"' => match chars.next().map(|(_, c)| c) {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some('r') => value.push('\r'),
                Some(c @ ('"' | '\\' | '$')) => value.push(c),
                Some(c) => value.extend(['\\', c]),
                None => break,
            },
            c => value.push(c),
        }
    }
    Err(problem(
        line,
        "this value has no closing quote",
        "close it, or take the quotes away",
    ))
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

fn problem(line: usize, message: &str, hint: &str) -> EnvFileProblem {
    EnvFileProblem {
        line,
        message: message.to_owned(),
        hint: hint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, EnvFileProblem> {
        parse(text.as_bytes(), &|name| (name == "HERE").then(|| "mine".into()))
    }

    #[test]
    fn lines_are_names_and_values() {
        let text = "# a remark\n\nA=1\r\nexport B = two words # not this\nC='it $is # so'\nD=\"x\\ny \\$z\\q\"\nE=\nHERE\nGONE\n\
                    F=\"over\ntwo\" # lines\nG=a=b#c\nlast=$S:x";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "it $is # so"),
            ("D", "x\ny $z\\q"),
            ("E", ""),
            ("HERE", "mine"),
            ("F", "over\ntwo"),
            ("G", "a=b#c"),
            ("last", "$S:x"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, message) in [
            ("A=1\n=2", 2, "this line names no variable"),
            ("A=\"x\ny\nB=1", 1, "this value has no closing quote"),
            ("A='x' y", 1, "something follows the closing quote"),
            ("\n\nA B", 3, "`A` is not followed by `=`"),
        ] {
            let found = read(text).unwrap_err();
            assert_eq!((found.line, found.message.as_str()), (line, message), "{text}");
        }
        assert_eq!(parse(b"A=1\nB=\xff", &|_| None).unwrap_err().line, 2);
    }
}

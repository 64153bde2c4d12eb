//! Files of variables, as compose reads them: `.env` and `env_file`.
//!
//! Values without quotes and in double quotes have variables of their own, taken from the environment and from lines
//! before; in single quotes a value is as it stands. What was put in is not read again.

use std::collections::BTreeMap;

use crate::interpolate;

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub line: u32,
    pub message: String,
}

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    pub values: BTreeMap<String, String>,
    /// Names in values that nobody has set, with the line of the value: nothing stands in their place.
    pub unset: Vec<(String, u32)>,
}

/// How values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Usual,
    /// Everything behind `=` as it stands.
    Raw,
}

pub(crate) fn parse(text: &str, form: Form, env: &dyn Fn(&str) -> Option<String>) -> Result<Values, Problem> {
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    let mut unset = Vec::new();
    let (mut rest, mut line) = (text.strip_prefix('\u{feff}').unwrap_or(text), 1u32);
    while !rest.is_empty() {
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let entry = first.trim();
        if entry.is_empty() || entry.starts_with('#') {
            (rest, line) = (after, line + 1);
            continue;
        }
        let entry = entry.strip_prefix("export ").map_or(entry, str::trim_start);
        let Some((name, value)) = entry.split_once('=').or_else(|| entry.split_once(": ")) else {
            let name = entry.trim();
            check_name(name, line)?;
            values.extend(env(name).map(|value| (name.to_owned(), value)));
            (rest, line) = (after, line + 1);
            continue;
        };
        let name = name.trim();
        check_name(name, line)?;
        if form == Form::Raw {
            values.insert(name.to_owned(), value.to_owned());
            (rest, line) = (after, line + 1);
            continue;
        }
        // Where the value starts in the rest: a quoted one may go over several lines.
        let start = value.trim_start().as_ptr() as usize - rest.as_ptr() as usize;
        let read = read_value(&rest[start..], line)?;
        let filled = match read.has_variables {
            true => {
                let known = |name: &str| env(name).or_else(|| values.get(name).cloned());
                match interpolate::text(&read.text, &known) {
                    Ok(filled) => {
                        unset.extend(filled.unset.into_iter().map(|name| (name, line)));
                        filled.text
                    }
                    Err(_) => read.text,
                }
            }
            false => read.text,
        };
        values.insert(name.to_owned(), filled);
        let length = start + read.length;
        line += rest[..length].matches('\n').count() as u32;
        rest = &rest[length..];
    }
    Ok(Values { values, unset })
}

fn check_name(name: &str, line: u32) -> Result<(), Problem> {
    let fits = |c: char| c.is_alphanumeric() || "_.-[]".contains(c);
    match name.is_empty() || !name.chars().all(fits) {
        true => Err(Problem {
            line,
            message: "this line names no variable: write `NAME=value`".into(),
        }),
        false => Ok(()),
    }
}

struct Read {
    text: String,
    has_variables: bool,
    /// With the end of its line.
    length: usize,
}

fn read_value(rest: &str, line: u32) -> Result<Read, Problem> {
    let line_end = |from: usize| rest[from..].find('\n').map_or(rest.len(), |end| from + end + 1);
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        let end = line_end(0);
        let value = rest[..end].trim_end_matches(['\n', '\r']);
        let cut = match value.starts_with('#') {
            true => Some(0),
            false => value.find(" #").or_else(|| value.find("\t#")),
        };
        let text = value[..cut.unwrap_or(value.len())].trim().to_owned();
        return Ok(Read {
            has_variables: text.contains('$'),
            text,
            length: end,
        });
    };
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((position, c)) = chars.next() {
        match c {
            c if c == quote => {
                return Ok(Read {
                    has_variables: quote == '"' && text.contains('$'),
                    text,
                    length: line_end(position),
                });
            }
            '\\' if quote == '"' => match chars.next().map(|(_, c)| c) {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some('$') => text.push_str("$$"),
                Some(c @ ('"' | '\\')) => text.push(c),
                Some(c) => text.extend(['\\', c]),
                None => break,
            },
            '\\' if quote == '\'' => match chars.next().map(|(_, c)| c) {
                Some('\'') => text.push('\''),
                Some(c) => text.extend(['\\', c]),
                None => break,
            },
            c => text.push(c),
        }
    }
    Err(Problem {
        line,
        message: "this value has no closing quote".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, Problem> {
        let env = |name: &str| (name == "HERE").then(|| "mine".to_owned());
        parse(text, Form::Usual, &env).map(|found| found.values.into_iter().collect())
    }

    #[test]
    fn lines_are_names_and_values() {
        let text = "# x\nA=1\r\nexport B = two words # not\nC='as $it is'\nD=\"a ${A} ${HERE}\\n\"\nE=\nHERE\nGONE\nF=${A}/$$x\n\
                    G=\"over\ntwo\"\nH=a=b#c\nlast=\"${NONE:-d}\"";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "as $it is"),
            ("D", "a 1 mine\n"),
            ("E", ""),
            ("F", "1/$x"),
            ("G", "over\ntwo"),
            ("H", "a=b#c"),
            ("HERE", "mine"),
            ("last", "d"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        assert_eq!(read("A=1\n=2").unwrap_err().line, 2);
        assert_eq!(read("A=1\nB=\"x").unwrap_err().line, 2);
    }

    #[test]
    fn a_raw_value_is_as_it_stands() {
        let found = parse("A=\"$x\" # y", Form::Raw, &|_| None).unwrap();
        assert_eq!(found.values["A"], "\"$x\" # y");
        assert_eq!(found.unset, []);
    }

    #[test]
    fn names_that_nobody_has_set_are_told_with_their_line() {
        let text = "A=1\nPASSWORD=p$w\nB=${A}${GONE}\nC='$it'\nD=${E:-1}$$x\n";
        let found = parse(text, Form::Usual, &|_| None).unwrap();
        assert_eq!(found.values["PASSWORD"], "p");
        assert_eq!(found.unset, [("w".to_owned(), 2), ("GONE".to_owned(), 3)]);
    }
}

//! Changes to a file, written as the lines of a diff: ` ` stays, `-` goes, `+` comes.

/// The file with the change made, or what does not match.
pub(super) fn changed(file: &str, change: &[String]) -> Result<String, String> {
    let mut lines: Vec<&str> = file.lines().collect();
    for hunk in change.split(|line| line.trim() == "...") {
        let old: Vec<&str> = hunk.iter().filter_map(|line| kept(line, '-')).collect();
        let new: Vec<&str> = hunk.iter().filter_map(|line| kept(line, '+')).collect();
        let unmarked = hunk.iter().find(|line| !line.starts_with([' ', '-', '+']));
        if let Some(line) = unmarked {
            return Err(format!("`{line}` begins with none of ` `, `-` and `+`"));
        }
        let at = match old.is_empty() {
            true => Some(lines.len()),
            false => lines.windows(old.len()).position(|window| window == old),
        };
        let Some(at) = at else {
            return Err(format!("the file has no lines\n{}", old.join("\n")));
        };
        lines.splice(at..at + old.len(), new);
    }
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// The line without its mark, where it has this one or stays.
fn kept(line: &str, mark: char) -> Option<&str> {
    line.strip_prefix(' ').or_else(|| line.strip_prefix(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).into()).collect()
    }

    #[test]
    fn lines_are_replaced_where_they_stand() {
        let file = "a\nb\nc\nd\n";
        assert_eq!(changed(file, &change(&["-b", "+B"])).unwrap(), "a\nB\nc\nd\n");
        assert_eq!(changed(file, &change(&[" c", "+x"])).unwrap(), "a\nb\nc\nx\nd\n");
        assert_eq!(
            changed(file, &change(&["-a", "...", "-d", "+e"])).unwrap(),
            "b\nc\ne\n"
        );
        assert_eq!(changed(file, &change(&["+e"])).unwrap(), "a\nb\nc\nd\ne\n");
        assert!(changed(file, &change(&["-x"])).is_err());
        assert!(changed(file, &change(&["x"])).is_err());
    }
}

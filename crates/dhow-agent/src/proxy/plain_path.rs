//! The path of a request as somebody reads it who decodes it, and walks it as one walks folders. Pure.

/// The plain form of a path; `None` where it is plain already. What is sent to a replica is never changed: this is for
/// comparing.
pub fn plain(path: &str) -> Option<String> {
    let is_odd = path.contains(['%', ';', '\\']) || path.contains("//") || path.contains("/.");
    is_odd.then(|| walked(&decoded(path)))
}

/// Without empty parts, without dots, and without what some programs take for parameters of a part.
fn walked(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut is_folder = true;
    for part in path.split(['/', '\\']) {
        let part = part.split(';').next().unwrap_or_default();
        is_folder = matches!(part, "" | "." | "..");
        match part {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            part => kept.push(part),
        }
    }
    let mut walked = format!("/{}", kept.join("/"));
    if is_folder && !kept.is_empty() {
        walked.push('/');
    }
    walked
}

/// With the characters that stand in it by their numbers. What is no number stays as it is.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let number = after
            .first_chunk::<2>()
            .filter(|_| *first == b'%')
            .and_then(number);
        bytes.push(number.unwrap_or(*first));
        rest = match number {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn number(digits: &[u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? * 16 + low?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_other_words_is_the_same() {
        for same in [
            "//admin/x",
            "/./admin/x",
            "/shop/../admin/x",
            "/../admin/x",
            "/%61dmin/x",
            "/%61%64min%2Fx",
            "/shop/%2e%2E/admin/x",
            "/admin;a=b/x",
            "\\admin\\x",
            "/shop%5c..%5cadmin/x",
        ] {
            assert_eq!(plain(same).as_deref(), Some("/admin/x"), "{same}");
        }
        for (path, expected) in [
            ("/a//", "/a/"),
            ("/a/.", "/a/"),
            ("/..", "/"),
            ("/%", "/%"),
            ("/%zz%4", "/%zz%4"),
            ("/%ff/a", "/\u{fffd}/a"),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(plain(path).as_deref(), Some(expected), "{path}");
        }
        for plain_already in ["/", "/admin/x", "/a/", "*", "/a.b/c..d"] {
            assert_eq!(plain(plain_already), None, "{plain_already}");
        }
    }
}

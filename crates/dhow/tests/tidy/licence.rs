//! Expressions of licences, as crates write them: names joined by `OR`, `AND` and `WITH`, in brackets or not. An older
//! form has `/` for `OR`.

/// Whether what is allowed suffices. What cannot be read is not allowed.
pub fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader {
        words: &words,
        allowed,
    };
    let verdict = reader.any();
    reader.words.is_empty() && verdict == Some(true)
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Reader<'_> {
    fn next_if(&mut self, wanted: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == wanted => {
                self.words = rest;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Parts of which one suffices.
    fn any(&mut self) -> Option<bool> {
        let mut verdict = self.all()?;
        while self.next_if("OR") {
            verdict |= self.all()?;
        }
        Some(verdict)
    }

    /// Parts of which all are needed; they bind more closely.
    fn all(&mut self) -> Option<bool> {
        let mut verdict = self.one()?;
        while self.next_if("AND") {
            verdict &= self.one()?;
        }
        Some(verdict)
    }

    fn one(&mut self) -> Option<bool> {
        if self.next_if("(") {
            let inner = self.any()?;
            return self.next_if(")").then_some(inner);
        }
        let (name, rest) = self.words.split_first()?;
        if matches!(*name, "OR" | "AND" | "WITH" | ")") {
            return None;
        }
        self.words = rest;
        let mut licence = (*name).to_owned();
        if self.next_if("WITH") {
            let (exception, rest) = self.words.split_first()?;
            licence = format!("{licence} WITH {exception}");
            self.words = rest;
        }
        // An exception only ever allows more, and so does a later version, which nobody has to take.
        let plain = licence
            .split(" WITH ")
            .next()
            .unwrap_or_default()
            .trim_end_matches('+');
        Some(
            self.allowed
                .iter()
                .any(|known| known == &licence || known == plain),
        )
    }
}

#[test]
fn expressions_are_judged() {
    let allowed: Vec<String> = ["MIT", "Apache-2.0", "Unicode-3.0", "GPL-2.0 WITH Linux"]
        .map(str::to_owned)
        .to_vec();
    for good in [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0 OR MIT",
        "MIT/Apache-2.0",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "MIT AND Apache-2.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        "GPL-2.0 WITH Linux",
        "Apache-2.0+",
        "GPL-3.0 AND GPL-3.0 OR MIT",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "GPL-2.0",
        "MIT AND GPL-3.0",
        "MIT AND (GPL-3.0 OR AGPL-3.0)",
        "MIT OR",
        "(MIT",
        "MIT MIT",
        "OR",
        "MIT WITH",
    ] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

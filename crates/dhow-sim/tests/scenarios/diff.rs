//! The difference of two texts, line by line.

/// Lines of context around a change.
const CONTEXT: usize = 3;

#[derive(Clone, Copy)]
enum Line<'a> {
    Same(&'a str),
    Gone(&'a str),
    New(&'a str),
}

/// What `new` has otherwise than `old`, with the lines around it.
pub fn diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let lines = walk(&old, &new);
    let near = |at: usize| {
        let from = at.saturating_sub(CONTEXT);
        let to = (at + CONTEXT + 1).min(lines.len());
        lines[from..to].iter().any(|line| !matches!(line, Line::Same(_)))
    };
    let mut text = String::new();
    let mut skipped = false;
    for (at, line) in lines.iter().enumerate() {
        if !near(at) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            text.push_str("\n  ...");
        }
        let (mark, line) = match line {
            Line::Same(line) => (' ', line),
            Line::Gone(line) => ('-', line),
            Line::New(line) => ('+', line),
        };
        text.push_str(&format!("\n{mark} {line}"));
    }
    text
}

/// A longest common subsequence, told in order.
fn walk<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let mut best = vec![vec![0usize; new.len() + 1]; old.len() + 1];
    for a in (0..old.len()).rev() {
        for b in (0..new.len()).rev() {
            best[a][b] = match old[a] == new[b] {
                true => best[a + 1][b + 1] + 1,
                false => best[a + 1][b].max(best[a][b + 1]),
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut lines = Vec::new();
    while a < old.len() || b < new.len() {
        if a < old.len() && b < new.len() && old[a] == new[b] {
            lines.push(Line::Same(old[a]));
            (a, b) = (a + 1, b + 1);
        } else if b == new.len() || (a < old.len() && best[a + 1][b] >= best[a][b + 1]) {
            lines.push(Line::Gone(old[a]));
            a += 1;
        } else {
            lines.push(Line::New(new[b]));
            b += 1;
        }
    }
    lines
}

#[test]
fn changes_are_shown_with_what_is_around_them() {
    let old = "a\nb\nc\nd\ne\nf\ng\nh\n";
    let new = "a\nb\nc\nd\ne\nf\nG\nh\n";
    assert_eq!(diff(old, new), "\n  ...\n  d\n  e\n  f\n- g\n+ G\n  h");
}

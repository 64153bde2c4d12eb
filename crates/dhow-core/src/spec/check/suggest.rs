//! "Did you mean": the nearest known word, where one is near enough to be what was meant.

/// Longer words are not compared: nothing that we know is that long, and comparing costs the product of both
/// lengths.
const WORD_MAX_CHARS: usize = 64;

/// The candidate that was most likely meant, or none when nothing is close. Upper and lower case, `-` and `_`
/// count as the same letter, a pair of swapped letters as one slip.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.chars().nth(WORD_MAX_CHARS).is_some() {
        return None;
    }
    let letters = folded(word);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let other = folded(candidate);
        // In a word of two letters only a swap leaves anything to recognise.
        let is_swap = matches!((&letters[..], &other[..]), ([a, b], [c, d]) if a == d && b == c);
        let allowed = if is_swap {
            1
        } else {
            slips_allowed(letters.len().max(other.len()))
        };
        if other.len() > WORD_MAX_CHARS || letters.len().abs_diff(other.len()) > allowed {
            continue;
        }
        let slips = distance(&letters, &other);
        if slips <= allowed && best.is_none_or(|(least, _)| slips < least) {
            best = Some((slips, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// The hint for a word that is not among the candidates.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

fn folded(word: &str) -> Vec<char> {
    word.chars()
        .map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() })
        .collect()
}

/// One slip in a short word, three in a long one: more would guess at random.
fn slips_allowed(chars: usize) -> usize {
    match chars {
        0..=2 => 0,
        3..=5 => 1,
        6..=9 => 2,
        _ => 3,
    }
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        let count = |a: &str, b: &str| distance(&folded(a), &folded(b));
        assert_eq!(count("replicas", "replicas"), 0);
        assert_eq!(count("replics", "replicas"), 1);
        assert_eq!(count("relpicas", "replicas"), 1);
        assert_eq!(count("Read-Only", "read_only"), 0);
        assert_eq!(count("", "abc"), 3);
    }

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["replicas", "mode", "min", "max", "image"];
        assert_eq!(nearest("replcias", known), Some("replicas"));
        assert_eq!(nearest("Replicas", known), Some("replicas"));
        assert_eq!(nearest("moed", known), Some("mode"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest("bd", ["db", "cd"]), Some("db"));
        assert_eq!(nearest("ab", ["cd", "ac"]), None);
        assert_eq!(nearest(&"r".repeat(1_000_000), known), None);
        assert_eq!(did_you_mean("imgae", known).unwrap(), "did you mean `image`?");
    }
}

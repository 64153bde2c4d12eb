//! Rust source as tokens with lines: comments and the insides of strings cannot be mistaken for code.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use std::iter::Peekable;

/// One token of a flattened file. A literal is `<literal>`, so that no pattern matches inside a string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A function with a body: its name and the lines from `fn` to the closing brace.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub first_line: usize,
    pub last_line: usize,
}

impl Function {
    pub fn line_count(&self) -> usize {
        self.last_line - self.first_line + 1
    }
}

/// Reads a file; the error is the line where the lexer gave up.
pub fn lex(text: &str) -> Result<TokenStream, usize> {
    text.parse::<TokenStream>()
        .map_err(|error| error.span().start().line)
}

/// All tokens in reading order, `::` joined into one, followed by every path that a `use` names, in full:
/// `use a::{b, c::d}` also gives `a :: b` and `a :: c :: d`, so that a group hides nothing.
pub fn flatten(stream: &TokenStream) -> Vec<Token> {
    let mut tokens = Vec::new();
    flatten_into(stream, &mut tokens);
    for path in use_paths(stream) {
        tokens.extend(path);
        tokens.push(Token {
            text: ";".to_owned(),
            line: 0,
        });
    }
    tokens
}

fn flatten_into(stream: &TokenStream, tokens: &mut Vec<Token>) {
    let mut trees = stream.clone().into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = delimiters(&group);
                let last_line = group.span_close().start().line;
                tokens.push(Token {
                    text: open.to_owned(),
                    line,
                });
                flatten_into(&group.stream(), tokens);
                tokens.push(Token {
                    text: close.to_owned(),
                    line: last_line,
                });
            }
            TokenTree::Ident(ident) => tokens.push(Token {
                text: ident.to_string(),
                line,
            }),
            TokenTree::Literal(_) => tokens.push(Token {
                text: "<literal>".to_owned(),
                line,
            }),
            TokenTree::Punct(punct) => {
                let is_path = punct.as_char() == ':'
                    && punct.spacing() == Spacing::Joint
                    && trees.next_if(|next| is_punct(next, ':')).is_some();
                let text = if is_path {
                    "::".to_owned()
                } else {
                    punct.as_char().to_string()
                };
                tokens.push(Token { text, line });
            }
        }
    }
}

fn delimiters(group: &Group) -> (&'static str, &'static str) {
    match group.delimiter() {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

pub fn is_punct(tree: &TokenTree, wanted: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

pub fn is_ident(tree: &TokenTree, wanted: &str) -> bool {
    matches!(tree, TokenTree::Ident(ident) if ident == wanted)
}

/// Every function with a body, those inside macros and other functions included.
pub fn functions(stream: &TokenStream) -> Vec<Function> {
    let mut found = Vec::new();
    functions_into(stream, &mut found);
    found
}

fn functions_into(stream: &TokenStream, found: &mut Vec<Function>) {
    let mut open: Option<(String, usize)> = None;
    let mut after_fn: Option<usize> = None;
    for tree in stream.clone() {
        if let (Some(first_line), TokenTree::Ident(name)) = (after_fn.take(), &tree) {
            open = Some((name.to_string(), first_line));
        } else if is_ident(&tree, "fn") {
            after_fn = Some(tree.span().start().line);
        } else if is_punct(&tree, ';') {
            open = None;
        }
        let TokenTree::Group(group) = &tree else { continue };
        if group.delimiter() == Delimiter::Brace
            && let Some((name, first_line)) = open.take()
        {
            let last_line = group.span_close().start().line;
            found.push(Function {
                name,
                first_line,
                last_line,
            });
        }
        functions_into(&group.stream(), found);
    }
}

/// The full path of every leaf of every `use`, as tokens with the leaf's line.
fn use_paths(stream: &TokenStream) -> Vec<Vec<Token>> {
    let mut paths = Vec::new();
    let mut trees = stream.clone().into_iter().peekable();
    while let Some(tree) = trees.next() {
        if is_ident(&tree, "use") {
            let mut body = Vec::new();
            while let Some(part) = trees.next_if(|next| !is_punct(next, ';')) {
                body.push(part);
            }
            use_tree(body.into_iter().peekable(), &mut Vec::new(), &mut paths);
        } else if let TokenTree::Group(group) = tree {
            paths.extend(use_paths(&group.stream()));
        }
    }
    paths
}

/// Walks one comma-separated level of a use tree below `prefix`.
fn use_tree<I>(mut trees: Peekable<I>, prefix: &mut Vec<Token>, paths: &mut Vec<Vec<Token>>)
where
    I: Iterator<Item = TokenTree>,
{
    let base = prefix.len();
    let mut renaming = false;
    let mut grouped = false;
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(ident) if ident == "as" => renaming = true,
            TokenTree::Ident(ident) if !renaming => prefix.push(Token {
                text: ident.to_string(),
                line,
            }),
            TokenTree::Group(group) => {
                grouped = true;
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                use_tree(inner.into_iter().peekable(), prefix, paths);
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                if trees.next_if(|next| is_punct(next, ':')).is_some() {
                    prefix.push(Token {
                        text: "::".to_owned(),
                        line,
                    });
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => {
                end_of_path(prefix, base, grouped, paths);
                (renaming, grouped) = (false, false);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    end_of_path(prefix, base, grouped, paths);
}

fn end_of_path(prefix: &mut Vec<Token>, base: usize, grouped: bool, paths: &mut Vec<Vec<Token>>) {
    if !grouped && prefix.len() > base {
        paths.push(prefix.clone());
    }
    prefix.truncate(base);
}

/// Where a pattern, written as tokens with spaces between, stands in the tokens: the index of its last token
/// each time, which in a `use` over several lines is the line that names the thing.
pub fn find(tokens: &[Token], pattern: &str) -> Vec<usize> {
    let wanted: Vec<&str> = pattern.split_whitespace().collect();
    let windows = tokens.windows(wanted.len()).enumerate();
    // The first token alone rules out nearly every place.
    let candidates = windows.filter(|(_, window)| window[0].text == wanted[0]);
    let matching = candidates.filter(|(_, window)| window.iter().map(|token| &token.text).eq(&wanted));
    matching.map(|(start, _)| start + wanted.len() - 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(text: &str, pattern: &str) -> Vec<usize> {
        let tokens = flatten(&lex(text).expect("the example is Rust"));
        let mut lines: Vec<usize> = find(&tokens, pattern)
            .into_iter()
            .map(|at| tokens[at].line)
            .collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        let text = "// std::fs\n/* std::fs */\n/// std::fs\nfn f() { g(\"std::fs\", r#\"std::fs\"#) }\n";
        assert_eq!(lines_of(text, "std :: fs"), Vec::<usize>::new());
    }

    #[test]
    fn a_group_in_a_use_hides_nothing() {
        let text = "use std::{\n    fmt,\n    io::{self, Read as R},\n    fs,\n};\n";
        assert_eq!(lines_of(text, "std :: fs"), [4]);
        assert_eq!(lines_of(text, "std :: io :: Read"), [3]);
        assert_eq!(lines_of(text, "std :: Read"), Vec::<usize>::new());
        assert_eq!(lines_of("mod m { use a::{b::{c, d}, e}; }", "a :: b :: d"), [1]);
        assert_eq!(lines_of("use a::{b::{c, d}, e};", "a :: e"), [1]);
    }

    #[test]
    fn functions_are_found_wherever_they_stand() {
        let text = "trait T { fn a(); fn b() {\n} }\nm! { fn c(x in 0..9) -> R<[u8; 2]> {\n fn d() {} \n} }\n\
                    type F = fn(u8) -> u8;\nstruct S {}\n";
        let found: Vec<(String, usize)> = functions(&lex(text).expect("the example is Rust"))
            .into_iter()
            .map(|function| (function.name.clone(), function.line_count()))
            .collect();
        let expected = [("b", 2), ("c", 3), ("d", 1)].map(|(name, lines)| (name.to_owned(), lines));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_file_that_is_not_rust_gives_the_line() {
        assert_eq!(lex("fn a() {}\nfn b() {\n").map(|_| ()), Err(2));
    }
}

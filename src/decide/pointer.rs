//! Paths into an object: JSON pointers, with names for what a list merges by.
//!
//! Members are written as RFC 6901 says (`~` is `~0`, `/` is `~1`). An element of a list that merges by a key is
//! `[name=app]` or `[port=80,protocol=TCP]`, and the order of such a list `[order]`; so a member's name that begins with
//! `[` begins with `~2` instead, and a `,` in an element's key is `~3`. Different places never share a path.

use std::fmt::Write as _;

use super::json::{Kind, Value};

/// Stands at the end of a path for the order of a list's elements.
pub const ORDER: &str = "[order]";

/// Appends a member of an object.
pub fn push_member(path: &mut String, name: &str) {
    path.push('/');
    let rest = match name.strip_prefix('[') {
        Some(rest) => {
            path.push_str("~2");
            rest
        }
        None => name,
    };
    push_escaped(path, rest);
}

/// Appends an element of a list by its position.
pub fn push_index(path: &mut String, index: usize) {
    // Writing to a String does not fail.
    let _ = write!(path, "/{index}");
}

/// Appends an element of a list by its key, as [`element_key`] makes it.
pub fn push_element(path: &mut String, key: &str) {
    path.push('/');
    path.push_str(key);
}

/// `[name=app]`: the element's values of these members. Absent unless each is there and a string or a number.
pub fn element_key(element: Value<'_>, members: &[&str]) -> Option<String> {
    let mut key = String::from("[");
    for (position, member) in members.iter().enumerate() {
        if position > 0 {
            key.push(',');
        }
        key.push_str(member);
        key.push('=');
        match element.get(member)?.kind() {
            Kind::String(text) | Kind::Number(text) => push_key_value(&mut key, text),
            _ => return None,
        }
    }
    key.push(']');
    Some(key)
}

/// Appends one value inside an element's key, so that neither `/` nor `,` can be mistaken.
pub(crate) fn push_key_value(key: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '~' => key.push_str("~0"),
            '/' => key.push_str("~1"),
            ',' => key.push_str("~3"),
            other => key.push(other),
        }
    }
}

/// Follows a path; of duplicate members or elements it finds the first. Absent where nothing is there.
///
/// A token that begins with `[` is a member's name in an object, and a key or position in a list, so plain JSON pointers
/// and the paths of a diff both work.
pub fn resolve<'d>(root: Value<'d>, path: &str) -> Option<Value<'d>> {
    if path.is_empty() {
        return Some(root);
    }
    let mut at = root;
    for token in path.strip_prefix('/')?.split('/') {
        at = if at.is_array() {
            match token
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                Some(key) => element(at, key)?,
                None => item(at, token)?,
            }
        } else if token.contains('~') {
            at.get(&unescape(token))?
        } else {
            at.get(token)?
        };
    }
    Some(at)
}

/// Whether the path is a JSON pointer: empty, or begins with `/`, and every `~` begins a known escape.
pub fn is_valid(path: &str) -> bool {
    let bytes = path.as_bytes();
    (path.is_empty() || path.starts_with('/'))
        && bytes
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte != b'~' || matches!(bytes.get(at + 1), Some(b'0'..=b'3')))
}

/// Whether `path` is `prefix` or lies below it.
pub fn is_at_or_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether two paths name one place, or one lies below the other.
pub fn overlap(a: &str, b: &str) -> bool {
    is_at_or_below(a, b) || is_at_or_below(b, a)
}

fn push_escaped(path: &mut String, text: &str) {
    if !text.contains(['~', '/']) {
        path.push_str(text);
        return;
    }
    for character in text.chars() {
        match character {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            other => path.push(other),
        }
    }
}

fn unescape(token: &str) -> String {
    let mut text = String::with_capacity(token.len());
    let mut characters = token.chars();
    while let Some(character) = characters.next() {
        if character != '~' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('0') => text.push('~'),
            Some('1') => text.push('/'),
            Some('2') => text.push('['),
            Some('3') => text.push(','),
            Some(other) => text.extend(['~', other]),
            None => text.push('~'),
        }
    }
    text
}

fn item<'d>(list: Value<'d>, token: &str) -> Option<Value<'d>> {
    let canonical =
        token == "0" || !token.starts_with('0') && token.bytes().all(|byte| byte.is_ascii_digit());
    if !canonical {
        return None;
    }
    list.items().nth(token.parse().ok()?)
}

/// The element whose members have these values, compared as text.
fn element<'d>(list: Value<'d>, key: &str) -> Option<Value<'d>> {
    let wanted: Vec<(&str, String)> = key
        .split(',')
        .map(|part| {
            part.split_once('=')
                .map(|(member, value)| (member, unescape(value)))
        })
        .collect::<Option<_>>()?;
    list.items().find(|element| {
        wanted.iter().all(
            |(member, value)| match element.get(member).map(Value::kind) {
                Some(Kind::String(text) | Kind::Number(text)) => text == value,
                _ => false,
            },
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::super::json::read;
    use super::*;

    fn member(name: &str) -> String {
        let mut path = String::new();
        push_member(&mut path, name);
        path
    }

    #[test]
    fn a_member_is_escaped_so_that_it_is_found_again() {
        for name in [
            "",
            "a",
            "a/b",
            "~1",
            "[name=app]",
            "[order]",
            "a[0]",
            "~2[",
            "x,y",
            "é/~",
        ] {
            let mut text = String::from("{\"other\":0,");
            text.push_str(&serde_json::to_string(name).unwrap());
            text.push_str(":1}");
            let document = read(&text).unwrap();
            assert_eq!(
                document.root().at(&member(name)).and_then(Value::as_i64),
                Some(1),
                "{name}"
            );
        }
    }

    #[test]
    fn a_member_that_looks_like_an_element_has_another_path() {
        assert_eq!(member("[name=app]"), "/~2name=app]");
        assert_eq!(member("~2name=app]"), "/~02name=app]");
    }

    #[test]
    fn elements_are_found_by_key_and_by_position() {
        let document = read(r#"{"c":[{"name":"a","v":1},{"name":"b/,~","v":2}],"p":[{"port":80,"protocol":"TCP","v":3}]}"#).unwrap();
        let root = document.root();
        assert_eq!(root.at("/c/[name=a]/v").and_then(Value::as_i64), Some(1));
        assert_eq!(root.at("/c/1/v").and_then(Value::as_i64), Some(2));
        let second = root.at("/c/1").unwrap();
        let key = element_key(second, &["name"]).unwrap();
        assert_eq!(key, "[name=b~1~3~0]");
        assert_eq!(
            root.at(&format!("/c/{key}/v")).and_then(Value::as_i64),
            Some(2)
        );
        assert_eq!(
            root.at("/p/[port=80,protocol=TCP]/v")
                .and_then(Value::as_i64),
            Some(3)
        );
        for absent in [
            "/c/[name=z]",
            "/c/2",
            "/c/01",
            "/c/-1",
            "/c/+1",
            "/c/[order]",
            "/c/[name]",
            "c",
            "/q",
            "/c/0/v/x",
        ] {
            assert!(root.at(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn a_prefix_ends_at_a_token() {
        assert!(is_at_or_below(
            "/metadata/finalizers",
            "/metadata/finalizers"
        ));
        assert!(is_at_or_below(
            "/metadata/finalizers/0",
            "/metadata/finalizers"
        ));
        assert!(!is_at_or_below(
            "/metadata/finalizersX",
            "/metadata/finalizers"
        ));
    }

    #[test]
    fn only_pointers_are_valid() {
        assert!(is_valid("") && is_valid("/a/b~1c"));
        assert!(!is_valid("a") && !is_valid("/a~") && !is_valid("/a~9"));
    }
}

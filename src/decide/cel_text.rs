//! String literals of CEL: writing any text as one, and finding those of an expression that this module wrote.

use std::fmt::Write;

/// Text as a CEL string literal in single quotes, ASCII only.
pub fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for character in text.chars() {
        match character {
            '\\' => literal.push_str("\\\\"),
            '\'' => literal.push_str("\\'"),
            ' '..='~' => literal.push(character),
            // Writing to a String does not fail.
            other if u32::from(other) <= 0xffff => {
                let _ = write!(literal, "\\u{:04x}", u32::from(other));
            }
            other => {
                let _ = write!(literal, "\\U{:08x}", u32::from(other));
            }
        }
    }
    literal.push('\'');
    literal
}

/// Every literal of an expression, each with the code before it. For members of a list the code ends where the list begins, so that
/// each member is told by what the list stands in. A literal that does not end is left out.
pub fn literals(expression: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut code = String::new();
    let mut characters = expression.chars();
    while let Some(character) = characters.next() {
        if character != '\'' {
            code.push(character);
            continue;
        }
        let Some(literal) = rest_of_literal(&mut characters) else {
            break;
        };
        if let Some(list) = code.strip_suffix(", ") {
            code.truncate(list.len());
        }
        found.push((code.clone(), literal));
        // What follows a member of a list is told by the same code.
        if !code.ends_with('[') {
            code.clear();
        }
    }
    found
}

fn rest_of_literal(characters: &mut std::str::Chars<'_>) -> Option<String> {
    let mut literal = String::new();
    loop {
        match characters.next()? {
            '\'' => return Some(literal),
            '\\' => match characters.next()? {
                'u' => literal.push(code_point(characters, 4)?),
                'U' => literal.push(code_point(characters, 8)?),
                escaped => literal.push(escaped),
            },
            plain => literal.push(plain),
        }
    }
}

fn code_point(characters: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    let mut value = 0_u32;
    for _ in 0..digits {
        value = value
            .checked_mul(16)?
            .checked_add(characters.next()?.to_digit(16)?)?;
    }
    char::from_u32(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_so_that_it_ends_where_it_should() {
        assert_eq!(quoted("ops-bot"), "'ops-bot'");
        assert_eq!(
            quoted("a'] || true || 'x' in ['"),
            r"'a\'] || true || \'x\' in [\''"
        );
        assert_eq!(quoted("\\'"), r"'\\\''");
        assert_eq!(
            quoted("a\nb\u{0}é\u{1F600}"),
            r"'a\u000ab\u0000\u00e9\U0001f600'"
        );
    }

    #[test]
    fn members_of_a_list_are_found_with_the_code_before_it() {
        let found = literals(r"x in ['a', 'b\'', 'u\u0041'] || y == 'c' && z in ['d']");
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(before, literal)| (before.as_str(), literal.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("x in [", "a"),
                ("x in [", "b'"),
                ("x in [", "uA"),
                ("x in [] || y == ", "c"),
                (" && z in [", "d"),
            ]
        );
    }
}

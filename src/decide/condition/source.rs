//! What a condition may look like: checked in its bytes, before the parser, which recurses, sees them.

use super::ConditionProblem;

/// Bytes of a source.
pub const MAX_SOURCE_BYTES: usize = 1024;
/// Nesting of brackets, and number of conditionals (`?`), which nest too.
pub const MAX_NESTING: usize = 16;

/// Operator bytes outside of strings: each may add a level to the parser's recursion.
const MAX_OPERATORS: usize = 192;
/// Operators in a row, e.g. `!!!!x`.
const MAX_OPERATORS_IN_A_ROW: usize = 8;
/// Brackets and conditionals in all, also in what looks like a string: where the lexer meets an escape that it does not know it
/// drops the quote and reads on. The parser itself stops at 96.
const MAX_NESTING_ANYWHERE: usize = 64;

/// Bounds what the parser is given: it recurses once per bracket, conditional and unary operator.
pub fn check_source(source: &str) -> Result<(), ConditionProblem> {
    if source.trim().is_empty() {
        return Err(ConditionProblem::Empty);
    }
    if source.len() > MAX_SOURCE_BYTES {
        return Err(ConditionProblem::TooLong {
            bytes: source.len(),
        });
    }
    let nesting = source
        .bytes()
        .filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'?'))
        .count();
    if nesting > MAX_NESTING_ANYWHERE {
        return Err(ConditionProblem::TooDeep);
    }
    let (mut depth, mut conditionals, mut operators, mut in_a_row) =
        (0_usize, 0_usize, 0_usize, 0_usize);
    let mut rest = source.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' | b'\'' => {
                rest = after_string(byte, after, raw_prefix(source, after.len()));
                in_a_row = 0;
                continue;
            }
            b'/' if after.first() == Some(&b'/') => {
                let line_end = after
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(after.len());
                rest = after.get(line_end..).unwrap_or_default();
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'?' => conditionals += 1,
            _ => {}
        }
        if byte.is_ascii_punctuation() && byte != b'_' {
            operators += 1;
            in_a_row = if matches!(byte, b'!' | b'-') {
                in_a_row + 1
            } else {
                0
            };
        } else if !byte.is_ascii_whitespace() {
            in_a_row = 0;
        }
        if depth > MAX_NESTING || conditionals > MAX_NESTING || in_a_row > MAX_OPERATORS_IN_A_ROW {
            return Err(ConditionProblem::TooDeep);
        }
    }
    let words = source
        .split_ascii_whitespace()
        .filter(|word| *word == "in")
        .count();
    if operators + words > MAX_OPERATORS {
        Err(ConditionProblem::TooManyOperators)
    } else {
        Ok(())
    }
}

/// Whether the quote with this many bytes behind it opens a raw string (`r'…'`), in which a backslash escapes nothing.
fn raw_prefix(source: &str, bytes_after_quote: usize) -> bool {
    let quote = source.len().saturating_sub(bytes_after_quote + 1);
    let before = source.as_bytes().get(..quote).unwrap_or_default();
    let prefix = before
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
        .count();
    let word = before.get(before.len() - prefix..).unwrap_or_default();
    matches!(
        word,
        b"r" | b"R" | b"br" | b"bR" | b"Br" | b"BR" | b"rb" | b"rB" | b"Rb" | b"RB"
    )
}

/// What follows the string that `quote` opened. An unclosed string ends with its line, or with the source: the parser refuses
/// it, and brackets behind the end of the line count again, so that nothing hides from the count.
fn after_string(quote: u8, source: &[u8], raw: bool) -> &[u8] {
    let triple = source.first() == Some(&quote) && source.get(1) == Some(&quote);
    let mut rest = if triple {
        source.get(2..).unwrap_or_default()
    } else {
        source
    };
    loop {
        match rest {
            [] => return rest,
            [b'\\', escaped, after @ ..]
                if !raw && (triple || !matches!(escaped, b'\n' | b'\r')) =>
            {
                rest = after
            }
            [a, b, c, after @ ..] if triple && *a == quote && *b == quote && *c == quote => {
                return after;
            }
            [a, after @ ..] if !triple && *a == quote => return after,
            [b'\n' | b'\r', after @ ..] if !triple => return after,
            [_, after @ ..] => rest = after,
        }
    }
}

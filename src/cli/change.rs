//! The change of a request in full: every path, what it was and what it becomes. Nothing is cut.

use crate::{
    api::{ApprovalRequestSpec, approval_request::FieldDiff},
    decide::{
        redact::{self, Redactor},
        visible::visible,
    },
};

/// Indentation stops growing here, so that a deep value cannot make the output quadratic.
const DEEPEST: usize = 64;
/// What stands for a side on which the field does not exist.
const ABSENT: &str = "(absent)";
/// Said behind the fingerprint of a Secret's value.
const FINGERPRINT: &str = "   (fingerprint: the Secret's value itself is never stored)";

/// Every changed field, old and new. Where a request lists none (a deletion), its whole change is shown.
pub fn change(spec: &ApprovalRequestSpec) -> Vec<String> {
    let secret = Redactor::covers(&spec.action.group, &spec.action.resource);
    let mut lines = Vec::new();
    if spec.diff.is_empty() {
        lines.push("(no field is listed; the change as it is bound:)".to_owned());
        lines.extend(
            pretty(&spec.change, secret)
                .into_iter()
                .map(|line| format!("    {line}")),
        );
    }
    for field in &spec.diff {
        lines.extend(one_field(field, secret));
    }
    lines
}

/// The state that the change applies to, path by path as it is bound.
pub fn state(spec: &ApprovalRequestSpec) -> Vec<String> {
    let secret = Redactor::covers(&spec.action.group, &spec.action.resource);
    pretty(&spec.state, secret)
}

fn one_field(field: &FieldDiff, secret: bool) -> Vec<String> {
    let mut lines = vec![if field.path.is_empty() {
        "(the whole object)".to_owned()
    } else {
        visible(&field.path)
    }];
    if field.from == field.to {
        lines.extend(side("  = ", field.to.as_deref(), secret));
        return lines;
    }
    let both = (
        field.from.as_deref().and_then(text_lines),
        field.to.as_deref().and_then(text_lines),
    );
    if let (Some(from), Some(to)) = both {
        lines.extend(text_diff(&from, &to));
        return lines;
    }
    lines.extend(side("  - ", field.from.as_deref(), secret));
    lines.extend(side("  + ", field.to.as_deref(), secret));
    lines
}

fn side(mark: &str, value: Option<&str>, secret: bool) -> Vec<String> {
    let Some(value) = value else {
        return vec![format!("{mark}{ABSENT}")];
    };
    pretty(value, secret)
        .into_iter()
        .map(|line| format!("{mark}{line}"))
        .collect()
}

/// The lines of a JSON string that has several.
fn text_lines(value: &str) -> Option<Vec<String>> {
    let text: String = serde_json::from_str(value).ok()?;
    text.contains('\n')
        .then(|| text.split('\n').map(str::to_owned).collect())
}

/// Two texts in whole, the lines that they begin and end with in common shown once.
fn text_diff(from: &[String], to: &[String]) -> Vec<String> {
    let head = from
        .iter()
        .zip(to)
        .take_while(|(left, right)| left == right)
        .count();
    let most = from.len().min(to.len()) - head;
    let tail = from
        .iter()
        .rev()
        .zip(to.iter().rev())
        .take(most)
        .take_while(|(left, right)| left == right)
        .count();
    let marked = |mark: &'static str, lines: &[String], skip: usize, until: usize| {
        lines
            .iter()
            .take(until)
            .skip(skip)
            .map(|line| format!("  {mark} | {}", visible(line)))
            .collect::<Vec<_>>()
    };
    let mut lines = vec![format!(
        "    (text of {} lines, becomes {})",
        from.len(),
        to.len()
    )];
    lines.extend(marked(" ", to, 0, head));
    lines.extend(marked("-", from, head, from.len() - tail));
    lines.extend(marked("+", to, head, to.len() - tail));
    lines.extend(marked(" ", to, to.len() - tail, to.len()));
    lines
}

/// JSON text on as many lines as it needs, without commas: one member or item a line, texts of several lines in a block of `|` lines.
///
/// Every string is made visible. Works on the text without a tree, so depth does not matter. What is not JSON is shown as it is.
pub fn pretty(json: &str, secret: bool) -> Vec<String> {
    let mut printer = Printer {
        lines: Vec::new(),
        line: String::new(),
        depth: 0,
        secret,
    };
    if printer.print(json).is_none() {
        return vec![visible(json)];
    }
    printer.finish()
}

struct Printer {
    lines: Vec<String>,
    line: String,
    depth: usize,
    secret: bool,
}

impl Printer {
    fn print(&mut self, json: &str) -> Option<()> {
        let mut rest = json.trim_start();
        while let Some(first) = rest.chars().next() {
            let after = rest.get(first.len_utf8()..)?;
            match first {
                '{' | '[' => {
                    let close = if first == '{' { '}' } else { ']' };
                    self.line.push(first);
                    if let Some(empty) = after.trim_start().strip_prefix(close) {
                        self.line.push(close);
                        rest = empty.trim_start();
                        continue;
                    }
                    self.depth += 1;
                    self.new_line();
                }
                '}' | ']' => {
                    self.depth = self.depth.checked_sub(1)?;
                    self.new_line();
                    self.line.push(first);
                }
                ',' => self.new_line(),
                ':' => self.line.push_str(": "),
                '"' => {
                    let length = string_length(rest)?;
                    let (token, behind) = rest.split_at_checked(length)?;
                    let text: String = serde_json::from_str(token).ok()?;
                    self.string(&text, behind.trim_start().starts_with(':'));
                    rest = behind.trim_start();
                    continue;
                }
                _ => {
                    let length = rest
                        .find(|c: char| ",:{}[]\" \t\r\n".contains(c))
                        .unwrap_or(rest.len());
                    let (token, behind) = rest.split_at_checked(length)?;
                    self.line.push_str(&visible(token));
                    rest = behind.trim_start();
                    continue;
                }
            }
            rest = after.trim_start();
        }
        Some(())
    }

    fn string(&mut self, text: &str, is_key: bool) {
        if !is_key && text.contains('\n') {
            self.line
                .push_str(&format!("(text of {} lines)", text.split('\n').count()));
            self.depth += 1;
            for line in text.split('\n') {
                self.new_line();
                self.line.push_str("| ");
                self.line.push_str(&visible(line));
            }
            self.depth -= 1;
            return;
        }
        self.line.push('"');
        self.line
            .push_str(&visible(text).replace('\\', r"\\").replace('"', "\\\""));
        self.line.push('"');
        if self.secret && !is_key && redact::is_fingerprint(text) {
            self.line.push_str(FINGERPRINT);
        }
    }

    fn new_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
        self.line = "  ".repeat(self.depth.min(DEEPEST));
    }

    fn finish(mut self) -> Vec<String> {
        self.lines.push(self.line);
        self.lines
    }
}

/// Bytes of the JSON string at the start of the text, quotes included.
fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(index + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use super::*;

    fn field(path: &str, from: Option<&str>, to: Option<&str>) -> Vec<String> {
        one_field(
            &FieldDiff {
                path: path.into(),
                from: from.map(str::to_owned),
                to: to.map(str::to_owned),
            },
            false,
        )
    }

    #[test]
    fn a_field_shows_what_it_was_and_what_it_becomes() {
        assert_eq!(
            field("/spec/replicas", Some("2"), Some("5")),
            ["/spec/replicas", "  - 2", "  + 5"]
        );
        assert_eq!(
            field("/spec/paused", None, Some("true")),
            ["/spec/paused", "  - (absent)", "  + true"]
        );
        assert_eq!(
            field("/a", Some("null"), None),
            ["/a", "  - null", "  + (absent)"]
        );
    }

    #[test]
    fn objects_are_spread_one_member_a_line() {
        assert_eq!(
            pretty(r#"{"a":[1,{"b":"x"}],"c":{},"d":[]}"#, false),
            [
                "{",
                "  \"a\": [",
                "    1",
                "    {",
                "      \"b\": \"x\"",
                "    }",
                "  ]",
                "  \"c\": {}",
                "  \"d\": []",
                "}"
            ]
        );
    }

    #[test]
    fn texts_of_several_lines_cannot_pose_as_our_own_lines() {
        assert_eq!(
            pretty("{\"run\":\"a\\nState  Approved\\n\",\"z\":1}", false),
            [
                "{",
                "  \"run\": (text of 3 lines)",
                "    | a",
                "    | State  Approved",
                "    | ",
                "  \"z\": 1",
                "}"
            ]
        );
    }

    #[test]
    fn two_texts_are_compared_line_by_line() {
        assert_eq!(
            field("/data/run", Some(r#""a\nb\nc""#), Some(r#""a\nB\nb2\nc""#)),
            [
                "/data/run",
                "    (text of 3 lines, becomes 4)",
                "    | a",
                "  - | b",
                "  + | B",
                "  + | b2",
                "    | c"
            ]
        );
    }

    #[test]
    fn repeated_lines_are_neither_lost_nor_doubled() {
        assert_eq!(
            field("/t", Some(r#""x\nx""#), Some(r#""x\nx\nx""#)),
            [
                "/t",
                "    (text of 2 lines, becomes 3)",
                "    | x",
                "    | x",
                "  + | x"
            ]
        );
    }

    #[test]
    fn hostile_values_keys_and_paths_are_visible() {
        let lines = field(
            "/a\u{202e}",
            None,
            Some("{\"k\\u001b\":\"v\u{202e}\\u0007\\\"q\\\"\"}"),
        );
        assert_eq!(
            lines,
            [
                "/a<U+202E>",
                "  - (absent)",
                "  + {",
                "  +   \"k<U+001B>\": \"v<U+202E><U+0007>\\\"q\\\"\"",
                "  + }"
            ]
        );
    }

    #[test]
    fn what_is_no_json_is_shown_as_it_is() {
        for wrong in ["\"open", "}", "{\"a\":\"\\x\"}"] {
            assert_eq!(pretty(wrong, false), [visible(wrong)]);
        }
    }

    #[test]
    fn depth_does_not_matter() {
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        let lines = pretty(&deep, false);
        assert_eq!(lines.len(), 39_999);
        assert!(lines.iter().all(|line| line.len() <= 2 * DEEPEST + 2));
    }

    #[test]
    fn a_secrets_fingerprint_is_called_one_and_a_lookalike_elsewhere_is_not() {
        let value = format!("\"hmac:k1:{}\"", "ab".repeat(32));
        assert!(pretty(&value, true).concat().contains("fingerprint"));
        assert!(!pretty(&value, false).concat().contains("fingerprint"));
        assert!(
            !pretty("\"hmac:k1:short\"", true)
                .concat()
                .contains("fingerprint")
        );
    }
}

//! What commands print, in each format.

use std::io::Write;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Format,
    exit::{Exit, Failure},
};
use crate::decide::visible::is_hidden;

/// What a command has to say, in every format.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// For people.
    pub table: String,
    /// For people with wide screens; empty: the same.
    pub wide: String,
    /// Remarks for standard error, one line each; only with formats for people.
    pub notes: Vec<String>,
    /// For programs; `code` is added.
    pub document: Value,
    /// `TYPE/NAME` of what it is about.
    pub names: Vec<String>,
    /// What did not work. Several may fail on their own.
    pub failures: Vec<Failure>,
    /// Exit code without a failure that is not 0: `diff` has one.
    pub exit: Option<Exit>,
}

impl Printed {
    /// A command that failed.
    pub fn failure(failure: Failure) -> Self {
        Self {
            document: failure.document(),
            failures: vec![failure],
            ..Self::default()
        }
    }

    /// What the process ends with: the first failure's code.
    pub fn exit(&self) -> Exit {
        self.failures
            .first()
            .map(Failure::exit)
            .or(self.exit)
            .unwrap_or(Exit::Done)
    }

    /// What goes to standard output.
    pub fn stdout(&self, format: Format) -> String {
        match format {
            Format::Wide if !self.wide.is_empty() => self.wide.clone(),
            Format::Table | Format::Wide => self.table.clone(),
            Format::Name => self.names.iter().map(|name| format!("{name}\n")).collect(),
            Format::Json => format!("{}\n", json_text(&self.with_code())),
            Format::Yaml => yaml_text(&self.with_code()),
        }
    }

    /// What goes to standard error.
    pub fn stderr(&self, format: Format) -> String {
        let mut lines = Vec::new();
        if matches!(format, Format::Table | Format::Wide) {
            lines.extend(self.notes.iter().cloned());
        }
        lines.extend(self.failures.iter().map(Failure::text));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Prints and tells the exit code. A closed pipe ends the output without a complaint.
    pub fn print(&self, format: Format) -> Exit {
        let text = self.stdout(format);
        if !text.is_empty() {
            let mut out = std::io::stdout().lock();
            let _closed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        }
        let _closed = std::io::stderr()
            .lock()
            .write_all(self.stderr(format).as_bytes());
        self.exit()
    }

    fn with_code(&self) -> Value {
        let mut document = if self.document.is_object() {
            self.document.clone()
        } else {
            json!({})
        };
        if let Some(members) = document.as_object_mut() {
            members.insert("code".to_owned(), json!(self.exit().code()));
        }
        document
    }
}

/// One line to standard error.
pub fn to_stderr(line: &str) {
    let _closed = writeln!(std::io::stderr(), "{line}");
}

/// A list for programs.
pub fn list(kind: &str, items: Vec<Value>) -> Value {
    json!({"apiVersion": "grantgate.dev/v1alpha1", "kind": kind, "items": items})
}

/// JSON in which hidden characters are `\uXXXX`: the same value, and nothing that a terminal obeys.
pub fn json_text(value: &Value) -> String {
    // A `Value` has string keys only, so it can always be written.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '\n' && is_hidden(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out
}

/// YAML in block style; strings are quoted unless they are plain words, hidden characters are escapes.
pub fn yaml_text(value: &Value) -> String {
    let mut out = String::new();
    yaml_block(value, 0, &mut out);
    out
}

fn yaml_block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members {
                out.push_str(&" ".repeat(indent));
                out.push_str(&yaml_string(key));
                out.push(':');
                yaml_member(member, indent + 2, indent, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                out.push_str(&" ".repeat(indent));
                out.push('-');
                yaml_member(item, indent + 2, indent + 2, out);
            }
        }
        scalar => {
            out.push_str(&yaml_scalar(scalar));
            out.push('\n');
        }
    }
}

fn yaml_member(member: &Value, object_indent: usize, list_indent: usize, out: &mut String) {
    match member {
        Value::Object(members) if !members.is_empty() => {
            out.push('\n');
            yaml_block(member, object_indent, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            yaml_block(member, list_indent, out);
        }
        scalar => {
            out.push(' ');
            out.push_str(&yaml_scalar(scalar));
            out.push('\n');
        }
    }
}

fn yaml_scalar(value: &Value) -> String {
    match value {
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        Value::String(text) => yaml_string(text),
        other => other.to_string(),
    }
}

fn yaml_string(text: &str) -> String {
    const WORDS: [&str; 10] = [
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan",
    ];
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if plain {
        return text.to_owned();
    }
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            hidden if is_hidden(hidden) => out.push_str(&format!("\\U{:08x}", u32::from(hidden))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// A table as kubectl's: three spaces between columns, none at the end. Cells hold no spaces and no hidden characters already.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut widths: Vec<usize> = header.iter().map(|title| title.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (width, cell) in widths.iter().zip(cells) {
            text.push_str(cell);
            text.push_str(&" ".repeat(width + 3 - cell.chars().count()));
        }
        format!("{}\n", text.trim_end())
    };
    let mut out = line(&mut header.iter().copied());
    for row in rows {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

/// A span of time in at most two units, as kubectl has it: `45s`, `24m`, `2h5m`, `3d4h`. What lies behind is `0s`.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let two = |first: i64, unit: &str, second: i64, smaller: &str| match second {
        0 => format!("{first}{unit}"),
        _ => format!("{first}{unit}{second}{smaller}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..7_200 => format!("{}m", seconds / 60),
        7_200..86_400 => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

/// From one time to another.
pub fn between(from: Timestamp, to: Timestamp) -> String {
    span(to.as_second().saturating_sub(from.as_second()))
}

/// A time without fractions: `2026-01-01T10:00:00Z`.
pub fn time(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
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

    #[test]
    fn json_is_the_same_value_and_holds_nothing_hidden() {
        let value = json!({"a": "x\u{202e}\u{1b}\u{7f}\u{e0041}→é", "b": [1, {"c": null}]});
        let text = json_text(&value);
        assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text}");
        assert!(text.contains('é'));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn yaml_is_the_same_value_and_holds_nothing_hidden() {
        let value = json!({
            "a": "x\u{202e}\u{1b}\u{e0041}\n", "b": [1, {"c": null, "d": []}, [true, "y"], {}], "no": "1.5", "e": "plain-word/x",
            "f": "", "g": {"h": {"i": "- x"}}, "-": -3,
        });
        let text = yaml_text(&value);
        assert!(!text.chars().any(|c| c != '\n' && is_hidden(c)), "{text}");
        assert_eq!(
            serde_saphyr::from_str::<Value>(&text).unwrap(),
            value,
            "{text}"
        );
    }

    #[test]
    fn every_document_carries_its_code() {
        let printed = Printed::failure(Failure::Stale {
            what: "x".into(),
            next: vec![],
        });
        let document: Value = serde_json::from_str(&printed.stdout(Format::Json)).unwrap();
        assert_eq!(document["code"], 7);
        assert_eq!(document["reason"], "Stale");
        assert_eq!(printed.stderr(Format::Json), "error: stale: x\n");
        assert_eq!(printed.stdout(Format::Table), "");
    }

    #[test]
    fn tables_are_aligned_without_trailing_spaces() {
        let rows = vec![
            vec!["a".to_owned(), "b".to_owned()],
            vec!["long".to_owned(), String::new()],
        ];
        assert_eq!(
            table(&["NAME", "AGE"], &rows),
            "NAME   AGE\na      b\nlong\n"
        );
    }

    #[test]
    fn spans_have_at_most_two_units() {
        for (seconds, text) in [
            (-5, "0s"),
            (59, "59s"),
            (119, "119s"),
            (150, "2m30s"),
            (1500, "25m"),
            (7200, "2h"),
            (7500, "2h5m"),
            (90_000, "1d1h"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}

//! How the story looks: sections, what somebody types, and what really came back, indented.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

/// Columns of text that the demonstration writes itself; what a program printed keeps its own lines.
const WIDTH: usize = 100;
const INDENT: &str = "    ";

/// Writes the story to stdout.
#[derive(Debug, Clone, Copy)]
pub struct Telling {
    colours: bool,
}

impl Telling {
    /// In colours on a terminal, unless `NO_COLOR` is set.
    pub fn new() -> Telling {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Telling {
            colours: wanted && std::io::stdout().is_terminal(),
        }
    }

    /// A heading.
    pub fn section(self, title: &str) {
        let rule = "─".repeat(WIDTH.saturating_sub(title.chars().count() + 4));
        self.line(&format!("\n\n{}", self.bold(&format!("── {title} {rule}"))));
    }

    /// A paragraph of ours.
    pub fn says(self, text: &str) {
        self.line(&format!("\n{}", wrapped(text, WIDTH, "")));
    }

    /// What somebody types. It can be typed as it stands, with that person's KUBECONFIG.
    pub fn command(self, who: &str, line: &str) {
        self.line(&format!(
            "\n{} {}",
            self.dim(&format!("{who} $")),
            self.bold(line)
        ));
    }

    /// A call that a program makes, in that program's own words.
    pub fn call(self, who: &str, line: &str) {
        self.line(&format!(
            "\n{} {}",
            self.dim(&format!("{who} >")),
            self.bold(line)
        ));
    }

    /// What a program printed, line by line as it printed it.
    pub fn output(self, text: &str) {
        for line in text.trim_end().lines() {
            self.line(format!("{INDENT}{line}").trim_end());
        }
    }

    /// A message of one long line: every word as it came, broken at spaces only.
    pub fn message(self, text: &str) {
        for line in text.trim_end().lines() {
            self.line(&wrapped(line, WIDTH, INDENT));
        }
    }

    /// One line as it is.
    pub fn line(self, text: &str) {
        // A reader that has gone is no reason to leave the cluster half taken down.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.painted("36", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// `text` in lines of at most `width` columns where its spaces allow, each after `indent`.
fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::from(indent);
    let mut column = indent.len();
    for (number, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && column + 1 + length > width {
            let _ = write!(out, "\n{indent}");
            column = indent.len();
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

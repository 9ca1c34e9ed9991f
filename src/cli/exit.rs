//! Exit codes and refusals: an interface for scripts, in one place.

use std::process::ExitCode;

use crate::decide::visible::visible;

/// What the plugin ends with. The numbers are stable; JSON output carries the same as `code`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
    /// It is done.
    Done = 0,
    /// Something failed: the cluster cannot be reached, an object is missing, an answer cannot be read. `diff`: there is a difference.
    Error = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Nothing changed: it was already decided the same way.
    NothingChanged = 3,
    /// Still pending: not decided within the time given, or the vote is not counted yet.
    Pending = 4,
    /// Denied or expired.
    Ended = 5,
    /// You may not do this.
    NotAllowed = 6,
    /// What you saw is not what is there: another digest, or the target changed.
    Stale = 7,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command did not do what it was asked, by meaning.
///
/// Texts are complete sentences in visible characters; `next` holds commands that can be typed as they stand.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig: {0}")]
    Config(String),
    /// No answer, or none that can be read.
    #[error("the API server did not answer as it should: {0}")]
    Unreachable(String),
    /// The kinds of grantgate are not served here.
    #[error(
        "this cluster does not serve grantgate.dev/v1alpha1: grantgate is not installed, or the kubeconfig names another cluster"
    )]
    NotInstalled,
    /// The object does not exist.
    #[error("{what} does not exist")]
    NotFound {
        /// The object, e.g. `approvalrequest.grantgate.dev/ar-… in namespace web`.
        what: String,
        /// Commands that help.
        next: Vec<String>,
    },
    /// The API server refused for want of rights, or a policy of the cluster refused.
    #[error("not allowed: {what}{}", bullets(missing))]
    NotAllowed {
        /// What was tried and refused.
        what: String,
        /// What is missing, one line each: the RBAC verb, or the membership.
        missing: Vec<String>,
        /// Commands that help.
        next: Vec<String>,
    },
    /// What was seen is not what is there.
    #[error("stale: {what}")]
    Stale {
        /// What differs.
        what: String,
        /// Commands that help.
        next: Vec<String>,
    },
    /// It was already decided the same way.
    #[error("nothing changed: {0}")]
    NothingChanged(String),
    /// Denied or expired.
    #[error("{what}")]
    Ended {
        /// What ended and why.
        what: String,
        /// Commands that help.
        next: Vec<String>,
    },
    /// Not decided yet.
    #[error("{what}")]
    Pending {
        /// What is still open.
        what: String,
        /// Commands that help.
        next: Vec<String>,
    },
    /// The person at the terminal did not confirm.
    #[error("not confirmed: nothing was sent")]
    NotConfirmed,
    /// The API server refused the object itself.
    #[error("{what}")]
    Refused {
        /// What was refused and the server's words.
        what: String,
        /// Commands that help.
        next: Vec<String>,
    },
}

impl Failure {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Config(_)
            | Self::Unreachable(_)
            | Self::NotInstalled
            | Self::NotFound { .. }
            | Self::NotConfirmed
            | Self::Refused { .. } => Exit::Error,
            Self::NotAllowed { .. } => Exit::NotAllowed,
            Self::Stale { .. } => Exit::Stale,
            Self::NothingChanged(_) => Exit::NothingChanged,
            Self::Ended { .. } => Exit::Ended,
            Self::Pending { .. } => Exit::Pending,
        }
    }

    /// One word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Usage(_) => "Usage",
            Self::Config(_) => "Config",
            Self::Unreachable(_) => "Unreachable",
            Self::NotInstalled => "NotInstalled",
            Self::NotFound { .. } => "NotFound",
            Self::NotAllowed { .. } => "NotAllowed",
            Self::Stale { .. } => "Stale",
            Self::NothingChanged(_) => "NothingChanged",
            Self::Ended { .. } => "Ended",
            Self::Pending { .. } => "Pending",
            Self::NotConfirmed => "NotConfirmed",
            Self::Refused { .. } => "Refused",
        }
    }

    /// What is missing, one line each.
    pub fn missing(&self) -> &[String] {
        match self {
            Self::NotAllowed { missing, .. } => missing,
            _ => &[],
        }
    }

    /// Commands that help.
    pub fn next(&self) -> &[String] {
        match self {
            Self::NotFound { next, .. }
            | Self::NotAllowed { next, .. }
            | Self::Stale { next, .. }
            | Self::Ended { next, .. }
            | Self::Pending { next, .. }
            | Self::Refused { next, .. } => next,
            _ => &[],
        }
    }

    /// The text for standard error.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("error: {self}")];
        if !self.next().is_empty() {
            lines.push("next:".to_owned());
            lines.extend(self.next().iter().map(|command| format!("  {command}")));
        }
        lines.join("\n")
    }

    /// The document for `-o json`.
    pub fn document(&self) -> serde_json::Value {
        serde_json::json!({
            "code": self.exit().code(),
            "reason": self.reason(),
            "error": self.to_string(),
            "missing": self.missing(),
            "next": self.next(),
        })
    }
}

fn bullets(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  - {line}")).collect()
}

/// A word for the shell: quoted where the shell would read it otherwise.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", visible(word).replace('\'', r"'\''"))
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
    fn exit_codes_are_the_documented_ones() {
        let failures = [
            (Failure::Config(String::new()), 1),
            (Failure::Unreachable(String::new()), 1),
            (Failure::NotInstalled, 1),
            (Failure::NotConfirmed, 1),
            (
                Failure::NotFound {
                    what: String::new(),
                    next: vec![],
                },
                1,
            ),
            (
                Failure::Refused {
                    what: String::new(),
                    next: vec![],
                },
                1,
            ),
            (Failure::Usage(String::new()), 2),
            (Failure::NothingChanged(String::new()), 3),
            (
                Failure::Pending {
                    what: String::new(),
                    next: vec![],
                },
                4,
            ),
            (
                Failure::Ended {
                    what: String::new(),
                    next: vec![],
                },
                5,
            ),
            (
                Failure::NotAllowed {
                    what: String::new(),
                    missing: vec![],
                    next: vec![],
                },
                6,
            ),
            (
                Failure::Stale {
                    what: String::new(),
                    next: vec![],
                },
                7,
            ),
        ];
        for (failure, code) in failures {
            assert_eq!(failure.exit().code(), code, "{failure:?}");
            assert_eq!(failure.document()["code"], code, "{failure:?}");
        }
        assert_eq!(Exit::Done.code(), 0);
    }

    #[test]
    fn a_refusal_names_what_is_missing_and_the_next_command() {
        let failure = Failure::NotAllowed {
            what: "approve request web/ar-a".into(),
            missing: vec![
                "RBAC: verb create on approvaldecisions.grantgate.dev in namespace web".into(),
            ],
            next: vec!["kubectl create rolebinding x".into()],
        };
        assert_eq!(
            failure.text(),
            "error: not allowed: approve request web/ar-a\n  - RBAC: verb create on approvaldecisions.grantgate.dev in namespace web\n\
             next:\n  kubectl create rolebinding x"
        );
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(
            quoted("system:serviceaccount:a:b"),
            "system:serviceaccount:a:b"
        );
        assert_eq!(quoted("a b; rm"), "'a b; rm'");
        assert_eq!(quoted("it's\u{1b}"), r"'it'\''s<U+001B>'");
    }
}

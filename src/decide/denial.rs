//! Why something is refused, in the words of the answer's `reason` and `details.causes`.

/// `status.reason` of a denial. None of them makes a client repeat a call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// Waiting for a person.
    ApprovalPending,
    /// A person said no a moment ago.
    ApprovalDenied,
    /// The permission's time is over.
    GrantExpired,
    /// The permission is used up.
    GrantSpent,
    /// Something that the permission was bound to changed.
    GrantStale,
    /// The permission is for something else.
    GrantMismatch,
    /// The agent has no tool for this, or is not who it says.
    ToolNotEnabled,
    /// No person can be asked about this.
    NotApprovable,
    /// Nothing can be decided just now.
    ApprovalUnavailable,
}

impl Reason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalPending => "ApprovalPending",
            Self::ApprovalDenied => "ApprovalDenied",
            Self::GrantExpired => "GrantExpired",
            Self::GrantSpent => "GrantSpent",
            Self::GrantStale => "GrantStale",
            Self::GrantMismatch => "GrantMismatch",
            Self::ToolNotEnabled => "ToolNotEnabled",
            Self::NotApprovable => "NotApprovable",
            Self::ApprovalUnavailable => "ApprovalUnavailable",
        }
    }
}

/// A refusal that files no request.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{words}")]
pub struct Denial {
    /// `status.reason`.
    pub reason: Reason,
    /// The detail word in `details.causes`, e.g. `Collection`.
    pub cause: &'static str,
    /// What is wrong and what to do.
    pub words: String,
}

impl Denial {
    /// A denial.
    pub fn new(reason: Reason, cause: &'static str, words: impl Into<String>) -> Self {
        Self {
            reason,
            cause,
            words: words.into(),
        }
    }

    /// Nothing can be decided just now.
    pub fn unavailable(cause: &'static str, words: impl Into<String>) -> Self {
        Self::new(Reason::ApprovalUnavailable, cause, words)
    }
}

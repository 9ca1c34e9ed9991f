//! The trace: what a decision looked at and why it went as it did, made by the decision itself.
//!
//! The same steps answer `explain`, go into the audit stream, and stand in tests. They hold names, words and digests, never
//! values of an object.

use std::fmt;

use serde::Serialize;

use super::{policy::PolicyName, resolve::Level, select::Specificity};
use crate::api::approval_policy::Effect;

/// The steps of one decision, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Trace {
    steps: Vec<Step>,
}

/// One step of a decision.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum Step {
    /// Who is asking.
    Subject {
        /// Name of the AgentIdentity.
        agent: String,
        /// Username under which it acts.
        by: String,
    },
    /// Tools that cover the action, as `namespace/mount: tool`.
    Covered {
        /// Sorted.
        tools: Vec<String>,
    },
    /// No enabled tool covers the action.
    NotCovered {
        /// Why, in words.
        words: String,
    },
    /// A policy matches.
    PolicyMatched {
        /// Which.
        policy: PolicyName,
        /// Cluster or namespace.
        level: Level,
        /// How closely it names the action.
        specificity: Specificity,
        /// What it wants.
        effect: Effect,
    },
    /// The selectors of a policy match, and its condition does not hold.
    ConditionFalse {
        /// Which policy.
        policy: PolicyName,
        /// The condition.
        source: String,
    },
    /// A condition could not be evaluated.
    ConditionFailed {
        /// The policy, or the tool, that it belongs to.
        owner: String,
        /// The condition.
        source: String,
        /// What went wrong.
        error: String,
        /// What it counts as.
        taken_as: bool,
    },
    /// Something that matters here cannot be read.
    Unreadable {
        /// Why, in words.
        words: String,
    },
    /// A policy shapes the outcome.
    Won {
        /// Which.
        policy: PolicyName,
        /// By what.
        because: String,
    },
    /// A policy matches and does not shape the outcome.
    Lost {
        /// Which.
        policy: PolicyName,
        /// To what.
        because: String,
    },
    /// A limit, and the policy that sets it.
    Limited {
        /// Which limit, e.g. `uses`.
        limit: &'static str,
        /// Its value.
        value: String,
        /// The policies that ask for exactly this.
        by: Vec<PolicyName>,
    },
    /// Anything else that a stage of the decision found out.
    Note {
        /// What, in words.
        words: String,
    },
}

impl Trace {
    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Adds the steps of another trace behind these.
    pub fn append(&mut self, other: Self) {
        self.steps.extend(other.steps);
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl Step {
    /// A [`Step::Note`].
    pub fn note(words: impl Into<String>) -> Self {
        Self::Note {
            words: words.into(),
        }
    }
}

/// One line per step.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.steps.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject { agent, by } => write!(f, "agent {agent}, acting as {by}"),
            Self::Covered { tools } => write!(f, "covered by {}", tools.join(", ")),
            Self::NotCovered { words } => write!(f, "not covered: {words}"),
            Self::PolicyMatched {
                policy,
                level,
                specificity,
                effect,
            } => {
                write!(f, "{policy} matches: {level}, {specificity}, {effect:?}")
            }
            Self::ConditionFalse { policy, source } => {
                write!(f, "{policy} does not match: `{source}` is false")
            }
            Self::ConditionFailed {
                owner,
                source,
                error,
                taken_as,
            } => {
                write!(
                    f,
                    "{owner}: `{source}` could not be evaluated ({error}), taken as {taken_as}"
                )
            }
            Self::Unreadable { words } => write!(f, "not readable: {words}"),
            Self::Won { policy, because } => write!(f, "{policy} decides: {because}"),
            Self::Lost { policy, because } => write!(f, "{policy} does not decide: {because}"),
            Self::Limited { limit, value, by } => {
                let by: Vec<String> = by.iter().map(ToString::to_string).collect();
                write!(f, "{limit} {value}, by {}", by.join(", "))
            }
            Self::Note { words } => f.write_str(words),
        }
    }
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
    fn a_trace_reads_as_text_and_as_json() {
        let mut trace = Trace::default();
        trace.push(Step::Subject {
            agent: "ops-bot".into(),
            by: "system:serviceaccount:agents:ops-bot".into(),
        });
        trace.push(Step::note("the write changes /spec/replicas"));
        assert_eq!(
            trace.to_string(),
            "agent ops-bot, acting as system:serviceaccount:agents:ops-bot\nthe write changes /spec/replicas"
        );
        let json = serde_json::to_value(&trace).unwrap();
        assert_eq!(json[1]["step"], "Note");
        assert_eq!(json[1]["words"], "the write changes /spec/replicas");
    }
}

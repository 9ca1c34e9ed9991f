//! Conditions that say only what was observed, and whose transition time moves only when the status does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::record::whole_seconds;

/// Observed to hold.
pub const TRUE: &str = "True";
/// Observed not to hold.
pub const FALSE: &str = "False";
/// Not observed yet.
pub const UNKNOWN: &str = "Unknown";

/// Type of a Grant's condition: whether and why it no longer serves.
pub const ENDED: &str = "Ended";
/// Type of a Grant's condition: whether it is known what became of every use.
pub const SETTLED: &str = "Settled";
/// Type of an ApprovalRequest's condition: whether and how it was decided.
pub const DECIDED: &str = "Decided";
/// Type of an ApprovalRequest's condition: its grant is gone, and no other one is made.
pub const GRANT_LOST: &str = "GrantLost";
/// Type of an ApprovalDecision's condition: whether the vote counts.
pub const COUNTED: &str = "Counted";
/// Type of a declaration's condition: whether it can be used.
pub const VALID: &str = "Valid";
/// Type of a declaration's condition: whether every name in it was found.
pub const RESOLVED: &str = "Resolved";
/// Type of a declaration's condition: whether every webhook replica works by this generation.
pub const IN_FORCE: &str = "InForce";
/// Type of an AgentIdentity's condition: whether the gate was seen to hold for its subjects.
pub const ENFORCED: &str = "Enforced";
/// Type of a ToolMount's condition: a policy asks for what `approval` leaves out.
pub const STILL_ASKED: &str = "StillAsked";

/// Longest message that is stored.
const MAX_MESSAGE: usize = 1024;

/// One observation.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Condition type, e.g. `Valid`.
    pub kind: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// CamelCase reason.
    pub reason: &'a str,
    /// In words.
    pub message: &'a str,
}

/// Sets one condition. Returns whether anything changed, be it only the generation that was observed.
pub fn set(
    conditions: &mut Vec<Condition>,
    observed: Observed<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let message: String = observed.message.chars().take(MAX_MESSAGE).collect();
    if let Some(known) = conditions
        .iter_mut()
        .find(|known| known.type_ == observed.kind)
    {
        let same = known.status == observed.status
            && known.reason == observed.reason
            && known.message == message;
        if known.status != observed.status {
            known.last_transition_time = Time(whole_seconds(now));
        }
        observed.status.clone_into(&mut known.status);
        observed.reason.clone_into(&mut known.reason);
        known.message = message;
        let same_generation = known.observed_generation == generation;
        known.observed_generation = generation;
        return !(same && same_generation);
    }
    conditions.push(Condition {
        type_: observed.kind.to_owned(),
        status: observed.status.to_owned(),
        reason: observed.reason.to_owned(),
        message,
        observed_generation: generation,
        last_transition_time: Time(whole_seconds(now)),
    });
    true
}

/// The condition of a type.
pub fn get<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|known| known.type_ == kind)
}

/// Whether a condition was observed to hold.
pub fn holds(conditions: &[Condition], kind: &str) -> bool {
    get(conditions, kind).is_some_and(|known| known.status == TRUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).unwrap_or_default();
        let observed = |status, reason| Observed {
            kind: "Valid",
            status,
            reason,
            message: "m",
        };
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, observed(TRUE, "A"), Some(1), at(1)));
        assert!(!set(&mut conditions, observed(TRUE, "A"), Some(1), at(2)));
        assert!(set(&mut conditions, observed(TRUE, "B"), Some(1), at(3)));
        assert_eq!(conditions[0].last_transition_time.0, at(1));
        assert!(set(&mut conditions, observed(FALSE, "B"), Some(2), at(4)));
        assert_eq!(conditions[0].last_transition_time.0, at(4));
    }
}

//! What keeps somebody's vote from counting on behalf of one policy. Counting asks, and the plugin says it beforehand.

use super::quorum::stands_in;
use crate::api::{
    approval_decision::Approver,
    approval_policy::{Approvers, RequesterMay},
};

/// One reason why a vote does not count.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Bar {
    /// An agent's identity: agents do not approve.
    Gated,
    /// The requester, who may not decide.
    Requester,
    /// The person who owns the agent, who may not decide.
    Owner,
    /// No row of the policy holds them.
    Membership,
    /// RBAC: verb `approve` on the policy.
    Verb,
}

/// What is known of somebody besides who they are.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// They are a declared agent's identity.
    pub gated: bool,
    /// They hold verb `approve` on the policy.
    pub holds_verb: bool,
    /// Username of the requester.
    pub requester: &'a str,
    /// `owner.user` of the requester's AgentIdentity.
    pub owner_user: Option<&'a str>,
}

/// Everything that bars somebody from counting for a policy with these approvers; nothing: their vote counts.
pub fn bars(approvers: &Approvers, somebody: &Approver, known: Known<'_>) -> Vec<Bar> {
    let mut bars = Vec::new();
    if known.gated {
        bars.push(Bar::Gated);
    }
    if approvers.requester != Some(RequesterMay::Allowed) {
        if somebody.username == known.requester {
            bars.push(Bar::Requester);
        } else if known.owner_user == Some(somebody.username.as_str()) {
            bars.push(Bar::Owner);
        }
    }
    let mut rows = approvers.required.iter();
    if !rows.any(|row| stands_in(&row.from, somebody)) {
        bars.push(Bar::Membership);
    }
    if !known.holds_verb {
        bars.push(Bar::Verb);
    }
    bars
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_bars_is_named() {
        let approvers = |requester: &str| -> Approvers {
            let text = json!({"required": [{"count": 1, "from": [{"user": "ana"}]}], "requester": requester});
            serde_json::from_value(text).unwrap()
        };
        let of = |username: &str, requester: &str, known: Known<'_>| {
            let somebody = Approver {
                username: username.to_owned(),
                ..Approver::default()
            };
            bars(&approvers(requester), &somebody, known)
        };
        let known = Known {
            gated: false,
            holds_verb: true,
            requester: "bot",
            owner_user: Some("ana"),
        };
        assert_eq!(of("ana", "Allowed", known), []);
        assert_eq!(of("ana", "Forbidden", known), [Bar::Owner]);
        assert_eq!(
            of("bot", "Forbidden", known),
            [Bar::Requester, Bar::Membership]
        );
        let gated = Known {
            gated: true,
            holds_verb: false,
            ..known
        };
        assert_eq!(of("ana", "Allowed", gated), [Bar::Gated, Bar::Verb]);
    }
}

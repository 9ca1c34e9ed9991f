//! Grants: how they end. What a use becomes is in [`super::settle`].
//!
//! The webhook decides at each use by the same functions, so a grant serves no longer than it should while this runs late. What is
//! written here is final, so it is written only on what is certain, each by compare-and-swap.

use jiff::Timestamp;

use crate::{
    api::{
        Action, Grant,
        grant::{GrantPhase, GrantStatus},
    },
    control::{
        access::Standing,
        request::{News, Terms},
    },
    decide::{
        conditions::{self, ENDED, Observed},
        ended::{self, EndReason},
        live::StaleReason,
        redact::Redactor,
        spend, visible,
    },
};

/// What is known of what a grant relies on. Each is only as bad as is certain.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Policies, mounts and the agent.
    pub standing: Standing,
    /// The key under which values of a Secret were fingerprinted, where it is no longer held.
    pub lost_key: Option<String>,
    /// The requester's account: replaced, gone, or without the right, in words.
    pub requester: Option<(StaleReason, String)>,
    /// The approvals, counted again.
    pub approvals: Terms,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            standing: Standing::Same,
            lost_key: None,
            requester: None,
            approvals: Terms::Unknown,
        }
    }
}

/// A status to write onto the exact revision that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The status.
    pub status: GrantStatus,
    /// What to tell people.
    pub news: News,
}

/// How a grant ends now, if it does.
pub fn plan(grant: &Grant, findings: &Findings, now: Timestamp) -> Option<End> {
    let status = grant.status.clone().unwrap_or_default();
    if status
        .phase
        .is_some_and(|phase| phase != GrantPhase::Active)
    {
        return None;
    }
    if grant.spec.revoked == Some(true) {
        let words = "it was revoked: no further use";
        return Some(end(grant, GrantPhase::Revoked, "Revoked", words, now));
    }
    if let Some((reason, words)) = void(findings) {
        let words = visible::one_line(&format!("{}: {words}", reason.words()), 1024);
        return Some(End {
            status: spend::stale(grant, reason, &words, now),
            news: News {
                reason: "Stale",
                note: words,
                warning: true,
            },
        });
    }
    let (phase, reason, words) = match ended::to_record(&grant.spec, Some(&status), now)? {
        EndReason::Spent => (GrantPhase::Exhausted, "Spent", "every use is consumed"),
        EndReason::Expired => (GrantPhase::Expired, "Expired", "its time is over"),
        EndReason::Revoked | EndReason::Stale | EndReason::Unreadable => return None,
    };
    Some(end(grant, phase, reason, words, now))
}

/// The end of a grant that was denied after all before anybody used it.
pub fn denied(grant: &Grant, words: &str, now: Timestamp) -> End {
    let words = visible::one_line(words, 1024);
    end(grant, GrantPhase::Revoked, "Revoked", &words, now)
}

/// The key of a Secret's values in the texts of a permission, if it is another than the one held: nothing compares with them any more.
pub fn lost_key(held: &Redactor, action: &Action, texts: [&str; 2]) -> Option<String> {
    if !held.is_set() || !Redactor::covers(&action.group, &action.resource) {
        return None;
    }
    texts
        .into_iter()
        .find_map(|text| held.other_key(text))
        .map(str::to_owned)
}

fn void(findings: &Findings) -> Option<(StaleReason, String)> {
    if let Standing::Void { reason, words } = &findings.standing {
        return Some((*reason, words.clone()));
    }
    if let Some(key) = &findings.lost_key {
        return Some((StaleReason::KeyLost, format!("it was key {key}")));
    }
    if let Some(found) = &findings.requester {
        return Some(found.clone());
    }
    match &findings.approvals {
        Terms::Lost(words) => Some((StaleReason::ApproverLost, words.clone())),
        Terms::Hold { .. } | Terms::Unknown => None,
    }
}

fn end(grant: &Grant, phase: GrantPhase, reason: &'static str, words: &str, now: Timestamp) -> End {
    let mut status = grant.status.clone().unwrap_or_default();
    status.phase = Some(phase);
    let observed = Observed {
        kind: ENDED,
        status: conditions::TRUE,
        reason,
        message: words,
    };
    conditions::set(
        &mut status.conditions,
        observed,
        grant.metadata.generation,
        now,
    );
    End {
        status,
        news: News {
            reason: match phase {
                GrantPhase::Exhausted => "Exhausted",
                GrantPhase::Expired => "Expired",
                _ => "Revoked",
            },
            note: words.to_owned(),
            warning: false,
        },
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

    use serde_json::{Value, json};

    use super::*;
    use crate::decide::boundary::Doubt;

    const NOT_AFTER: &str = "2026-01-01T10:10:00Z";

    fn grant(uses: Value, revoked: bool, status: Value) -> Grant {
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "Grant", "metadata": {"name": "gr-a", "uid": "g1"},
            "spec": {
                "requestRef": {"name": "ar-a", "uid": "u1"}, "actionKey": "k", "requester": {"username": "bot", "agent": "ops-bot"},
                "action": {"operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "options": "{}"},
                "changeDigest": "c", "state": "{}", "stateDigest": "s", "binding": {"change": "Exact", "state": "TouchedFields"},
                "policySetHash": "p", "uses": uses, "notBefore": "2026-01-01T10:00:00Z", "notAfter": NOT_AFTER, "revoked": revoked,
            },
            "status": status,
        }))
        .unwrap()
    }

    fn used(effects: &[&str]) -> Value {
        let uses: serde_json::Map<String, Value> = effects
            .iter()
            .enumerate()
            .map(|(n, effect)| {
                (
                    format!("{n:036}"),
                    json!({
                        "operation": "UPDATE", "operationID": "op-a", "targetUID": "t", "version": "v1", "contentDigest": "c",
                        "optionsDigest": "o", "policySetHash": "p", "at": "2026-01-01T10:01:00Z", "replica": "r", "effect": effect,
                    }),
                )
            })
            .collect();
        json!({"used": effects.len(), "uses": uses})
    }

    fn findings(standing: Standing, approvals: Terms) -> Findings {
        Findings {
            standing,
            approvals,
            ..Findings::default()
        }
    }

    fn void_by(reason: StaleReason) -> Standing {
        Standing::Void {
            reason,
            words: "it changed".to_owned(),
        }
    }

    #[test]
    fn a_grant_ends_by_the_first_of_revocation_staleness_its_last_use_and_its_time() {
        let early = "2026-01-01T10:05:00Z";
        let lost = || Terms::Lost("ana@example.com may no longer approve".to_owned());
        let same = || findings(Standing::Same, Terms::Unknown);
        let cases = [
            (
                "fresh",
                grant(json!(1), false, json!({})),
                same(),
                early,
                None,
            ),
            (
                "expired",
                grant(json!(1), false, json!({})),
                same(),
                NOT_AFTER,
                Some((GrantPhase::Expired, "Expired")),
            ),
            (
                "revoked",
                grant(json!(1), true, used(&["Confirmed"])),
                findings(void_by(StaleReason::PolicyChanged), lost()),
                NOT_AFTER,
                Some((GrantPhase::Revoked, "Revoked")),
            ),
            (
                "policy",
                grant(json!(1), false, json!({})),
                findings(void_by(StaleReason::PolicyChanged), Terms::Unknown),
                NOT_AFTER,
                Some((GrantPhase::Stale, "PolicyChanged")),
            ),
            (
                "boundary, with an open use",
                grant(json!(1), false, used(&["Pending"])),
                findings(void_by(StaleReason::BoundaryCrossed), Terms::Unknown),
                early,
                Some((GrantPhase::Stale, "BoundaryCrossed")),
            ),
            (
                "approver",
                grant(json!(1), false, json!({})),
                findings(Standing::Same, lost()),
                early,
                Some((GrantPhase::Stale, "ApproverLost")),
            ),
            (
                "spent, open",
                grant(json!(1), false, used(&["Pending"])),
                same(),
                NOT_AFTER,
                None,
            ),
            (
                "spent, settled",
                grant(json!(1), false, used(&["Unknown"])),
                same(),
                early,
                Some((GrantPhase::Exhausted, "Spent")),
            ),
            (
                "spent and expired",
                grant(json!(1), false, used(&["Confirmed"])),
                same(),
                NOT_AFTER,
                Some((GrantPhase::Exhausted, "Spent")),
            ),
            (
                "uses left",
                grant(json!(2), false, used(&["Confirmed"])),
                same(),
                early,
                None,
            ),
            (
                "uses left, open, over",
                grant(json!(2), false, used(&["Pending"])),
                same(),
                NOT_AFTER,
                None,
            ),
            (
                "uses left, settled, over",
                grant(json!(2), false, used(&["Unknown"])),
                same(),
                NOT_AFTER,
                Some((GrantPhase::Expired, "Expired")),
            ),
            (
                "not counted",
                grant(Value::Null, false, used(&["Confirmed"])),
                same(),
                early,
                None,
            ),
            (
                "in doubt",
                grant(json!(1), false, json!({})),
                findings(
                    Standing::CannotTell(Doubt {
                        words: "?".to_owned(),
                        refused: true,
                    }),
                    Terms::Unknown,
                ),
                early,
                None,
            ),
        ];
        for (what, grant, findings, now, expected) in cases {
            let end = plan(&grant, &findings, now.parse().unwrap());
            let found = end.as_ref().map(|end| {
                let condition = conditions::get(&end.status.conditions, ENDED).unwrap();
                assert_eq!(condition.status, conditions::TRUE);
                (end.status.phase.unwrap(), condition.reason.as_str())
            });
            assert_eq!(found, expected, "{what}");
            if let Some(end) = end {
                assert_eq!(
                    end.status.used,
                    grant.status.clone().unwrap_or_default().used
                );
                assert_eq!(end.status.uses, grant.status.unwrap_or_default().uses);
            }
        }
    }

    #[test]
    fn an_ended_grant_is_never_touched_again() {
        for phase in ["Exhausted", "Expired", "Revoked", "Stale", "Sleeping"] {
            let over = grant(json!(1), true, json!({"phase": phase}));
            let findings = findings(
                void_by(StaleReason::AccessRemoved),
                Terms::Lost(String::new()),
            );
            assert_eq!(
                plan(&over, &findings, NOT_AFTER.parse().unwrap()),
                None,
                "{phase}"
            );
        }
    }

    #[test]
    fn a_permission_under_a_fingerprint_key_that_is_gone_is_stale() {
        let (old, new) = (Redactor::new("old", b"one"), Redactor::new("new", b"two"));
        let state = format!(
            r#"{{"/data/password":{{"is":{}}}}}"#,
            old.fingerprint("/data/password", "\"cA==\"")
        );
        let action = |resource: &str| -> Action {
            serde_json::from_value(json!({
                "operation": "UPDATE", "group": "", "version": "v1", "resource": resource, "options": "{}",
            }))
            .unwrap()
        };
        let secrets = action("secrets");
        let found = |held: &Redactor| lost_key(held, &secrets, [&state, "{}"]);
        assert_eq!(found(&new).as_deref(), Some("old"));
        assert_eq!(found(&old), None);
        assert_eq!(found(&Redactor::unset()), None);
        assert_eq!(lost_key(&new, &action("configmaps"), [&state, "{}"]), None);

        let findings = Findings {
            lost_key: found(&new),
            ..Findings::default()
        };
        let end = plan(
            &grant(json!(1), false, json!({})),
            &findings,
            "2026-01-01T10:05:00Z".parse().unwrap(),
        )
        .unwrap();
        assert_eq!(
            conditions::get(&end.status.conditions, ENDED)
                .unwrap()
                .reason,
            "KeyLost"
        );
    }

    #[test]
    fn the_requester_s_account_counts_before_the_approvals() {
        let findings = Findings {
            lost_key: None,
            standing: Standing::Same,
            requester: Some((StaleReason::RequesterReplaced, "another uid".to_owned())),
            approvals: Terms::Lost("x".to_owned()),
        };
        let end = plan(
            &grant(json!(1), false, json!({})),
            &findings,
            "2026-01-01T10:05:00Z".parse().unwrap(),
        )
        .unwrap();
        assert_eq!(
            conditions::get(&end.status.conditions, ENDED)
                .unwrap()
                .reason,
            "RequesterReplaced"
        );
    }
}

//! ApprovalDecisions: whether they counted, and on which requests not, and why.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{
    api::{
        ApprovalDecision, ApprovalRequest,
        approval_decision::{ApprovalDecisionStatus, DecidedRequest},
        approval_request::RequestPhase,
    },
    control::request,
    decide::{
        conditions::{self, COUNTED, Observed},
        visible,
    },
};

/// What became of a vote on one request.
enum Fate {
    Counted,
    Not(String),
    Open,
}

/// The status to write, if it differs from the one that is there. `find` gives the request of a name in the decision's namespace.
pub fn plan<'r>(
    decision: &ApprovalDecision,
    find: impl Fn(&str) -> Option<&'r ApprovalRequest>,
    now: Timestamp,
) -> Option<ApprovalDecisionStatus> {
    let mut refusals = Vec::new();
    let mut open = false;
    for named in &decision.spec.requests {
        match fate(decision, named, find(&named.name)) {
            Fate::Counted => {}
            Fate::Open => open = true,
            Fate::Not(why) => {
                refusals.push(format!("{}: {why}", visible::visible(&named.name)));
            }
        }
    }
    let (status, reason, message) = if !refusals.is_empty() {
        (conditions::FALSE, "NotCounted", refusals.join("; "))
    } else if open {
        // Not looked at yet: saying so would only be one more write.
        return None;
    } else {
        (
            conditions::TRUE,
            "Counted",
            "it counts on every request that it names".to_owned(),
        )
    };
    let message = visible::one_line(&message, 1024);
    let mut next = decision.status.clone().unwrap_or_default();
    let observed = Observed {
        kind: COUNTED,
        status,
        reason,
        message: &message,
    };
    conditions::set(
        &mut next.conditions,
        observed,
        decision.metadata.generation,
        now,
    )
    .then_some(next)
}

fn fate(
    decision: &ApprovalDecision,
    named: &DecidedRequest,
    request: Option<&ApprovalRequest>,
) -> Fate {
    let Some(request) =
        request.filter(|request| request.metadata.uid.as_deref() == Some(named.uid.as_str()))
    else {
        return Fate::Not("there is no such request with that uid".to_owned());
    };
    let status = request.status.clone().unwrap_or_default();
    let row = status
        .votes
        .iter()
        .find(|vote| Some(vote.decision.uid.as_str()) == decision.metadata.uid.as_deref());
    match (row, status.phase) {
        (Some(row), _) if row.counted => Fate::Counted,
        (Some(row), _) => Fate::Not(
            row.why_not
                .clone()
                .unwrap_or_else(|| "it does not count".to_owned()),
        ),
        (None, None) => Fate::Open,
        (None, Some(phase)) => Fate::Not(format!(
            "the request had ended before it was counted ({})",
            word(phase)
        )),
    }
}

fn word(phase: RequestPhase) -> &'static str {
    match phase {
        RequestPhase::Approved => "Approved",
        RequestPhase::Denied => "Denied",
        RequestPhase::Expired => "Expired",
        RequestPhase::Superseded => "Superseded",
        RequestPhase::Unknown => "Unknown",
    }
}

/// The owner references that a decision is to have: it goes when the last request that it names goes. `None`: it has them.
pub fn owners<'r>(
    decision: &ApprovalDecision,
    find: impl Fn(&str) -> Option<&'r ApprovalRequest>,
) -> Option<Vec<OwnerReference>> {
    let mut owners = decision
        .metadata
        .owner_references
        .clone()
        .unwrap_or_default();
    let before = owners.len();
    for named in &decision.spec.requests {
        let there = find(&named.name)
            .is_some_and(|request| request.metadata.uid.as_deref() == Some(&named.uid));
        if there && !owners.iter().any(|owner| owner.uid == named.uid) {
            owners.push(request::owner(&named.name, &named.uid));
        }
    }
    (owners.len() > before).then_some(owners)
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

    fn decision() -> ApprovalDecision {
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalDecision", "metadata": {"name": "d-1", "namespace": "web", "uid": "du"},
            "spec": {
                "requests": [{"name": "ar-a", "uid": "u1", "digest": "d"}, {"name": "ar-b", "uid": "u2", "digest": "d"}],
                "verdict": "Approve",
                "approver": {"username": "ana@example.com", "uid": "", "groups": []},
            },
        }))
        .unwrap()
    }

    fn request(name: &str, uid: &str, status: Value) -> ApprovalRequest {
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalRequest", "metadata": {"name": name, "namespace": "web", "uid": uid},
            "spec": {
                "requester": {"username": "bot", "agent": "ops-bot"},
                "action": {"operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "options": "{}"},
                "actionKey": "k", "changeDigest": "c", "stateDigest": "s", "digest": "d", "change": "{}", "state": "{}",
                "binding": {"change": "Exact", "state": "TouchedFields"}, "policySetHash": "p", "validity": {"uses": 1},
                "denialCooldownSeconds": 60, "deadline": "2026-01-01T10:00:00Z",
            },
            "status": status,
        }))
        .unwrap()
    }

    fn vote(why_not: Option<&str>) -> Value {
        json!({"votes": [{
            "decision": {"name": "d-1", "uid": "du"}, "username": "ana@example.com", "verdict": "Approve",
            "at": "2026-01-01T09:00:00Z", "counted": why_not.is_none(), "whyNot": why_not,
        }]})
    }

    fn counted(a: Option<ApprovalRequest>, b: Option<ApprovalRequest>) -> Option<(String, String)> {
        let find = |name: &str| {
            if name == "ar-a" {
                a.as_ref()
            } else {
                b.as_ref()
            }
        };
        let status = plan(&decision(), find, Timestamp::UNIX_EPOCH)?;
        let condition = status.conditions.into_iter().next()?;
        Some((condition.status, condition.message))
    }

    #[test]
    fn a_decision_counts_only_when_it_counts_on_every_request_it_names() {
        let a = |status| Some(request("ar-a", "u1", status));
        let b = |status| Some(request("ar-b", "u2", status));
        let (status, _) = counted(a(vote(None)), b(vote(None))).unwrap();
        assert_eq!(status, "True");
        let (status, message) =
            counted(a(vote(None)), b(vote(Some("the digest\ndiffers")))).unwrap();
        assert_eq!(
            (status.as_str(), message.as_str()),
            ("False", "ar-b: the digest<U+000A>differs")
        );
        let (status, message) = counted(None, Some(request("ar-b", "other", json!({})))).unwrap();
        assert_eq!(status, "False");
        assert!(
            message.contains("ar-a") && message.contains("ar-b"),
            "{message}"
        );
        let (_, message) = counted(a(json!({"phase": "Denied"})), b(vote(None))).unwrap();
        assert!(message.contains("Denied"), "{message}");
        assert_eq!(
            counted(a(json!({})), b(vote(None))),
            None,
            "not looked at yet"
        );
    }

    #[test]
    fn a_decision_is_owned_by_the_requests_that_are_there_once_each() {
        let (a, b) = (
            request("ar-a", "u1", json!({})),
            request("ar-b", "other", json!({})),
        );
        let find = |name: &str| if name == "ar-a" { Some(&a) } else { Some(&b) };
        let owned = owners(&decision(), find).unwrap();
        assert_eq!(owned.len(), 1);
        let mut again = decision();
        again.metadata.owner_references = Some(owned);
        assert_eq!(owners(&again, find), None);
    }
}

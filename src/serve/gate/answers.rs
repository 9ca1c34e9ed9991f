//! What the gate says: each outcome as one answer.

use jiff::Timestamp;
use kube::ResourceExt;

use super::Decision;
use crate::{
    api::{ApprovalRequest, Grant, approval_request::RequestPhase},
    cluster::{index::Filed, ledger::Refused},
    decide::{
        assess,
        denial::{Denial, Reason},
        live::{Misfit, StaleReason},
        message::{self, Before},
        proposal::Proposal,
        quorum,
        review::Review,
        visible,
    },
    serve::response::{Refusal, Response},
};

/// Why an earlier permission did not serve, for the answer's reason.
pub(super) fn before(
    filed: &Filed,
    request: &ApprovalRequest,
    proposal: &Proposal,
    refusals: &[Refused],
) -> Option<Before> {
    if let Some(previous) = &request.spec.previous {
        let was_approved = filed
            .requests
            .iter()
            .find(|known| known.metadata.uid.as_deref() == Some(previous.uid.as_str()))
            .and_then(|known| known.status.as_ref())
            .is_some_and(|status| status.phase == Some(RequestPhase::Approved));
        let stale = refusals
            .iter()
            .find_map(|Refused { grant, misfit }| match misfit {
                Misfit::Stale { reason, fields, .. }
                    if grant.spec.request_ref.uid == previous.uid =>
                {
                    Some((*reason, fields.clone()))
                }
                _ => None,
            });
        let of = |reason, cause, words: &str| {
            Some(Before {
                reason,
                cause,
                words: words.to_owned(),
                fields: Vec::new(),
            })
        };
        let earlier = match (previous.reason.as_str(), was_approved) {
            ("Spent", _) => of(
                Reason::GrantSpent,
                "Spent",
                "the earlier permission was used up",
            ),
            ("Expired", true) => of(
                Reason::GrantExpired,
                "Expired",
                "the earlier permission expired",
            ),
            ("Revoked", _) => of(
                Reason::GrantStale,
                "Revoked",
                "the earlier permission was revoked",
            ),
            ("Lost", _) => of(Reason::GrantStale, "Lost", "the earlier permission is gone"),
            ("Stale", _) => {
                let (reason, fields) = stale.unwrap_or((StaleReason::Other, Vec::new()));
                Some(Before {
                    reason: Reason::GrantStale,
                    cause: reason.as_str(),
                    words: format!("the earlier permission is stale, {}", reason.words()),
                    fields,
                })
            }
            _ => None,
        };
        if earlier.is_some() {
            return earlier;
        }
    }
    refusals
        .iter()
        .find_map(|Refused { grant, misfit }| match misfit {
            Misfit::Mismatch { fields } if grant.spec.action_key == proposal.action_key => {
                Some(Before {
                    reason: Reason::GrantMismatch,
                    cause: "Mismatch",
                    words: "what is permitted differs".to_owned(),
                    fields: fields.clone(),
                })
            }
            _ => None,
        })
}

pub(super) fn canary(review: &Review<'_>, entry: &str) -> Decision {
    let response = Response::refuse(Refusal {
        reason: Reason::NotApprovable,
        causes: vec![("Canary", entry.to_owned())],
        message: message::canary(entry),
        name: review.name.unwrap_or_default().to_owned(),
        kind: review.resource.to_owned(),
    });
    Decision {
        response,
        verdict: "Deny",
        reason: "Canary",
    }
}

/// A denial that files nothing.
pub fn denied(review: &Review<'_>, denial: &Denial) -> Decision {
    let target = format!(
        "{} {}",
        review.operation.as_str(),
        assess::target_of(review)
    );
    let text = match denial.reason {
        Reason::ApprovalUnavailable => message::unavailable(&target, &denial.words),
        _ => message::refused(&target, &denial.words),
    };
    let response = Response::refuse(Refusal {
        reason: denial.reason,
        message: text,
        causes: vec![(denial.cause, visible::visible(&denial.words))],
        name: visible::visible(review.name.unwrap_or_default()),
        kind: review.resource.to_owned(),
    })
    .audited("decision", "refused")
    .audited("cause", denial.cause);
    Decision {
        response,
        verdict: "Deny",
        reason: denial.cause,
    }
}

/// A denial of a review that cannot be read.
pub fn denied_unread(denial: &Denial) -> Response {
    Response::refuse(Refusal {
        reason: denial.reason,
        message: message::refused("the review", &denial.words),
        causes: vec![(denial.cause, visible::visible(&denial.words))],
        name: String::new(),
        kind: String::new(),
    })
}

pub(super) fn cooling(
    request: &ApprovalRequest,
    proposal: &Proposal,
    until: Timestamp,
) -> Decision {
    let id = format!(
        "{}/{}",
        request.namespace().unwrap_or_default(),
        request.name_any()
    );
    let response = Response::refuse(Refusal {
        reason: Reason::ApprovalDenied,
        message: message::denied(request, proposal, until),
        causes: vec![("ApprovalDenied", id.clone())],
        name: request.name_any(),
        kind: "approvalrequests".to_owned(),
    })
    .audited("decision", "denied")
    .audited("request", id);
    Decision {
        response,
        verdict: "Deny",
        reason: "ApprovalDenied",
    }
}

pub(super) fn approved(request: &ApprovalRequest, proposal: &Proposal, why: &str) -> Decision {
    let id = format!(
        "{}/{}",
        request.namespace().unwrap_or_default(),
        request.name_any()
    );
    let response = Response::refuse(Refusal {
        reason: Reason::ApprovalPending,
        message: message::approved(request, proposal, why),
        causes: vec![("Approved", id.clone())],
        name: request.name_any(),
        kind: "approvalrequests".to_owned(),
    })
    .audited("decision", "approved-not-in-force")
    .audited("request", id);
    Decision {
        response,
        verdict: "Ask",
        reason: "ApprovalPending",
    }
}

pub(super) fn admitted(
    filed: &Filed,
    grant: &Grant,
    operation_id: &str,
    proposal: &Proposal,
    again: bool,
) -> Decision {
    let request = filed.requests.iter().find(|request| {
        request.metadata.uid.as_deref() == Some(grant.spec.request_ref.uid.as_str())
    });
    let approvers: Vec<String> = request
        .and_then(|request| request.status.as_ref())
        .map(|status| {
            let mut names: Vec<String> = status
                .votes
                .iter()
                .filter(|vote| vote.counted)
                .map(|vote| vote.username.clone())
                .collect();
            names.sort();
            names.dedup();
            names
        })
        .unwrap_or_default();
    let used = grant
        .status
        .as_ref()
        .and_then(|status| status.used)
        .unwrap_or(0);
    let left = grant
        .spec
        .uses
        .map(|uses| i64::from(uses).saturating_sub(used));
    let namespace = grant.namespace().unwrap_or_default();
    let rules: Vec<String> = proposal
        .rules
        .policies
        .iter()
        .map(|policy| format!("{}@{}", quorum::policy_label(policy), policy.generation))
        .collect();
    let response = Response::allow()
        .warned(message::admitted(
            &format!("{namespace}/{}", grant.name_any()),
            &approvers,
            left,
        ))
        .audited(
            "decision",
            if again { "admitted-again" } else { "admitted" },
        )
        .audited("grant", format!("{namespace}/{}", grant.name_any()))
        .audited(
            "request",
            format!("{namespace}/{}", grant.spec.request_ref.name),
        )
        .audited("operation", operation_id)
        .audited("approver", approvers.join(","))
        .audited("rule", rules.join(","))
        .audited(
            "digest",
            request.map_or_else(String::new, |request| request.spec.digest.clone()),
        );
    Decision {
        response,
        verdict: "Allow",
        reason: if again { "AdmittedAgain" } else { "Admitted" },
    }
}

//! When a grant no longer serves and when a request is finished. Webhook, controller and plugin ask these two functions.

use jiff::Timestamp;

use super::conditions;
use crate::api::{
    ApprovalRequestSpec, ApprovalRequestStatus, Grant, GrantSpec, GrantStatus,
    approval_request::RequestPhase,
    grant::{GrantPhase, UseEffect},
};

/// Why a grant no longer serves.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum EndReason {
    /// Every use is consumed.
    Spent,
    /// Its time is over.
    Expired,
    /// A person ended it.
    Revoked,
    /// Something that it was bound to changed.
    Stale,
    /// It holds a phase that this version does not know: nothing is allowed with it, and nothing new is asked because of it (`Unready`).
    Unreadable,
}

impl EndReason {
    /// The word that a request's `previous.reason` has for it; for the last one there is none.
    pub fn word(self) -> &'static str {
        match self {
            Self::Spent => "Spent",
            Self::Expired => "Expired",
            Self::Revoked => "Revoked",
            Self::Stale => "Stale",
            Self::Unreadable => "Unknown",
        }
    }

    /// The phase that says the same.
    pub fn phase(self) -> GrantPhase {
        match self {
            Self::Spent => GrantPhase::Exhausted,
            Self::Expired => GrantPhase::Expired,
            Self::Revoked => GrantPhase::Revoked,
            Self::Stale => GrantPhase::Stale,
            Self::Unreadable => GrantPhase::Unknown,
        }
    }
}

/// Why a request is finished: the identical call would make a new one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Finish {
    /// A person said no.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// What it was about changed before anybody decided.
    Superseded,
    /// It was approved and its grant has ended.
    GrantEnded(EndReason),
    /// It was approved and its grant is gone or another's.
    Lost,
    /// It holds a phase that this version does not know (`Unready`).
    Unreadable,
}

impl Finish {
    /// The word of a request's `previous.reason`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Denied => "Denied",
            Self::Expired => "Expired",
            Self::Superseded => "Superseded",
            Self::GrantEnded(reason) => reason.word(),
            Self::Lost => "Lost",
            Self::Unreadable => "Unknown",
        }
    }
}

/// Why a grant has ended at `now`, or nothing while it serves.
///
/// A final phase, `revoked`, `used` = `uses`, or `notAfter` reached; the recorded word comes first. A `notBefore` still to come does
/// not end a grant.
pub fn ended(spec: &GrantSpec, status: Option<&GrantStatus>, now: Timestamp) -> Option<EndReason> {
    match status.and_then(|status| status.phase).unwrap_or_default() {
        GrantPhase::Active => {}
        GrantPhase::Exhausted => return Some(EndReason::Spent),
        GrantPhase::Expired => return Some(EndReason::Expired),
        GrantPhase::Revoked => return Some(EndReason::Revoked),
        GrantPhase::Stale => return Some(EndReason::Stale),
        GrantPhase::Unknown => return Some(EndReason::Unreadable),
    }
    if spec.revoked == Some(true) {
        return Some(EndReason::Revoked);
    }
    let used = status.and_then(|status| status.used).unwrap_or(0);
    if spec.uses.is_some_and(|uses| used >= i64::from(uses)) {
        return Some(EndReason::Spent);
    }
    (now >= spec.not_after.0).then_some(EndReason::Expired)
}

/// The end that may be written into an active grant's phase at `now`. The written word is final, so over an open use neither its last use
/// nor its time is written: the use may still serve again, and the grant must still be able to become stale under it.
pub fn to_record(
    spec: &GrantSpec,
    status: Option<&GrantStatus>,
    now: Timestamp,
) -> Option<EndReason> {
    let phase = status.and_then(|status| status.phase).unwrap_or_default();
    if phase != GrantPhase::Active {
        return None;
    }
    let open = status.is_some_and(|status| {
        let mut uses = status.uses.values();
        uses.any(|used| used.effect == UseEffect::Pending)
    });
    match ended(spec, status, now)? {
        EndReason::Spent | EndReason::Expired if open => None,
        end => Some(end),
    }
}

/// Why a request is finished at `now`, or nothing while a decision or a use is possible.
///
/// `uid` is the request's own. `grant` is the object that `status.grant.name` names, read from a view at least as new as the request:
/// with `status.grant.uid` set and no such object the grant is lost, and no other is ever minted.
pub fn finished(
    uid: &str,
    spec: &ApprovalRequestSpec,
    status: Option<&ApprovalRequestStatus>,
    grant: Option<&Grant>,
    now: Timestamp,
) -> Option<Finish> {
    match status.and_then(|status| status.phase) {
        None => return (now >= spec.deadline.0).then_some(Finish::Expired),
        Some(RequestPhase::Denied) => return Some(Finish::Denied),
        Some(RequestPhase::Expired) => return Some(Finish::Expired),
        Some(RequestPhase::Superseded) => return Some(Finish::Superseded),
        Some(RequestPhase::Unknown) => return Some(Finish::Unreadable),
        Some(RequestPhase::Approved) => {}
    }
    let recorded = status
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    if conditions::holds(recorded, conditions::GRANT_LOST) {
        return Some(Finish::Lost);
    }
    let written = status
        .and_then(|status| status.grant.as_ref())
        .and_then(|grant| grant.uid.as_deref());
    match (grant, written) {
        // Approved, and the grant is not made yet.
        (None, None) => None,
        (None, Some(_)) => Some(Finish::Lost),
        (Some(grant), written) => {
            let both_agree = grant.spec.request_ref.uid == uid
                && written.is_none_or(|written| grant.metadata.uid.as_deref() == Some(written));
            if both_agree {
                ended(&grant.spec, grant.status.as_ref(), now).map(Finish::GrantEnded)
            } else {
                Some(Finish::Lost)
            }
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

    use serde_json::json;

    use super::*;
    use crate::api::ApprovalRequest;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn grant(spec: serde_json::Value, status: serde_json::Value) -> Grant {
        let mut whole = json!({
            "requestRef": {"name": "ar-a", "uid": "u1"}, "actionKey": "k", "requester": {"username": "bot", "agent": "ops-bot"},
            "action": {"operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "options": "{}"},
            "changeDigest": "c", "state": "{}", "stateDigest": "s", "binding": {"change": "Exact", "state": "TouchedFields"},
            "policySetHash": "p", "uses": 1, "notBefore": "2026-01-01T10:00:00Z", "notAfter": "2026-01-01T10:10:00Z",
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "Grant", "metadata": {"name": "gr-a", "uid": "g1"},
            "spec": whole, "status": status,
        }))
        .unwrap()
    }

    fn request(status: serde_json::Value) -> ApprovalRequest {
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalRequest", "metadata": {"name": "ar-a", "uid": "u1"},
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

    fn why(grant: &Grant, now: &str) -> Option<EndReason> {
        ended(&grant.spec, grant.status.as_ref(), at(now))
    }

    fn finish(status: serde_json::Value, grant: Option<&Grant>, now: &str) -> Option<Finish> {
        let request = request(status);
        finished("u1", &request.spec, request.status.as_ref(), grant, at(now))
    }

    #[test]
    fn a_grant_serves_until_the_moment_it_ends() {
        let open = grant(json!({}), json!({}));
        assert_eq!(why(&open, "2026-01-01T10:09:59.999999Z"), None);
        assert_eq!(why(&open, "2026-01-01T10:10:00Z"), Some(EndReason::Expired));
    }

    #[test]
    fn a_grant_is_spent_by_its_last_use_and_uncounted_ones_never_are() {
        assert_eq!(
            why(
                &grant(json!({}), json!({"used": 1})),
                "2026-01-01T10:01:00Z"
            ),
            Some(EndReason::Spent)
        );
        assert_eq!(
            why(
                &grant(json!({"uses": 2}), json!({"used": 1})),
                "2026-01-01T10:01:00Z"
            ),
            None
        );
        assert_eq!(
            why(
                &grant(json!({"uses": null}), json!({"used": 900})),
                "2026-01-01T10:01:00Z"
            ),
            None
        );
    }

    #[test]
    fn a_revoked_grant_has_ended_before_anybody_writes_its_phase() {
        assert_eq!(
            why(
                &grant(json!({"revoked": true}), json!({"used": 1})),
                "2026-01-01T10:01:00Z"
            ),
            Some(EndReason::Revoked)
        );
    }

    #[test]
    fn a_final_phase_ends_a_grant_whatever_else_it_says() {
        for (phase, reason) in [
            ("Exhausted", EndReason::Spent),
            ("Expired", EndReason::Expired),
            ("Revoked", EndReason::Revoked),
            ("Stale", EndReason::Stale),
            ("Sleeping", EndReason::Unreadable),
        ] {
            assert_eq!(
                why(
                    &grant(json!({}), json!({"phase": phase})),
                    "2026-01-01T10:01:00Z"
                ),
                Some(reason)
            );
        }
    }

    #[test]
    fn a_pending_request_is_finished_at_its_deadline() {
        assert_eq!(finish(json!({}), None, "2026-01-01T09:59:59Z"), None);
        assert_eq!(
            finish(json!({}), None, "2026-01-01T10:00:00Z"),
            Some(Finish::Expired)
        );
    }

    #[test]
    fn final_phases_finish_a_request() {
        for (phase, finished) in [
            ("Denied", Finish::Denied),
            ("Expired", Finish::Expired),
            ("Superseded", Finish::Superseded),
            ("Sleeping", Finish::Unreadable),
        ] {
            assert_eq!(
                finish(json!({"phase": phase}), None, "2026-01-01T09:00:00Z"),
                Some(finished)
            );
        }
    }

    #[test]
    fn an_approved_request_lives_as_long_as_its_grant() {
        let approved = json!({"phase": "Approved", "grant": {"name": "gr-a", "uid": "g1"}});
        let open = grant(json!({}), json!({}));
        assert_eq!(
            finish(approved.clone(), Some(&open), "2026-01-01T10:05:00Z"),
            None
        );
        let spent = grant(json!({}), json!({"used": 1}));
        assert_eq!(
            finish(approved.clone(), Some(&spent), "2026-01-01T10:05:00Z"),
            Some(Finish::GrantEnded(EndReason::Spent))
        );
        assert_eq!(
            finish(approved, None, "2026-01-01T10:05:00Z"),
            Some(Finish::Lost)
        );
    }

    #[test]
    fn an_approved_request_without_its_grant_yet_is_not_finished() {
        assert_eq!(
            finish(
                json!({"phase": "Approved", "grant": {"name": "gr-a"}}),
                None,
                "2026-01-01T10:05:00Z"
            ),
            None
        );
        let lost = json!({"phase": "Approved", "grant": {"name": "gr-a"}, "conditions": [{
            "type": "GrantLost", "status": "True", "reason": "AlreadyExists", "message": "", "lastTransitionTime": "2026-01-01T10:00:00Z",
        }]});
        assert_eq!(
            finish(lost, None, "2026-01-01T10:05:00Z"),
            Some(Finish::Lost)
        );
    }

    #[test]
    fn a_grant_that_was_created_again_is_not_the_requests_grant() {
        let approved = json!({"phase": "Approved", "grant": {"name": "gr-a", "uid": "another"}});
        assert_eq!(
            finish(
                approved.clone(),
                Some(&grant(json!({}), json!({}))),
                "2026-01-01T10:05:00Z"
            ),
            Some(Finish::Lost)
        );
        let foreign = grant(
            json!({"requestRef": {"name": "ar-b", "uid": "u2"}}),
            json!({}),
        );
        let written = json!({"phase": "Approved", "grant": {"name": "gr-a", "uid": "g1"}});
        assert_eq!(
            finish(written, Some(&foreign), "2026-01-01T10:05:00Z"),
            Some(Finish::Lost)
        );
    }
}

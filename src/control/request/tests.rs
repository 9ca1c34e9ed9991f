#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        Verdict,
        approval_request::{DecisionRef, Vote},
    },
    decide::{boundary::Doubt, live::StaleReason},
};

const DEADLINE: &str = "2026-01-01T10:30:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn request(status: Value) -> ApprovalRequest {
    serde_json::from_value(json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalRequest",
        "metadata": {"name": "ar-aaaaaaaaaaaaaaaaaaaaaaaaaa", "namespace": "web", "uid": "u1", "generation": 1},
        "spec": {
            "requester": {"username": "bot", "agent": "ops-bot"},
            "action": {"operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "web", "name": "api", "options": "{}"},
            "actionKey": "k", "changeDigest": "c", "stateDigest": "s", "digest": "d", "change": "{}", "state": "{}",
            "binding": {"change": "Exact", "state": "TouchedFields"}, "policySetHash": "p", "validity": {"uses": 1},
            "denialCooldownSeconds": 60, "deadline": DEADLINE,
        },
        "status": status,
    }))
    .unwrap()
}

fn tally(outcome: Outcome) -> Tally {
    let vote = Vote {
        decision: DecisionRef {
            name: "d-1".to_owned(),
            uid: "du-1".to_owned(),
        },
        username: "ana@example.com".to_owned(),
        verdict: Verdict::Approve,
        reason: None,
        at: MicroTime(at("2026-01-01T10:00:00Z")),
        policies: vec!["ClusterApprovalPolicy/p".to_owned()],
        counted: true,
        why_not: None,
    };
    Tally {
        votes: vec![vote],
        outcome,
    }
}

fn yes() -> Outcome {
    Outcome::Approved {
        uses: Some(1),
        duration_seconds: Some(600),
    }
}

fn no() -> Outcome {
    Outcome::Denied {
        by: "ana@example.com".to_owned(),
        decision: "d-1".to_owned(),
        reason: Some("not\ntoday".to_owned()),
    }
}

fn waiting() -> Outcome {
    Outcome::Waiting {
        missing: vec!["1 more of group sre-oncall".to_owned()],
    }
}

fn void() -> Standing {
    Standing::Void {
        reason: StaleReason::AccessRemoved,
        words: "the tool is gone".to_owned(),
    }
}

/// The phase that a plan writes, with the condition's status and reason.
fn written(plan: &Plan) -> (Option<RequestPhase>, String) {
    match plan {
        Plan::Write { status, .. } => {
            let words = |kind: &str| {
                conditions::get(&status.conditions, kind)
                    .map(|c| format!("{kind}={} {}", c.status, c.reason))
            };
            let words = words(GRANT_LOST)
                .or_else(|| words(DECIDED))
                .unwrap_or_default();
            (status.phase, words)
        }
        Plan::Nothing => (None, "nothing".to_owned()),
        Plan::Look => (None, "look".to_owned()),
        Plan::Mint(_) => (None, "mint".to_owned()),
        Plan::EndGrant(_) => (None, "end".to_owned()),
    }
}

#[test]
fn a_pending_request_ends_by_the_first_of_denial_deadline_access_and_quorum() {
    let early = "2026-01-01T10:10:00Z";
    let cases = [
        (
            Some(no()),
            Standing::Same,
            early,
            Some(RequestPhase::Denied),
            "Decided=True Denied",
        ),
        (
            Some(no()),
            void(),
            DEADLINE,
            Some(RequestPhase::Denied),
            "Decided=True Denied",
        ),
        (
            Some(Outcome::Expired),
            void(),
            DEADLINE,
            Some(RequestPhase::Expired),
            "Decided=False Expired",
        ),
        (
            None,
            Standing::Same,
            DEADLINE,
            Some(RequestPhase::Expired),
            "Decided=False Expired",
        ),
        (
            Some(yes()),
            void(),
            early,
            Some(RequestPhase::Superseded),
            "Decided=False AccessRemoved",
        ),
        (
            Some(yes()),
            Standing::Same,
            early,
            Some(RequestPhase::Approved),
            "Decided=True Approved",
        ),
        (
            Some(yes()),
            Standing::CannotTell(Doubt {
                words: "?".to_owned(),
                refused: true,
            }),
            early,
            Some(RequestPhase::Approved),
            "Decided=True Approved",
        ),
        (
            Some(waiting()),
            Standing::Same,
            early,
            None,
            "Decided=False Waiting",
        ),
        (None, Standing::Same, early, None, "nothing"),
    ];
    for (outcome, standing, now, phase, words) in cases {
        let tally = outcome.clone().map(tally);
        let plan = pending(
            &request(json!({})),
            tally.as_ref(),
            None,
            &standing,
            at(now),
        );
        assert_eq!(
            written(&plan),
            (phase, words.to_owned()),
            "{outcome:?} {standing:?} {now}"
        );
        let Plan::Write { status, news } = plan else {
            continue;
        };
        assert_eq!(status.ended_at.is_some(), phase.is_some());
        assert_eq!(
            status.grant.is_some(),
            phase == Some(RequestPhase::Approved)
        );
        assert_eq!(news.is_some(), phase.is_some());
        assert!(news.is_none_or(|news| !news.note.contains('\n')));
    }
}

#[test]
fn an_approval_names_the_grant_before_it_exists() {
    let plan = pending(
        &request(json!({})),
        Some(&tally(yes())),
        None,
        &Standing::Same,
        at("2026-01-01T10:10:00Z"),
    );
    let Plan::Write { status, .. } = plan else {
        panic!("{plan:?}")
    };
    let grant = status.grant.unwrap();
    assert_eq!(
        (grant.name.as_str(), grant.uid),
        ("gr-aaaaaaaaaaaaaaaaaaaaaaaaaa", None)
    );
    assert_eq!(status.votes.len(), 1);
}

#[test]
fn nothing_is_written_twice() {
    let now = at("2026-01-01T10:10:00Z");
    let Plan::Write { status, .. } = pending(
        &request(json!({})),
        Some(&tally(waiting())),
        None,
        &Standing::Same,
        now,
    ) else {
        panic!("the vote is recorded");
    };
    let again = request(serde_json::to_value(&status).unwrap());
    let later = at("2026-01-01T10:11:00Z");
    assert_eq!(
        written(&pending(
            &again,
            Some(&tally(waiting())),
            None,
            &Standing::Same,
            later
        ))
        .1,
        "nothing"
    );
}

#[test]
fn votes_that_cannot_be_counted_are_said_to_be_so() {
    let plan = pending(
        &request(json!({})),
        None,
        Some("the guard is not proven"),
        &Standing::Same,
        at("2026-01-01T10:10:00Z"),
    );
    assert_eq!(written(&plan).1, "Decided=Unknown NotCounted");
}

fn approved_request(grant_uid: Option<&str>) -> ApprovalRequest {
    request(json!({
        "phase": "Approved", "endedAt": "2026-01-01T10:10:00Z",
        "grant": {"name": "gr-aaaaaaaaaaaaaaaaaaaaaaaaaa", "uid": grant_uid},
    }))
}

/// A denial that is recorded already.
fn denied_late() -> Tally {
    Tally {
        votes: Vec::new(),
        outcome: no(),
    }
}

#[test]
fn a_late_denial_is_recorded_before_anything_is_done_about_it_and_old_rows_stay() {
    let request = approved_request(Some("g1"));
    let ours = grant_of(&request, "g1");
    let late = Tally {
        votes: tally(no()).votes,
        outcome: no(),
    };
    let plan = approved(
        &request,
        Named::There(&ours),
        Some(&late),
        &Terms::Unknown,
        at("2026-01-01T10:20:00Z"),
    );
    let Plan::Write { status, news } = plan else {
        panic!("{plan:?}")
    };
    assert_eq!((status.votes.len(), news), (1, None));
}

fn hold() -> Terms {
    Terms::Hold {
        uses: Some(1),
        duration_seconds: Some(600),
    }
}

fn grant_of(request: &ApprovalRequest, uid: &str) -> Grant {
    let mut grant = mint(request, "gr-aaaaaaaaaaaaaaaaaaaaaaaaaa", Some(1), Some(600));
    grant.metadata.uid = Some(uid.to_owned());
    grant
}

#[test]
fn the_run_after_a_crash_continues_where_the_last_one_ended() {
    let request = approved_request(None);
    let ours = grant_of(&request, "g1");
    let mut ended = ours.clone();
    ended.spec.revoked = Some(true);
    let mut others = ours.clone();
    others.spec.request_ref.uid = "u2".to_owned();
    let mut wider = ours.clone();
    wider.spec.uses = None;
    let now = at("2026-01-01T10:20:00Z");
    let cases = [
        ("not looked", Named::Unknown, None, hold(), "look"),
        ("named, not made", Named::Absent, None, hold(), "mint"),
        (
            "made, uid not written",
            Named::There(&ours),
            None,
            hold(),
            "",
        ),
        (
            "made and revoked, uid not written",
            Named::There(&ended),
            None,
            hold(),
            "",
        ),
        (
            "the name is another's",
            Named::There(&others),
            None,
            hold(),
            "GrantLost=True NameTaken",
        ),
        (
            "it permits more",
            Named::There(&wider),
            None,
            hold(),
            "GrantLost=True NotAsMinted",
        ),
        (
            "denied before it was made",
            Named::Absent,
            Some("no"),
            hold(),
            "GrantLost=True Denied",
        ),
        (
            "the approval no longer holds",
            Named::Absent,
            None,
            Terms::Lost("x".to_owned()),
            "GrantLost=True ApprovalLost",
        ),
        (
            "rights are not known",
            Named::Absent,
            None,
            Terms::Unknown,
            "nothing",
        ),
    ];
    for (what, named, denial, terms, expected) in cases {
        let denial = denial.map(|_: &str| denied_late());
        let plan = approved(&request, named, denial.as_ref(), &terms, now);
        assert_eq!(written(&plan).1, expected, "{what}");
        if let (Plan::Write { status, .. }, "") = (&plan, expected) {
            assert_eq!(
                status.grant.as_ref().unwrap().uid.as_deref(),
                Some("g1"),
                "{what}"
            );
        }
    }
}

#[test]
fn once_its_uid_is_written_no_other_grant_is_ever_made() {
    let request = approved_request(Some("g1"));
    let (ours, copy) = (grant_of(&request, "g1"), grant_of(&request, "g2"));
    let mut used = ours.clone();
    used.status = serde_json::from_value(json!({"used": 1})).unwrap();
    let mut stale = ours.clone();
    stale.status = serde_json::from_value(json!({"phase": "Stale"})).unwrap();
    let now = at("2026-01-01T10:20:00Z");
    let cases = [
        ("not looked", Named::Unknown, None, "look"),
        ("there", Named::There(&ours), None, "nothing"),
        ("deleted", Named::Absent, None, "GrantLost=True Gone"),
        (
            "deleted and restored",
            Named::There(&copy),
            None,
            "GrantLost=True Gone",
        ),
        (
            "denied before the first use",
            Named::There(&ours),
            Some("no"),
            "end",
        ),
        (
            "denied after the first use",
            Named::There(&used),
            Some("no"),
            "nothing",
        ),
        (
            "denied after it ended",
            Named::There(&stale),
            Some("no"),
            "nothing",
        ),
    ];
    for (what, named, denial, expected) in cases {
        let denial = denial.map(|_: &str| denied_late());
        for terms in [hold(), Terms::Unknown, Terms::Lost("x".to_owned())] {
            assert_eq!(
                written(&approved(&request, named, denial.as_ref(), &terms, now)).1,
                expected,
                "{what}"
            );
        }
    }
    let mut lost = approved_request(None);
    let status = lost.status.as_mut().unwrap();
    status.conditions = serde_json::from_value(json!([{
        "type": "GrantLost", "status": "True", "reason": "Denied", "message": "", "lastTransitionTime": "2026-01-01T10:10:00Z",
    }]))
    .unwrap();
    for named in [Named::Absent, Named::There(&ours), Named::Unknown] {
        assert_eq!(
            written(&approved(&lost, named, None, &hold(), now)).1,
            "nothing"
        );
    }
}

#[test]
fn a_grant_is_a_function_of_what_is_stored() {
    let request = approved_request(None);
    let grant = mint(&request, "gr-a", Some(2), None);
    assert_eq!(grant.spec.not_before.0, at("2026-01-01T10:10:00Z"));
    assert_eq!(grant.spec.not_after.0, at("2026-01-02T10:10:00Z"));
    assert_eq!(grant.spec.uses, Some(2));
    let owners = grant.metadata.owner_references.unwrap();
    assert_eq!(
        (owners[0].uid.as_str(), owners[0].block_owner_deletion),
        ("u1", None)
    );
    assert_eq!(
        mint(&request, "gr-a", None, Some(i32::MAX))
            .spec
            .not_after
            .0,
        at("2026-01-02T10:10:00Z")
    );
}

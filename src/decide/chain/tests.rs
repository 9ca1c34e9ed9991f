#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;
use crate::{
    api::{approval_policy::StateBinding, grant::GrantPhase},
    decide::permission_for_tests::{
        after, again, grant, now, proposal, request, set_change, set_state,
    },
};

fn linked<'r>(requests: &[RequestView<'r>], proposal: &Proposal, second: i64) -> Link<'r> {
    link(requests, proposal, after(second))
}

fn alone(request: &ApprovalRequest) -> Vec<RequestView<'_>> {
    vec![RequestView {
        request,
        grant: None,
        looked: true,
    }]
}

#[test]
fn the_first_attempt_files_and_a_repeat_reuses() {
    let proposal = proposal();
    let Link::File { previous: None, .. } = linked(&[], &proposal, 0) else {
        panic!("nothing is there")
    };
    let pending = request(&proposal, "r1", None);
    assert!(
        matches!(
            linked(&alone(&pending), &again(&proposal, 2, "150", 8), 1),
            Link::Pending(_)
        ),
        "a newer base of one state"
    );
}

#[test]
fn another_change_has_a_chain_of_its_own() {
    let pending = request(&proposal(), "r1", None);
    let mut other = proposal();
    set_change(&mut other, r#"{"/spec/replicas":{"to":6}}"#);
    assert!(matches!(
        linked(&alone(&pending), &other, 1),
        Link::File { previous: None, .. }
    ));
    let mut for_somebody = proposal();
    for_somebody.requester.on_behalf_of = Some("ana".into());
    assert!(matches!(
        linked(&alone(&pending), &for_somebody, 1),
        Link::File { previous: None, .. }
    ));
}

#[test]
fn a_pending_request_whose_state_moved_is_superseded_only_by_a_newer_view() {
    let pending = request(&proposal(), "r1", None);
    let mut moved = again(&proposal(), 2, "150", 8);
    set_state(&mut moved, r#"{"/spec/replicas":{"is":4},"uid":"t1"}"#);
    assert!(matches!(
        linked(&alone(&pending), &moved, 1),
        Link::Supersede { .. }
    ));
    let mut older = again(&proposal(), 2, "90", 6);
    set_state(&mut older, r#"{"/spec/replicas":{"is":2},"uid":"t1"}"#);
    assert!(matches!(
        linked(&alone(&pending), &older, 1),
        Link::OldView(_)
    ));
}

#[test]
fn a_pending_request_is_superseded_for_what_differs() {
    let pending = request(&proposal(), "r1", None);
    let reason = |change: &dyn Fn(&mut Proposal)| {
        let mut changed = again(&proposal(), 2, "101", 7);
        change(&mut changed);
        match linked(&alone(&pending), &changed, 1) {
            Link::Supersede { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    };
    // Whether our copies of policies are the present ones is asked before it is written: a proposal cannot tell.
    assert_eq!(
        reason(&|p| p.rules.policy_set_hash = "v1:sha256:other".into()),
        StaleReason::PolicyChanged
    );
    assert_eq!(
        reason(&|p| p.bound.state_digest = "v1:sha256:other".into()),
        StaleReason::StateMoved
    );
    assert_eq!(
        reason(&|p| p.action.target_uid = Some("another".into())),
        StaleReason::TargetReplaced
    );
    // Bound otherwise, the state differs although nothing moved.
    assert_eq!(
        reason(&|p| {
            p.rules.binding.state = StateBinding::WholeObject;
            p.bound.state_digest = "v1:sha256:other".into();
        }),
        StaleReason::PolicyChanged
    );
}

#[test]
fn nothing_is_filed_for_a_minute_after_a_request_was_stored_otherwise_than_it_was_sent() {
    let mut altered = request(&proposal(), "r1", Some(RequestPhase::Superseded));
    let status = altered.status.as_mut().unwrap();
    status.ended_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(
        after(0),
    ));
    conditions::set(
        &mut status.conditions,
        conditions::Observed {
            kind: conditions::DECIDED,
            status: conditions::FALSE,
            reason: NOT_AS_FILED,
            message: "",
        },
        None,
        after(0),
    );
    assert!(matches!(
        linked(&alone(&altered), &proposal(), 59),
        Link::Altered { .. }
    ));
    assert!(matches!(
        linked(&alone(&altered), &proposal(), 60),
        Link::File { .. }
    ));
}

#[test]
fn a_no_after_the_yes_cools_down_too() {
    let mut request = request(&proposal(), "r1", Some(RequestPhase::Approved));
    request.status.as_mut().unwrap().votes = vec![
        serde_json::from_value(serde_json::json!({
            "decision": {"name": "d", "uid": "u"}, "username": "ana@example.com", "verdict": "Deny",
            "at": after(5).to_string(), "counted": true,
        }))
        .unwrap(),
    ];
    let mut grant = grant(&proposal(), Some(1));
    grant.spec.revoked = Some(true);
    let view = RequestView {
        request: &request,
        grant: Some(&grant),
        looked: true,
    };
    let Link::CoolingDown { until, .. } = linked(&[view], &proposal(), 64) else {
        panic!("cooling down")
    };
    assert_eq!(until, after(65));
    assert!(matches!(
        linked(&[view], &proposal(), 65),
        Link::File { .. }
    ));
}

#[test]
fn a_request_with_a_word_that_is_not_known_is_neither_finished_nor_followed_by_another() {
    let unknown = request(&proposal(), "r1", Some(RequestPhase::Unknown));
    assert!(matches!(
        linked(&alone(&unknown), &proposal(), 1),
        Link::Unreadable(_)
    ));
    let approved = request(&proposal(), "r1", Some(RequestPhase::Approved));
    let mut grant = grant(&proposal(), Some(1));
    grant.status = Some(crate::api::grant::GrantStatus {
        phase: Some(GrantPhase::Unknown),
        ..Default::default()
    });
    let view = RequestView {
        request: &approved,
        grant: Some(&grant),
        looked: true,
    };
    assert!(matches!(
        linked(&[view], &proposal(), 1),
        Link::Unreadable(_)
    ));
}

#[test]
fn ft4_a_denied_call_waits_for_the_cool_down_and_then_asks_anew_naming_its_predecessor() {
    let denied = request(&proposal(), "r1", Some(RequestPhase::Denied));
    let Link::CoolingDown { until, .. } = linked(&alone(&denied), &proposal(), 59) else {
        panic!("cooling down")
    };
    assert_eq!(until, after(60));
    let Link::File {
        previous: Some(previous),
        ..
    } = linked(&alone(&denied), &proposal(), 60)
    else {
        panic!("asks anew")
    };
    assert_eq!(
        (previous.uid.as_str(), previous.reason.as_str()),
        ("r1", "Denied")
    );
}

#[test]
fn each_way_to_end_makes_the_next_link_and_names_why() {
    let proposal = proposal();
    let reason = |view: RequestView<'_>, second| match linked(&[view], &proposal, second) {
        Link::File {
            previous: Some(previous),
            ..
        } => previous.reason,
        other => panic!("{other:?}"),
    };
    let approved = request(&proposal, "r1", Some(RequestPhase::Approved));
    let ended = |change: &dyn Fn(&mut Grant)| {
        let mut grant = grant(&proposal, Some(1));
        change(&mut grant);
        reason(
            RequestView {
                request: &approved,
                grant: Some(&grant),
                looked: true,
            },
            1,
        )
    };
    assert_eq!(ended(&|grant| grant.spec.revoked = Some(true)), "Revoked");
    assert_eq!(
        ended(&|grant| grant.status.get_or_insert_default().used = Some(1)),
        "Spent"
    );
    assert_eq!(ended(&|grant| grant.spec.not_after.0 = now()), "Expired");
    assert_eq!(
        reason(
            RequestView {
                request: &approved,
                grant: None,
                looked: true,
            },
            1
        ),
        "Lost"
    );
    let pending = request(&proposal, "r1", None);
    assert_eq!(
        reason(
            RequestView {
                request: &pending,
                grant: None,
                looked: true,
            },
            1800
        ),
        "Expired"
    );
    let superseded = request(&proposal, "r1", Some(RequestPhase::Superseded));
    assert_eq!(
        reason(
            RequestView {
                request: &superseded,
                grant: None,
                looked: true,
            },
            1
        ),
        "Superseded"
    );
}

#[test]
fn the_newest_finished_one_is_the_predecessor_and_names_differ_along_the_chain() {
    let proposal = proposal();
    let first = request(&proposal, "r1", Some(RequestPhase::Superseded));
    let mut second = request(&proposal, "r2", Some(RequestPhase::Superseded));
    second.spec.previous = Some(Previous {
        name: "ar-r1".into(),
        uid: "r1".into(),
        reason: "Superseded".into(),
    });
    let views = [
        RequestView {
            request: &second,
            grant: None,
            looked: true,
        },
        RequestView {
            request: &first,
            grant: None,
            looked: true,
        },
    ];
    let Link::File {
        previous: Some(previous),
        name,
    } = linked(&views, &proposal, 1)
    else {
        panic!("the next link")
    };
    assert_eq!(previous.uid, "r2");
    let Link::File {
        name: after_first, ..
    } = linked(&alone(&first), &proposal, 1)
    else {
        panic!("the next link")
    };
    assert_ne!(name, after_first);
}

#[test]
fn a_grant_that_is_not_known_here_yet_is_looked_for_before_it_counts_as_lost() {
    let mut approved = request(&proposal(), "r1", Some(RequestPhase::Approved));
    approved.status.as_mut().unwrap().grant =
        Some(serde_json::from_value(serde_json::json!({"name": "gr-a", "uid": "g1"})).unwrap());
    let view = |looked| RequestView {
        request: &approved,
        grant: None,
        looked,
    };
    assert!(matches!(
        linked(&[view(false)], &proposal(), 1),
        Link::Approved(_)
    ));
    let Link::File { previous, .. } = linked(&[view(true)], &proposal(), 1) else {
        panic!("it is gone")
    };
    assert_eq!(previous.unwrap().reason, "Lost");
}

#[test]
fn an_approved_request_waits_for_its_grant() {
    let mut approved = request(&proposal(), "r1", Some(RequestPhase::Approved));
    if let Some(grant) = approved
        .status
        .as_mut()
        .and_then(|status| status.grant.as_mut())
    {
        grant.uid = None;
    }
    assert!(matches!(
        linked(&alone(&approved), &proposal(), 1),
        Link::Approved(_)
    ));
}

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use super::*;
use crate::cli::eligible::About;
use crate::cli::{
    counted::outcome,
    fixtures::{request, seen},
};

fn now() -> Timestamp {
    "2026-01-01T10:06:00Z".parse().unwrap()
}

fn decision(status: Value) -> ApprovalDecision {
    serde_json::from_value(json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalDecision", "metadata": {"name": "d-a", "namespace": "web", "uid": "d1"},
        "spec": {"requests": [{"name": "ar-7f3k", "uid": "u1", "digest": "v1:sha256:0"}], "verdict": "Approve"}, "status": status,
    }))
    .unwrap()
}

fn vote(username: &str, counted: bool) -> Value {
    json!({
        "decision": {"name": "d-a", "uid": "d1"}, "username": username, "verdict": "Approve", "at": "2026-01-01T10:05:00Z",
        "policies": ["ClusterApprovalPolicy/production-changes"], "counted": counted, "whyNot": "not among the approvers",
    })
}

fn code(outcome: Option<Result<Printed, Failure>>) -> Option<u8> {
    outcome.map(|outcome| {
        outcome.map_or_else(
            |failure| failure.exit().code(),
            |printed| printed.exit().code(),
        )
    })
}

#[test]
fn a_prefix_needs_eight_hex_digits_and_may_carry_its_tag() {
    let digest = format!("v1:sha256:9f31c2a4{}", "0".repeat(56));
    for right in [
        "9f31c2a4",
        "9F31C2A4",
        "v1:sha256:9f31c2a4",
        "9f31c2a40000",
        digest.as_str(),
    ] {
        assert!(Prefix::parse(right).unwrap().fits(&digest), "{right}");
    }
    for wrong in [
        "9f31c2a",
        "v1:sha256:9f31c2a",
        "",
        "9f31c2ag",
        "9f31c2a4 ",
        &format!("{digest}0"),
    ] {
        assert!(
            matches!(Prefix::parse(wrong), Err(Failure::Usage(_))),
            "{wrong}"
        );
    }
    assert!(!Prefix::parse("9f31c2a5").unwrap().fits(&digest));
    assert!(!Prefix::parse("9f31c2a4").unwrap().fits("9f31c2a4"));
}

#[test]
fn another_digest_is_stale_and_names_the_one_that_is_there() {
    let seen = seen(json!({}), json!({}));
    let failure = Prefix::parse("0123456789")
        .unwrap()
        .check(&seen)
        .unwrap_err();
    assert_eq!(failure.exit().code(), 7);
    let text = failure.text();
    assert!(
        text.contains(&prefix(&seen.recomputed))
            && text.contains("kubectl grantgate show ar-7f3k -n web"),
        "{text}"
    );
    assert_eq!(
        Prefix::parse(&prefix(&seen.recomputed))
            .unwrap()
            .check(&seen),
        Ok(())
    );
}

#[test]
fn a_request_that_does_not_hold_what_it_states_cannot_be_approved_by_either_digest() {
    let mut object = request(json!({}), json!({}));
    let first = crate::cli::seen::spec_digest(&object.to_string()).unwrap();
    object["spec"]["digest"] = json!(first);
    object["spec"]["change"] = json!("{}");
    let seen = Seen::parse(&object.to_string()).unwrap();
    for digest in [&seen.request.spec.digest, &seen.recomputed] {
        assert_eq!(
            Prefix::parse(digest)
                .unwrap()
                .check(&seen)
                .unwrap_err()
                .exit()
                .code(),
            7
        );
    }
}

#[test]
fn what_is_decided_is_refused_with_its_own_code() {
    let refused = |status: Value, verdict| {
        undecided(&seen(json!({}), status), verdict, now())
            .err()
            .map(|failure| failure.exit().code())
    };
    assert_eq!(refused(json!({}), Verdict::Approve), None);
    assert_eq!(refused(json!({"phase": "Denied"}), Verdict::Deny), Some(3));
    assert_eq!(
        refused(json!({"phase": "Denied"}), Verdict::Approve),
        Some(5)
    );
    assert_eq!(
        refused(json!({"phase": "Expired"}), Verdict::Approve),
        Some(5)
    );
    assert_eq!(refused(json!({"phase": "Expired"}), Verdict::Deny), Some(5));
    assert_eq!(
        refused(json!({"phase": "Superseded"}), Verdict::Approve),
        Some(7)
    );
    let approved = json!({"phase": "Approved", "grant": {"name": "gr-a", "uid": "g1"}});
    assert_eq!(refused(approved.clone(), Verdict::Approve), Some(3));
    assert_eq!(
        refused(approved.clone(), Verdict::Deny),
        None,
        "it counts until the first use"
    );
    let mut used = seen(json!({}), approved);
    let mut grant = crate::cli::fixtures::grant("gr-a", json!({"uses": 3}), json!({"used": 1}));
    grant["metadata"]["uid"] = json!("g1");
    used.grant = Some(serde_json::from_value(grant).unwrap());
    let failure = undecided(&used, Verdict::Deny, now()).unwrap_err();
    assert_eq!(failure.exit().code(), 1);
    assert_eq!(failure.next(), ["kubectl grantgate revoke gr-a -n web"]);
    let late = "2026-01-01T10:30:00Z".parse().unwrap();
    assert_eq!(
        undecided(&seen(json!({}), json!({})), Verdict::Approve, late)
            .unwrap_err()
            .exit()
            .code(),
        5
    );
}

#[test]
fn the_same_vote_twice_changes_nothing() {
    let seen = seen(json!({}), json!({"votes": [vote("ana@example.com", true)]}));
    let person = |name: &str| Person {
        username: name.into(),
        groups: vec![],
    };
    let failure = not_voted(&seen, Verdict::Approve, &person("ana@example.com")).unwrap_err();
    assert_eq!(failure.exit().code(), 3);
    assert_eq!(
        not_voted(&seen, Verdict::Approve, &person("bo@example.com")),
        Ok(())
    );
    assert_eq!(
        not_voted(&seen, Verdict::Deny, &person("ana@example.com")),
        Ok(())
    );
}

#[test]
fn a_counted_vote_says_who_else_is_awaited() {
    let seen = seen(json!({}), json!({"votes": [vote("ana@example.com", true)]}));
    let printed = outcome(&seen, Verdict::Approve, &decision(json!({})), now())
        .unwrap()
        .unwrap();
    assert_eq!(
        printed.table,
        "approvalrequest.grantgate.dev/ar-7f3k approved (1 of 2; waiting for 2 of group sre-oncall or user ana@example.com (has 1) \
         for ClusterApprovalPolicy/production-changes)\n"
    );
}

#[test]
fn a_vote_that_does_not_count_says_why() {
    let ignored = seen(json!({}), json!({"votes": [vote("bo@example.com", false)]}));
    let failure = outcome(&ignored, Verdict::Approve, &decision(json!({})), now())
        .unwrap()
        .unwrap_err();
    assert_eq!(failure.exit().code(), 6);
    assert!(failure.text().contains("not among the approvers"));
    let refused = json!({"conditions": [{
        "type": "Counted", "status": "False", "reason": "BeforeGuard", "message": "before the guard\u{1b}", "lastTransitionTime": "2026-01-01T10:05:00Z",
    }]});
    let failure = outcome(
        &seen(json!({}), json!({})),
        Verdict::Approve,
        &decision(refused),
        now(),
    )
    .unwrap()
    .unwrap_err();
    assert!(failure.text().contains("before the guard<U+001B>"));
}

#[test]
fn a_vote_that_comes_too_late_ends_with_what_came_first() {
    let after = |status: Value| {
        code(outcome(
            &seen(json!({}), status),
            Verdict::Approve,
            &decision(json!({})),
            now(),
        ))
    };
    assert_eq!(after(json!({})), None);
    assert_eq!(after(json!({"phase": "Superseded"})), Some(7));
    assert_eq!(after(json!({"phase": "Denied"})), Some(5));
    assert_eq!(after(json!({"phase": "Expired"})), Some(5));
}

#[test]
fn the_vote_names_uid_and_whole_digest_and_leaves_its_author_out() {
    let seen = seen(json!({}), json!({}));
    assert_eq!(
        body(
            &seen,
            Verdict::Approve,
            Some(json!({"uses": 1})),
            Some("CHG-881")
        )["spec"],
        json!({
            "requests": [{"name": "ar-7f3k", "uid": "u1", "digest": seen.recomputed}],
            "verdict": "Approve", "reason": "CHG-881", "validity": {"uses": 1},
        })
    );
}

#[test]
fn whoever_counts_nowhere_learns_which_list_is_missing() {
    let seen = seen(json!({}), json!({}));
    let spec = &seen.request.spec;
    let policy = &spec.policies[0];
    let judge = |username: &str, groups: &[&str], holds_verb: bool| {
        let person = Person {
            username: username.into(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        };
        let standings = [Standing {
            policy,
            bars: eligible::bars(policy, spec, &person, holds_verb, &About::default()),
        }];
        eligible::refusal("request web/ar-7f3k", spec, &person, &standings)
            .map(|failure| failure.text())
    };
    assert_eq!(judge("cy@example.com", &["sre-oncall"], true), None);
    assert_eq!(judge("ana@example.com", &[], true), None);
    assert_eq!(
        judge("cy@example.com", &["sre-oncall"], false).unwrap(),
        "error: not allowed: cy@example.com may not decide request web/ar-7f3k; nothing was sent\n  \
         - RBAC: cy@example.com lacks verb approve on clusterapprovalpolicies.grantgate.dev production-changes in namespace web\n\
         next:\n  kubectl create rolebinding grantgate-approver -n web --clusterrole=grantgate-approver --user=cy@example.com"
    );
    let stranger = judge("dee@example.com", &[], true).unwrap();
    assert!(stranger.contains("policy membership: ClusterApprovalPolicy/production-changes wants 2 of group sre-oncall"), "{stranger}");
    assert!(
        stranger.contains(
            "kubectl get clusterapprovalpolicies.grantgate.dev production-changes -o yaml"
        ),
        "{stranger}"
    );
    let own = judge(
        "system:serviceaccount:agents:ops-bot",
        &["sre-oncall"],
        true,
    )
    .unwrap();
    assert!(
        own.contains("does not list ServiceAccount")
            && own.contains("requesters may not decide their own"),
        "{own}"
    );
}

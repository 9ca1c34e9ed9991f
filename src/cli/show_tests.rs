#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use serde_json::Value;

use super::*;
use crate::{
    cli::{
        fixtures::{request, seen},
        person::Person,
        seen::spec_digest,
    },
    decide::canonical,
};

fn now() -> Timestamp {
    "2026-01-01T10:06:00Z".parse().unwrap()
}

#[test]
fn a_request_is_shown_facts_first_and_with_its_whole_change() {
    let status = json!({"votes": [
        {
            "decision": {"name": "d-a", "uid": "d1"}, "username": "ana@example.com", "verdict": "Approve", "reason": "CHG-881",
            "at": "2026-01-01T10:03:00Z", "policies": ["ClusterApprovalPolicy/production-changes"], "counted": true,
        },
        {
            "decision": {"name": "d-b", "uid": "d2"}, "username": "bo@example.com", "verdict": "Approve",
            "at": "2026-01-01T10:04:00Z", "counted": false, "whyNot": "not among the approvers",
        },
    ]});
    let seen = seen(
        json!({"previous": {"name": "ar-old", "uid": "u0", "reason": "Expired"}}),
        status,
    );
    let person = Person {
        username: "cy@example.com".into(),
        groups: vec!["sre-oncall".into()],
    };
    let policy = &seen.request.spec.policies[0];
    let standings = [Standing {
        policy,
        bars: eligible::bars(
            policy,
            &seen.request.spec,
            &person,
            false,
            &eligible::About::default(),
        ),
    }];
    let text = render(
        &seen,
        "https://127.0.0.1:6443",
        Some((&person.username, &standings)),
        now(),
    );
    let digest = &seen.recomputed;
    let short = prefix(digest);
    assert_eq!(
        text,
        format!(
            r#"UPDATE  deployments.apps/scale web/api
Nothing has been executed.

Request        web/ar-7f3k uid u1
Cluster        https://127.0.0.1:6443
Requester      system:serviceaccount:agents:ops-bot (authenticated), agent ops-bot
Target         deployments/scale (apps v1) api in namespace web
Target uid     t1
State          Pending, 1 of 2 approvals, 24m left (until 2026-01-01T10:30:00Z), then it expires; nothing is approved by waiting
Digest         {digest} (recomputed here: equal)
Grant would be good for one use within 600 s of approval, of exactly this change
Proposed on    resourceVersion 881, generation 4
Previous       ar-old for the same change ended: Expired

Change (1 field):
  /spec/replicas
    - 2
    + 5

Applies to this state (the old value of each changed field, and /metadata/labels/env); a grant is stale once any of it differs:
  {{
    "/spec/replicas": 2
  }}

Policies that matched, and who decides:
  ClusterApprovalPolicy/production-changes (generation 4): 2 of group sre-oncall or user ana@example.com; requester and owner may not decide; needs a reason to Deny
  ApprovalPolicy/web/limits (generation 1): asks nobody, only adds limits
  You (cy@example.com) for ClusterApprovalPolicy/production-changes: no: lacks RBAC verb approve in namespace web

Votes:
  Approve by ana@example.com, 3m ago, says "CHG-881": counts for ClusterApprovalPolicy/production-changes
  Approve by bo@example.com, 2m ago: does not count: not among the approvers

To decide:
  kubectl grantgate approve ar-7f3k -n web --digest {short} --reason "..."
  kubectl grantgate deny ar-7f3k -n web --reason "..."
"#
        )
    );
}

#[test]
fn nothing_from_the_cluster_reaches_the_terminal_raw() {
    let evil = "x\u{1b}[2J\u{202e}\u{200b}\n\tState  Approved";
    let quoted = serde_json::to_string(evil).unwrap();
    let seen = seen(
        json!({
            "requester": {"username": evil, "agent": evil, "uid": evil, "onBehalfOf": evil},
            "action": {
                "operation": "DELETE", "group": evil, "version": evil, "resource": evil, "subresource": evil, "namespace": evil,
                "name": evil, "targetUID": evil, "options": quoted,
            },
            "digest": evil, "change": quoted, "state": quoted,
            "diff": [{"path": evil, "from": quoted, "to": evil}, {"path": evil, "from": quoted, "to": quoted}],
            "base": {"resourceVersion": evil},
            "binding": {"change": "Exact", "state": "Identity", "stateFields": [evil], "volatile": [{"path": evil, "shape": "Timestamp"}]},
            "facts": [{"type": evil, "value": evil, "source": evil}],
            "previous": {"name": evil, "uid": evil, "reason": evil},
            "policies": [{
                "kind": evil, "namespace": evil, "name": evil, "uid": evil, "generation": 1, "hash": evil,
                "approvers": {"required": [{"count": 1, "from": [
                    {"user": evil}, {"group": evil}, {"serviceAccount": {"namespace": evil, "name": evil}},
                ]}]},
            }],
        }),
        json!({
            "phase": "Approved", "grant": {"name": evil},
            "votes": [{
                "decision": {"name": evil, "uid": evil}, "username": evil, "verdict": "Deny", "reason": evil,
                "at": "2026-01-01T10:04:00Z", "counted": false, "whyNot": evil, "policies": [evil],
            }],
        }),
    );
    let policy = &seen.request.spec.policies[0];
    let standings = [Standing {
        policy,
        bars: vec![crate::decide::standing::Bar::Verb],
    }];
    let text = render(
        &seen,
        "https://127.0.0.1:6443",
        Some((evil, &standings)),
        now(),
    );
    let hidden: Vec<char> = text
        .chars()
        .filter(|c| *c != '\n' && crate::decide::visible::is_hidden(*c) && *c != '→')
        .collect();
    assert_eq!(hidden, [], "{text}");
    assert!(
        !text
            .lines()
            .any(|line| line.starts_with("State  Approved") || line.starts_with('\t')),
        "{text}"
    );
    assert!(text.contains("x<U+001B>[2J<U+202E><U+200B>"), "{text}");
}

#[test]
fn the_digest_is_over_the_spec_as_sent_without_itself() {
    let text = |spec: &str| {
        format!("{{\"apiVersion\":\"x\",\"metadata\":{{\"name\":\"a\"}},\"spec\":{spec}}}")
    };
    let one = spec_digest(&text(
        r#"{"b":1.0,"a":{"z":1,"y":2},"digest":"v1:sha256:0"}"#,
    ))
    .unwrap();
    assert_eq!(
        one,
        spec_digest(&text(
            r#"{ "a" : {"y":2,"z":1}, "digest":"another", "b":1.0 }"#
        ))
        .unwrap()
    );
    assert_eq!(one, canonical::digest(r#"{"a":{"y":2,"z":1},"b":1.0}"#));
    assert_ne!(
        one,
        spec_digest(&text(r#"{"b":1,"a":{"z":1,"y":2},"digest":"v1:sha256:0"}"#)).unwrap()
    );
}

#[test]
fn a_request_that_was_tampered_with_is_shown_as_such_and_offers_no_decision() {
    let mut object = request(json!({}), json!({}));
    object["spec"]["digest"] = json!(spec_digest(&object.to_string()).unwrap());
    object["spec"]["diff"][0]["to"] = json!("3");
    let seen = Seen::parse(&object.to_string()).unwrap();
    let text = render(&seen, "https://127.0.0.1:6443", None, now());
    assert!(text.contains("DOES NOT MATCH"), "{text}");
    assert!(text.contains("Do not decide"), "{text}");
    assert!(!text.contains("grantgate approve"), "{text}");
}

#[test]
fn every_end_is_told_apart() {
    let words = |status: Value| state(&seen(json!({}), status), now());
    assert!(
        words(json!({"phase": "Denied", "endedAt": "2026-01-01T10:05:00Z"}))
            .starts_with("Denied at 2026-01-01T10:05:00Z")
    );
    assert!(words(json!({"phase": "Expired"})).starts_with("Expired: nobody decided"));
    assert!(words(json!({"phase": "Superseded"})).starts_with("Superseded"));
    assert_eq!(
        words(json!({"phase": "Approved", "grant": {"name": "gr-a", "uid": "g"}})),
        "Approved, grant gr-a"
    );
    assert!(words(json!({"phase": "Sleeping"})).contains("does not know"));
}

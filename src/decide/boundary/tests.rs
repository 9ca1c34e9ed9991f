#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::decide::resolve::{self, Outcome, Policies};

const FILED: &str = "2026-01-01T10:00:00.5Z";
const BEFORE: &str = "2026-01-01T09:00:00Z";
const AFTER: &str = "2026-01-01T10:00:01Z";

fn policy(name: &str, generation: i64, changed: &str, spec: Value) -> ClusterApprovalPolicy {
    let mut whole = json!({
        "effect": "RequireApproval",
        "targets": [{"kubernetes": {"rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "operations": ["UPDATE"]}]}}],
        "approvers": {"required": [{"count": 1, "from": [{"group": "sre-oncall"}]}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "generation": generation, "creationTimestamp": BEFORE,
            "managedFields": [
                {"manager": "kubectl", "operation": "Update", "time": changed},
                {"manager": "us", "operation": "Update", "subresource": "status", "time": "2030-01-01T00:00:00Z"},
            ],
        },
        "spec": whole,
    }))
    .unwrap()
}

fn when(source: &str) -> Value {
    json!({"targets": [{"kubernetes": {
        "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "operations": ["UPDATE"]}], "when": source,
    }}]})
}

fn action() -> Action {
    serde_json::from_value(json!({
        "operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "web", "name": "api", "options": "{}",
    }))
    .unwrap()
}

/// What the webhook would have written down under these policies, their conditions holding as said.
fn snapshot(
    policies: &[ClusterApprovalPolicy],
    labels: &BTreeMap<String, String>,
) -> Vec<PolicyRef> {
    let none = BTreeMap::new();
    let action = action();
    let stored = stored(&action, &none, labels);
    let compiled = Policies::new(policies.iter().map(Policy::compile_cluster));
    match resolve::resolve(&compiled, &stored.situation()).outcome {
        Outcome::Approval(rules) => rules.policies,
        other => panic!("{other:?}"),
    }
}

fn stored<'a>(
    action: &'a Action,
    agent_labels: &'a BTreeMap<String, String>,
    labels: &'a BTreeMap<String, String>,
) -> Stored<'a> {
    Stored {
        action,
        destructive: false,
        username: "bot",
        agent_name: "ops-bot",
        agent_labels,
        namespace_labels: Some(labels),
    }
}

fn compare(
    snapshot: &[PolicyRef],
    now: &[ClusterApprovalPolicy],
    labels: &BTreeMap<String, String>,
    before: Option<&BTreeSet<String>>,
) -> Boundary {
    let (none, action) = (BTreeMap::new(), action());
    let stored = stored(&action, &none, labels);
    Rulebook::new(now, []).compare(
        snapshot,
        &stored.situation(),
        FILED.parse().unwrap(),
        before,
    )
}

fn reason(boundary: Boundary) -> &'static str {
    match boundary {
        Boundary::Same => "Same",
        Boundary::CannotTell(_) => "CannotTell",
        Boundary::Crossed { reason, .. } => reason.as_str(),
    }
}

#[test]
fn each_change_of_a_policy_that_asked_has_its_own_reason() {
    let labels = BTreeMap::new();
    let asked = [policy("p", 3, BEFORE, json!({}))];
    let known = snapshot(&asked, &labels);
    let cases = [
        ("unchanged", vec![policy("p", 3, BEFORE, json!({}))], "Same"),
        (
            "a default written down",
            vec![policy("p", 4, AFTER, json!({"denialCooldownSeconds": 60}))],
            "Same",
        ),
        (
            "a limit",
            vec![policy("p", 4, AFTER, json!({"validity": {"uses": 2}}))],
            "PolicyChanged",
        ),
        (
            "approvers",
            vec![policy(
                "p",
                4,
                AFTER,
                json!({"approvers": {"required": [{"count": 2, "from": []}]}}),
            )],
            "PolicyChanged",
        ),
        (
            "it exempts now",
            vec![policy("p", 4, AFTER, json!({"effect": "Exempt"}))],
            "PolicyChanged",
        ),
        (
            "other agents",
            vec![policy(
                "p",
                4,
                AFTER,
                json!({"agents": {"names": ["other"]}}),
            )],
            "BoundaryCrossed",
        ),
        ("taken away", vec![], "BoundaryCrossed"),
        (
            "a condition was added",
            vec![policy("p", 4, AFTER, when("object.spec.replicas > 1"))],
            "BoundaryCrossed",
        ),
        (
            "an older copy",
            vec![policy("p", 2, BEFORE, json!({"validity": {"uses": 9}}))],
            "CannotTell",
        ),
        (
            "it cannot be used",
            vec![policy("p", 4, AFTER, when("object.spec.replicas >"))],
            "CannotTell",
        ),
    ];
    for (what, now, expected) in cases {
        assert_eq!(
            reason(compare(&known, &now, &labels, None)),
            expected,
            "{what}"
        );
    }
}

#[test]
fn another_policy_that_begins_to_match_crosses_the_boundary() {
    let labels = BTreeMap::new();
    let first = policy("p", 1, BEFORE, json!({}));
    let known = snapshot(std::slice::from_ref(&first), &labels);
    let with = |other: ClusterApprovalPolicy| vec![first.clone(), other];
    let named = json!({"targets": [{"kubernetes": {
        "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "operations": ["UPDATE"]}], "names": ["other"],
    }}]});
    let cases = [
        (
            "plain",
            with(policy("q", 1, BEFORE, json!({}))),
            None,
            "BoundaryCrossed",
        ),
        (
            "it names another object",
            with(policy("q", 1, AFTER, named)),
            None,
            "Same",
        ),
        (
            "a condition that was there before",
            with(policy("q", 1, BEFORE, when("true"))),
            None,
            "Same",
        ),
        (
            "a condition that is new",
            with(policy("q", 1, AFTER, when("true"))),
            None,
            "BoundaryCrossed",
        ),
        (
            "an old condition whose selectors newly match",
            with(policy("q", 1, BEFORE, when("true"))),
            Some(BTreeSet::new()),
            "BoundaryCrossed",
        ),
        (
            "an unusable one",
            with(policy("q", 1, AFTER, when("nonsense("))),
            None,
            "CannotTell",
        ),
    ];
    for (what, now, before, expected) in cases {
        assert_eq!(
            reason(compare(&known, &now, &labels, before.as_ref())),
            expected,
            "{what}"
        );
    }
}

#[test]
fn a_policy_with_a_condition_that_held_and_did_not_change_still_holds() {
    let labels = BTreeMap::new();
    // Its condition is one that holds without an object, so that the snapshot names it.
    let now = [policy("p", 2, BEFORE, when("request.agent == 'ops-bot'"))];
    let known = snapshot(&now, &labels);
    assert_eq!(known[0].name, "p");
    assert_eq!(reason(compare(&known, &now, &labels, None)), "Same");
    let (none, action) = (BTreeMap::new(), action());
    let conditional =
        Rulebook::new(&now, []).conditional(&stored(&action, &none, &labels).situation());
    assert_eq!(
        conditional,
        BTreeSet::from(["ClusterApprovalPolicy/p".to_owned()])
    );
}

#[test]
fn labels_of_the_namespace_decide_what_matches() {
    let prod = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
    let selected = json!({"targets": [{"kubernetes": {
        "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "operations": ["UPDATE"]}],
        "namespaceSelector": {"matchLabels": {"env": "prod"}},
    }}]});
    let now = [policy("p", 1, BEFORE, selected)];
    let known = snapshot(&now, &prod);
    assert_eq!(reason(compare(&known, &now, &prod, None)), "Same");
    assert_eq!(
        reason(compare(&known, &now, &BTreeMap::new(), None)),
        "BoundaryCrossed"
    );
}

#[test]
fn the_default_policy_is_compared_without_its_selectors() {
    let labels = BTreeMap::new();
    let nothing = json!({"targets": [{"kubernetes": {"rules": [{"apiGroups": ["none"], "resources": ["none"], "operations": ["DELETE"]}]}}]});
    let default = |generation, spec: Value| {
        let mut whole = nothing.clone();
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        policy(DEFAULT_POLICY, generation, AFTER, whole)
    };
    let known = snapshot(&[default(1, json!({}))], &labels);
    assert_eq!(known[0].name, DEFAULT_POLICY);
    assert_eq!(
        reason(compare(&known, &[default(1, json!({}))], &labels, None)),
        "Same"
    );
    assert_eq!(
        reason(compare(
            &known,
            &[default(2, json!({"agents": {"names": ["x"]}}))],
            &labels,
            None
        )),
        "Same"
    );
    assert_eq!(
        reason(compare(
            &known,
            &[default(2, json!({"validity": {"uses": 5}}))],
            &labels,
            None
        )),
        "PolicyChanged"
    );
    let asked = [default(1, json!({})), policy("p", 1, AFTER, json!({}))];
    assert_eq!(
        reason(compare(&known, &asked, &labels, None)),
        "BoundaryCrossed"
    );
}

#[test]
fn a_stored_request_says_itself_whether_it_destroys() {
    let fact = |kind: &str| crate::api::approval_request::Fact {
        kind: kind.to_owned(),
        value: String::new(),
        source: "Request".to_owned(),
    };
    assert!(is_destructive(Operation::Delete, &[]));
    assert!(is_destructive(Operation::Update, &[fact("Destructive")]));
    assert!(!is_destructive(Operation::Update, &[fact("Status")]));
}

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use serde_json::{Value as Json, json};

use super::*;
use crate::decide::json::read;

fn request(diff: Json) -> ApprovalRequestSpec {
    serde_json::from_value(json!({
        "requester": {"username": "bot", "agent": "ops-bot"},
        "action": {"operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "options": "{}"},
        "actionKey": "k", "changeDigest": "c", "stateDigest": "s", "digest": "d", "change": "{}", "state": "{}", "diff": diff,
        "binding": {"change": "Exact", "state": "TouchedFields", "volatile": [{"path": "/metadata/annotations/at", "shape": "Timestamp"}]},
        "policySetHash": "p", "validity": {"uses": 1}, "denialCooldownSeconds": 60, "deadline": "2026-01-01T10:00:00Z",
    }))
    .unwrap()
}

fn used(operation: &str) -> Use {
    let mut used = json!({
        "operation": operation, "operationID": "op-a", "targetUID": "t1", "version": "v1", "contentDigest": "c",
        "optionsDigest": "o", "policySetHash": "p", "at": "2026-01-01T10:00:00Z", "replica": "r", "effect": "Pending",
    });
    if operation != "CREATE" {
        used["shown"] = json!({"resourceVersion": "100"});
    }
    serde_json::from_value(used).unwrap()
}

fn image() -> Json {
    json!([{"path": "/spec/containers/[name=app]/image", "from": "\"app:1\"", "to": "\"app:2\""}])
}

fn pod(uid: &str, version: &str, image: &str) -> String {
    json!({
        "metadata": {"uid": uid, "resourceVersion": version, "generation": 3},
        "spec": {"containers": [{"name": "side", "image": "side:1"}, {"name": "app", "image": image}]},
    })
    .to_string()
}

fn finding(operation: &str, diff: Json, target: Option<&str>) -> String {
    let request = request(diff);
    let marks = Marks::of(&request);
    let document = target.map(|text| read(text).unwrap());
    let target = document
        .as_ref()
        .map_or(Target::Absent, |document| Target::Present(document.root()));
    match find(&used(operation), &marks, target) {
        Finding::Settled(effect, _) => format!("{effect:?}"),
        Finding::Walk { from } => format!("Walk from {}", from.as_deref().unwrap_or("nowhere")),
    }
}

#[test]
fn an_update_is_confirmed_by_its_values_and_not_observed_only_at_its_own_revision() {
    let cases = [
        (Some(pod("t1", "107", "app:2")), "Confirmed"),
        (Some(pod("t1", "100", "app:1")), "NotObserved"),
        // Made and undone looks just like never made.
        (Some(pod("t1", "107", "app:1")), "Walk from 100"),
        (Some(pod("t1", "107", "app:3")), "Walk from 100"),
        (Some(pod("t2", "107", "app:2")), "Walk from 100"),
        (None, "Walk from 100"),
    ];
    for (target, expected) in cases {
        assert_eq!(
            finding("UPDATE", image(), target.as_deref()),
            expected,
            "{target:?}"
        );
    }
}

#[test]
fn every_mark_of_a_change_must_be_there() {
    let two = json!([
        {"path": "/spec/containers/[name=app]/image", "from": "\"app:1\"", "to": "\"app:2\""},
        {"path": "/metadata/labels/old", "from": "\"x\""},
    ]);
    assert_eq!(
        finding("UPDATE", two.clone(), Some(&pod("t1", "107", "app:2"))),
        "Confirmed"
    );
    let label = json!({"metadata": {"uid": "t1", "resourceVersion": "107", "labels": {"old": "x"}},
        "spec": {"containers": [{"name": "app", "image": "app:2"}]}});
    assert_eq!(
        finding("UPDATE", two, Some(&label.to_string())),
        "Walk from 100"
    );
}

#[test]
fn a_free_value_is_recognised_by_not_being_the_old_one() {
    let restart = json!([{"path": "/metadata/annotations/at", "from": "\"2026-01-01T09:00:00Z\"", "to": "\"2026-01-01T10:00:00Z\""}]);
    let at = |time: &str| {
        json!({"metadata": {"uid": "t1", "resourceVersion": "107", "annotations": {"at": time}}})
            .to_string()
    };
    assert_eq!(
        finding("UPDATE", restart.clone(), Some(&at("2026-01-01T10:00:07Z"))),
        "Confirmed"
    );
    assert_eq!(
        finding("UPDATE", restart, Some(&at("2026-01-01T09:00:00Z"))),
        "Walk from 100"
    );
}

#[test]
fn what_cannot_be_looked_up_is_no_mark() {
    let shift = json!([
        {"path": "as argocd (Apply)", "to": "[\"/spec/replicas\"]"},
        {"path": "/spec/containers/[order]", "from": "[\"a\"]", "to": "[\"b\"]"},
    ]);
    assert_eq!(
        finding("UPDATE", shift.clone(), Some(&pod("t1", "107", "app:2"))),
        "Walk from 100"
    );
    let request = request(shift);
    let marks = Marks::of(&request);
    assert_eq!(
        after_walk(&used("UPDATE"), &marks, Walked::NeverHeld).0,
        UseEffect::Unknown
    );
}

#[test]
fn a_deletion_never_un_happens() {
    let deleting = json!({"metadata": {"uid": "t1", "resourceVersion": "107", "deletionTimestamp": "2026-01-01T10:00:00Z"}}).to_string();
    let cases = [
        (None, "Confirmed"),
        (Some(pod("t2", "107", "app:1")), "Confirmed"),
        (Some(deleting), "Confirmed"),
        (Some(pod("t1", "107", "app:1")), "NotObserved"),
    ];
    for (target, expected) in cases {
        assert_eq!(
            finding("DELETE", json!([]), target.as_deref()),
            expected,
            "{target:?}"
        );
    }
}

#[test]
fn a_creation_is_confirmed_by_its_uid_and_otherwise_unknown() {
    assert_eq!(
        finding("CREATE", json!([]), Some(&pod("t1", "107", "app:1"))),
        "Confirmed"
    );
    // Never made, or made and deleted since.
    assert_eq!(finding("CREATE", json!([]), None), "Walk from nowhere");
    assert_eq!(
        finding("CREATE", json!([]), Some(&pod("t2", "107", "app:1"))),
        "Walk from nowhere"
    );
    assert_eq!(
        after_walk(&used("CREATE"), &Marks::default(), Walked::Incomplete).0,
        UseEffect::Unknown
    );
}

#[test]
fn a_walk_settles_an_update_only_when_every_revision_was_seen() {
    let request = request(image());
    let marks = Marks::of(&request);
    for (walked, expected) in [
        (Walked::Held, UseEffect::Confirmed),
        (Walked::NeverHeld, UseEffect::NotObserved),
        (Walked::Incomplete, UseEffect::Unknown),
    ] {
        assert_eq!(after_walk(&used("UPDATE"), &marks, walked).0, expected);
    }
    for (revision, proof) in [
        (pod("t1", "103", "app:2"), true),
        (pod("t1", "103", "app:1"), false),
        (pod("t2", "103", "app:2"), false),
    ] {
        assert_eq!(
            proves(&used("UPDATE"), &marks, read(&revision).unwrap().root()),
            proof
        );
    }
}

#[test]
fn evidence_is_bounded() {
    let text = pod("t1", "107", "app:2");
    let document = read(&text).unwrap();
    let long = "/".repeat(5000);
    let mut paths = vec![long.as_str()];
    paths.resize(40, "/spec/x");
    let evidence = evidence(Target::Present(document.root()), &paths, "m");
    assert_eq!(evidence.paths.len(), 16);
    assert!(evidence.paths.iter().all(|path| path.len() < 5000));
    assert_eq!(
        (evidence.generation, evidence.uid.as_deref()),
        (Some(3), Some("t1"))
    );
}

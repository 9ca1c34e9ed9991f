#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use serde_json::json;

use super::{super::json::read, *};

type Json = serde_json::Value;

fn used(second: i64, effect: &str) -> Json {
    let at = Timestamp::from_second(1_000_000 + second).unwrap();
    json!({
        "operation": "UPDATE", "operationID": format!("op-{second}"), "targetUID": "t1", "version": "v1", "contentDigest": "c",
        "optionsDigest": "o", "policySetHash": "p", "at": at, "replica": "r", "effect": effect, "shown": {"resourceVersion": "100"},
    })
}

fn grant(action: Json, uses: &[(i64, &str)]) -> Grant {
    let uses: serde_json::Map<String, Json> = uses
        .iter()
        .map(|(second, effect)| (format!("{second:036}"), used(*second, effect)))
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "Grant", "metadata": {"name": "gr-a", "uid": "g1"},
        "spec": {
            "requestRef": {"name": "ar-a", "uid": "u1"}, "actionKey": "k", "requester": {"username": "bot", "agent": "ops-bot"},
            "action": action, "changeDigest": "c", "state": "{}", "stateDigest": "s",
            "binding": {"change": "Exact", "state": "TouchedFields"}, "policySetHash": "p",
            "notBefore": "2026-01-01T10:00:00Z", "notAfter": "2026-01-01T10:10:00Z",
        },
        "status": {"used": uses.len(), "uses": uses},
    }))
    .unwrap()
}

fn deployments() -> Json {
    json!({"operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "web", "name": "api", "options": "{}"})
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

#[test]
fn a_use_is_settled_once_no_retry_of_it_can_land() {
    let grant = grant(
        deployments(),
        &[(0, "Pending"), (10, "Pending"), (5, "Confirmed")],
    );
    let status = grant.status.unwrap();
    assert_eq!(ready(&status, at(87)), (vec![], Some(at(88))));
    assert_eq!(
        ready(&status, at(88)),
        (vec![format!("{:036}", 0)], Some(at(98)))
    );
    assert_eq!(ready(&status, at(98)).0.len(), 2);
}

#[test]
fn the_newest_sixteen_settled_uses_stay_and_open_ones_always() {
    let mut uses: Vec<(i64, &str)> = (1..=20).map(|second| (second, "Confirmed")).collect();
    uses.push((0, "Pending"));
    let grant = grant(deployments(), &uses);
    let (status, leaving) = plan(&grant, &[], at(100));
    assert_eq!(
        leaving.keys().cloned().collect::<Vec<_>>(),
        (1..=4).map(|n| format!("{n:036}")).collect::<Vec<_>>()
    );
    assert_eq!(status.uses.len(), 17);
    assert!(status.uses.contains_key(&format!("{:036}", 0)));
    assert_eq!(
        conditions::get(&status.conditions, "Settled")
            .unwrap()
            .status,
        conditions::FALSE
    );
}

#[test]
fn a_settled_effect_is_never_replaced() {
    let grant = grant(deployments(), &[(0, "Pending"), (1, "Confirmed")]);
    let finding = |second: i64| {
        (
            format!("{second:036}"),
            UseEffect::NotObserved,
            Evidence {
                message: Some("m".to_owned()),
                ..Evidence::default()
            },
        )
    };
    let (status, leaving) = plan(&grant, &[finding(0), finding(1)], at(100));
    let effect = |second: i64| status.uses[&format!("{second:036}")].effect;
    assert_eq!(
        (effect(0), effect(1)),
        (UseEffect::NotObserved, UseEffect::Confirmed)
    );
    assert_eq!(
        status.uses[&format!("{:036}", 0)]
            .settled_at
            .as_ref()
            .unwrap()
            .0,
        at(100)
    );
    assert!(leaving.is_empty());
    assert_eq!(
        conditions::get(&status.conditions, "Settled")
            .unwrap()
            .status,
        conditions::TRUE
    );
    assert_eq!(status.used, grant.status.unwrap().used);
}

fn request(diff: Json) -> crate::api::ApprovalRequestSpec {
    serde_json::from_value(json!({
        "requester": {"username": "bot", "agent": "ops-bot"}, "action": deployments(),
        "actionKey": "k", "changeDigest": "c", "stateDigest": "s", "digest": "d", "change": "{}", "state": "{}", "diff": diff,
        "binding": {"change": "Exact", "state": "TouchedFields"}, "policySetHash": "p", "validity": {"uses": 1},
        "denialCooldownSeconds": 60, "deadline": "2026-01-01T10:00:00Z",
    }))
    .unwrap()
}

#[test]
fn a_deletion_may_be_what_a_change_of_finalizers_was_stored_as() {
    let grant = grant(deployments(), &[(0, "Pending")]);
    let used = grant.status.unwrap().uses.into_values().next().unwrap();
    let request = request(json!([{"path": "/metadata/finalizers", "from": "[\"a\"]"}]));
    let text = r#"{"type":"DELETED","object":{"metadata":{"uid":"t1","resourceVersion":"106","finalizers":["a"]}}}"#;
    let document = read(text).unwrap();
    let step = event(document.root(), &used, &Marks::of(&request), None);
    assert_eq!(step, None, "nothing can be told");
}

#[test]
fn a_walk_ends_at_the_revision_shown_or_at_the_object_s_deletion() {
    let grant = grant(deployments(), &[(0, "Pending")]);
    let used = grant.status.unwrap().uses.into_values().next().unwrap();
    let request = request(json!([{"path": "/spec/replicas", "from": "1", "to": "2"}]));
    let marks = Marks::of(&request);
    let step = |kind: &str, uid: &str, version: &str, replicas: i64| {
        let text = json!({"type": kind, "object": {"metadata": {"uid": uid, "resourceVersion": version}, "spec": {"replicas": replicas}}}).to_string();
        let document = read(&text).unwrap();
        match event(document.root(), &used, &marks, Some(110)) {
            None => "blind",
            Some(Step::On) => "on",
            Some(Step::Held) => "held",
            Some(Step::End) => "end",
        }
    };
    assert_eq!(step("MODIFIED", "t1", "105", 1), "on");
    assert_eq!(step("MODIFIED", "t1", "105", 2), "held");
    assert_eq!(step("MODIFIED", "t1", "110", 1), "end");
    assert_eq!(step("DELETED", "t1", "106", 1), "end");
    assert_eq!(step("DELETED", "t0", "106", 1), "on");
    assert_eq!(step("ERROR", "t1", "106", 1), "blind");
    assert_eq!(step("MODIFIED", "t1", "x", 1), "blind");
}

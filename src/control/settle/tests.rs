#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use serde_json::{Value, json};

use super::*;

fn used(second: i64, effect: &str) -> Value {
    let at = Timestamp::from_second(1_000_000 + second).unwrap();
    json!({
        "operation": "UPDATE", "operationID": format!("op-{second}"), "targetUID": "t1", "version": "v1", "contentDigest": "c",
        "optionsDigest": "o", "policySetHash": "p", "at": at, "replica": "r", "effect": effect, "shown": {"resourceVersion": "100"},
    })
}

fn grant(action: Value, uses: &[(i64, &str)]) -> Grant {
    let uses: serde_json::Map<String, Value> = uses
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

fn deployments() -> Value {
    json!({"operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "web", "name": "api", "options": "{}"})
}

#[test]
fn paths_are_those_of_the_target_and_nothing_in_a_name_leaves_it() {
    let path = |action: Value, subresource: Option<&str>| {
        let grant = grant(action, &[(0, "Pending")]);
        let mut used = grant
            .status
            .clone()
            .unwrap()
            .uses
            .into_values()
            .next()
            .unwrap();
        used.subresource = subresource.map(str::to_owned);
        super::path(&grant, &used)
    };
    assert_eq!(
        path(deployments(), None).unwrap(),
        "/apis/apps/v1/namespaces/web/deployments/api"
    );
    assert_eq!(
        path(deployments(), Some("scale")).unwrap(),
        "/apis/apps/v1/namespaces/web/deployments/api/scale"
    );
    assert_eq!(
        path(deployments(), Some("status")).unwrap(),
        "/apis/apps/v1/namespaces/web/deployments/api"
    );
    let role = json!({"operation": "UPDATE", "group": "rbac.authorization.k8s.io", "version": "v1", "resource": "clusterroles", "name": "a:b/../?x", "options": "{}"});
    assert_eq!(
        path(role, None).unwrap(),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab%2F..%2F%3Fx"
    );
    let generated = json!({"operation": "CREATE", "group": "", "version": "v1", "resource": "pods", "namespace": "web", "generateName": "job-", "options": "{}"});
    assert_eq!(path(generated, None), None);
}

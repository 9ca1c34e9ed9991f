//! Objects as the API server returns them, for tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

use serde_json::{Value, json};

use super::seen::{Seen, spec_digest};

/// A request as the webhook files it, with some members of its spec replaced.
pub fn request(spec: Value, status: Value) -> Value {
    let mut whole = json!({
        "requester": {"username": "system:serviceaccount:agents:ops-bot", "agent": "ops-bot"},
        "action": {
            "operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "subresource": "scale",
            "namespace": "web", "name": "api", "targetUID": "t1", "options": "{}",
        },
        "actionKey": "k", "changeDigest": "c", "stateDigest": "s",
        "digest": format!("v1:sha256:9f31c2a4{}", "0".repeat(56)),
        "change": "{\"/spec/replicas\":5}", "state": "{\"/spec/replicas\":2}",
        "diff": [{"path": "/spec/replicas", "from": "2", "to": "5"}],
        "base": {"resourceVersion": "881", "generation": 4},
        "binding": {"change": "Exact", "state": "TouchedFields", "stateFields": ["/metadata/labels/env"]},
        "policies": [
            {
                "kind": "ClusterApprovalPolicy", "name": "production-changes", "uid": "p1", "generation": 4, "hash": "h",
                "approvers": {
                    "required": [{"count": 2, "from": [{"group": "sre-oncall"}, {"user": "ana@example.com"}]}],
                    "requireReason": ["Deny"],
                },
            },
            {"kind": "ApprovalPolicy", "namespace": "web", "name": "limits", "uid": "p2", "generation": 1, "hash": "h"},
        ],
        "policySetHash": "p", "validity": {"uses": 1, "durationSeconds": 600}, "denialCooldownSeconds": 60,
        "deadline": "2026-01-01T10:30:00Z",
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalRequest", "spec": whole, "status": status,
        "metadata": {"name": "ar-7f3k", "namespace": "web", "uid": "u1", "resourceVersion": "9", "creationTimestamp": "2026-01-01T10:00:00Z"},
    })
}

/// The same as the server sends it, with its true digest.
pub fn seen(spec: Value, status: Value) -> Seen {
    let mut object = request(spec, status);
    object["spec"]["digest"] = json!(spec_digest(&object.to_string()).unwrap());
    Seen::parse(&object.to_string()).unwrap()
}

/// A grant as the controller mints it, with some members of its spec replaced.
pub fn grant(name: &str, spec: Value, status: Value) -> Value {
    let mut whole = json!({
        "requestRef": {"name": "ar-7f3k", "uid": "u1"}, "actionKey": "k",
        "requester": {"username": "system:serviceaccount:agents:ops-bot", "agent": "ops-bot"},
        "action": {
            "operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "subresource": "scale",
            "namespace": "web", "name": "api", "options": "{}",
        },
        "changeDigest": "c", "state": "{}", "stateDigest": "s", "binding": {"change": "Exact", "state": "TouchedFields"},
        "policySetHash": "p", "uses": 1, "notBefore": "2026-01-01T10:00:00Z", "notAfter": "2026-01-01T10:10:00Z",
    });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "Grant", "spec": whole, "status": status,
        "metadata": {"name": name, "namespace": "web", "uid": "g1", "creationTimestamp": "2026-01-01T10:00:00Z"},
    })
}

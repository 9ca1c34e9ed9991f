//! The kinds on a real API server: what their schemas let in, and what may change afterwards.

use grantgate::{crds, manifests};
use serde_json::{Map, Value, json};

use crate::cluster::http::Answer;
use crate::cluster::install::installed;
use crate::cluster::{Cluster, User};

mod invalid;
mod life;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// A digest that is well-formed.
pub fn digest(of: char) -> String {
    format!("v1:sha256:{}", of.to_string().repeat(64))
}

/// The collection of one of our kinds.
pub fn collection(namespace: Option<&str>, plural: &str) -> String {
    match namespace {
        Some(namespace) => format!("/apis/grantgate.dev/v1alpha1/namespaces/{namespace}/{plural}"),
        None => format!("/apis/grantgate.dev/v1alpha1/{plural}"),
    }
}

/// An account of the installation.
pub async fn account(cluster: &Cluster, name: &str) -> User {
    cluster.service_account(manifests::NAMESPACE, name).await
}

/// The message of an answer that refuses with this status.
#[track_caller]
pub fn refusal(answer: &Answer, status: u16) -> String {
    assert_eq!(answer.status, status, "{}", answer.text());
    answer.json().unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The object of an answer that accepts.
#[track_caller]
pub fn accepted(answer: &Answer) -> Value {
    assert!(answer.status < 300, "{} {}", answer.status, answer.text());
    answer.json().unwrap()
}

/// A grant as the controller makes it.
pub fn grant(name: &str) -> Value {
    json!({
        "apiVersion": "grantgate.dev/v1alpha1",
        "kind": "Grant",
        "metadata": {"name": name},
        "spec": {
            "requestRef": {"name": "ar-1", "uid": "7f4e5d5c-6d0e-4a53-9d6a-3f1f5c1f8e11"},
            "actionKey": digest('a'),
            "requester": {"username": "system:serviceaccount:agents:ops-bot", "uid": "1", "agent": "ops-bot"},
            "action": {
                "operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments",
                "namespace": "web", "name": "api", "targetUID": "9", "options": "{}",
            },
            "base": {"resourceVersion": "1", "generation": 1},
            "changeDigest": digest('b'),
            "state": "{}",
            "stateDigest": digest('c'),
            "binding": {"change": "Exact", "state": "TouchedFields"},
            "policies": [{
                "kind": "ClusterApprovalPolicy", "name": "p", "uid": "1", "generation": 1, "hash": digest('d'),
                "approvers": {"required": [{"count": 1}]},
            }],
            "policySetHash": digest('e'),
            "uses": 40,
            "notBefore": "2026-11-30T00:00:00.000000Z",
            "notAfter": "2026-11-30T00:10:00.000000Z",
        },
    })
}

/// A request as the webhook files it.
pub fn request(name: &str) -> Value {
    let mut request = grant(name);
    request["kind"] = json!("ApprovalRequest");
    let spec = request["spec"].as_object_mut().unwrap();
    for member in ["requestRef", "uses", "notBefore", "notAfter"] {
        spec.remove(member);
    }
    let more = json!({
        "digest": digest('f'),
        "change": "{}",
        "diff": [{"path": "/spec/replicas", "from": "1", "to": "2"}],
        "validity": {"uses": 1, "durationSeconds": 600},
        "denialCooldownSeconds": 60,
        "deadline": "2026-11-30T00:30:00.000000Z",
        "facts": [{"type": "Irreversible", "value": "no", "source": "Request"}],
    });
    spec.extend(more.as_object().cloned().unwrap_or_else(Map::new));
    request
}

/// A decision with this author.
pub fn decision(name: &str, approver: Option<Value>) -> Value {
    let mut decision = json!({
        "apiVersion": "grantgate.dev/v1alpha1",
        "kind": "ApprovalDecision",
        "metadata": {"name": name},
        "spec": {
            "requests": [{"name": "ar-1", "uid": "1", "digest": "v1:sha256:00000000"}],
            "verdict": "Approve",
        },
    });
    if let Some(approver) = approver {
        decision["spec"]["approver"] = approver;
    }
    decision
}

/// What a user of the token file is to the API server.
pub fn author(user: &User) -> Value {
    let mut groups = user.groups.clone();
    groups.push("system:authenticated".to_owned());
    json!({"username": user.name, "uid": format!("uid-of-{}", user.name), "groups": groups})
}

#[tokio::test]
async fn explain_reads_as_documentation_for_every_kind() {
    let cluster = installed().await;
    let kubectl = cluster.kubectl(&User::admin());
    for definition in crds::all() {
        let name = format!("{}.grantgate.dev", definition.spec.names.plural);
        let told = kubectl
            .run(&["explain", "--recursive=false", &name])
            .await
            .expect_ok();
        let schema = definition.spec.versions[0]
            .schema
            .clone()
            .unwrap()
            .open_api_v3_schema
            .unwrap();
        let description = schema.description.unwrap();
        let first_words: Vec<&str> = description.split_whitespace().take(6).collect();
        let squeezed = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(&first_words.join(" ")), "{told}");
        assert!(!told.contains("<no description>"), "{told}");
    }
    let told = kubectl
        .run(&["explain", "ggcap.spec.effect"])
        .await
        .expect_ok();
    assert!(
        told.contains("`RequireApproval`: A person decides before the change is made."),
        "{told}"
    );
}

#[tokio::test]
async fn every_kind_is_found_by_its_short_name_and_in_the_category() {
    let cluster = installed().await;
    let namespace = cluster.namespace("short", &[]).await;
    let kubectl = cluster.kubectl(&User::admin());
    for (short, columns) in [
        ("ggai", "SURFACE"),
        ("ggts", "CATALOG"),
        ("ggtm", "SERVER"),
        ("ggap", "EFFECT"),
        ("ggcap", "EFFECT"),
        ("ggar", "PHASE"),
        ("ggad", "VERDICT"),
        ("gggr", "PHASE"),
    ] {
        let definition = grantgate::crds::all().into_iter().find(|definition| {
            definition.spec.names.short_names.as_deref() == Some(&[short.to_owned()])
        });
        let definition = definition.unwrap_or_else(|| panic!("no kind is called {short}"));
        let shown: Vec<String> = definition.spec.versions[0]
            .additional_printer_columns
            .iter()
            .flatten()
            .map(|column| column.name.to_uppercase())
            .collect();
        assert!(shown.contains(&columns.to_owned()), "{short}: {shown:?}");
        kubectl
            .run(&["get", short, "-n", &namespace])
            .await
            .expect_ok();
    }
    kubectl
        .run(&["get", "grantgate", "-n", &namespace])
        .await
        .expect_ok();
}

#[tokio::test]
async fn columns_show_what_a_reviewer_looks_for() {
    let cluster = installed().await;
    let namespace = cluster.namespace("columns", &[]).await;
    let webhook = account(cluster, manifests::WEBHOOK).await;
    let path = collection(Some(&namespace), "approvalrequests");
    accepted(
        &cluster
            .raw(&webhook, "POST", &path, JSON, request("ar-1").to_string())
            .await,
    );
    let table = cluster
        .kubectl(&User::admin())
        .run(&["get", "ggar", "-n", &namespace])
        .await
        .expect_ok();
    for word in [
        "PHASE",
        "AGENT",
        "DEADLINE",
        "ops-bot",
        "UPDATE",
        "deployments",
        "api",
    ] {
        assert!(table.contains(word), "{table}");
    }
}

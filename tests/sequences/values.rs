//! Values that a review shows otherwise than they are stored, and names that are not what they seem.

use http::Method;
use serde_json::{Value, json};

use crate::{
    cluster::User,
    stack::{Agent, Answer, Stack, installed},
};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Appends a length-delimited field of a protobuf message.
fn field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    let mut length = bytes.len();
    loop {
        let byte = u8::try_from(length & 0x7f).unwrap();
        length >>= 7;
        message.push(if length > 0 { byte | 0x80 } else { byte });
        if length == 0 {
            break;
        }
    }
    message.extend_from_slice(bytes);
}

/// A ConfigMap with one value of any bytes, as the API server's protobuf: `k8s\0`, then a runtime.Unknown.
fn config_map(namespace: &str, resource_version: &str, value: &[u8]) -> Vec<u8> {
    let mut metadata = Vec::new();
    field(&mut metadata, 1, b"bytes");
    field(&mut metadata, 3, namespace.as_bytes());
    if !resource_version.is_empty() {
        field(&mut metadata, 6, resource_version.as_bytes());
    }
    let mut entry = Vec::new();
    field(&mut entry, 1, b"value");
    field(&mut entry, 2, value);
    let mut object = Vec::new();
    field(&mut object, 1, &metadata);
    field(&mut object, 2, &entry);
    let mut kind = Vec::new();
    field(&mut kind, 1, b"v1");
    field(&mut kind, 2, b"ConfigMap");
    let mut unknown = Vec::new();
    field(&mut unknown, 1, &kind);
    field(&mut unknown, 2, &object);
    let mut body = b"k8s\0".to_vec();
    body.extend(unknown);
    body
}

async fn write(
    stack: &Stack<'_>,
    agent: &Agent,
    user: &User,
    method: Method,
    value: &[u8],
) -> Answer {
    let collection = format!("/api/v1/namespaces/{}/configmaps", agent.namespace);
    let path = if method == Method::POST {
        collection
    } else {
        format!("{collection}/bytes")
    };
    let answer = stack
        .cluster
        .raw(
            user,
            method.as_str(),
            &path,
            PROTOBUF,
            config_map(&agent.namespace, "", value),
        )
        .await;
    Answer {
        status: answer.status,
        body: serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
    }
}

#[tokio::test]
async fn w3_w4_bytes_that_are_no_utf8_are_refused_in_words() {
    let stack = installed().await;
    let agent = stack.agent("w3").await;
    assert!(
        write(
            stack,
            &agent,
            &User::admin(),
            Method::POST,
            &[0xff, 0xfe, 0xfd]
        )
        .await
        .ok()
    );
    let noop = write(stack, &agent, &agent.user, Method::PUT, &[0x80, 0x81, 0x82])
        .await
        .expect_refused("NotApprovable");
    assert!(noop.has_cause("NotUtf8"), "W3: {noop:?}");
    let change = write(
        stack,
        &agent,
        &agent.user,
        Method::PUT,
        &[0xff, 0xfe, 0xfd, 0x41],
    )
    .await
    .expect_refused("NotApprovable");
    assert!(change.has_cause("NotUtf8"), "W4: {change:?}");
    assert!(stack.requests(&agent.namespace).await.is_empty());
}

#[tokio::test]
async fn v11_an_address_that_the_client_chose_is_not_one_that_the_server_made() {
    let stack = installed().await;
    let agent = stack.agent("v11").await;
    let path = format!("/api/v1/namespaces/{}/services", agent.namespace);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api"},
        "spec": {"selector": {"app": "api"}, "ports": [{"port": 80}]}});
    let stopped = stack
        .call(&agent.user, "POST", &path, JSON, &service)
        .await
        .expect_refused("ApprovalPending");
    let again = stack
        .call(&agent.user, "POST", &path, JSON, &service)
        .await
        .expect_refused("ApprovalPending");
    assert_eq!(
        again.request(),
        stopped.request(),
        "the server makes another address each time, and it is left out"
    );
    stack.approve(&stopped).await;
    let mut chosen = service.clone();
    chosen["spec"]["clusterIP"] = json!("10.96.77.77");
    let answer = stack.call(&agent.user, "POST", &path, JSON, &chosen).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    stack
        .call(&agent.user, "POST", &path, JSON, &service)
        .await
        .expect_ok();
}

#[tokio::test]
async fn w8_a_service_whose_address_the_server_makes_matches_on_the_second_try() {
    let stack = installed().await;
    let agent = stack.agent("w8").await;
    let path = format!("/api/v1/namespaces/{}/services", agent.namespace);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api"},
        "spec": {"selector": {"app": "api"}, "ports": [{"port": 80}]}});
    stack
        .call(&User::admin(), "POST", &path, JSON, &service)
        .await
        .expect_ok();
    let path = format!("{path}/api");
    let body = json!({"spec": {"type": "NodePort"}});
    let stopped = stack
        .patch(&agent.user, &path, body.clone())
        .await
        .expect_refused("ApprovalPending");
    stack.approve(&stopped).await;
    stack.patch(&agent.user, &path, body).await.expect_ok();
}

#[tokio::test]
async fn v12_a_grant_for_generated_names_admits_no_chosen_one() {
    let stack = installed().await;
    let agent = stack.agent("v12").await;
    let path = format!("/api/v1/namespaces/{}/configmaps", agent.namespace);
    let body = |name: Option<&str>| {
        let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "job-"}, "data": {"a": "b"}});
        if let Some(name) = name {
            body["metadata"]["name"] = json!(name);
        }
        body
    };
    let stopped = stack
        .call(&agent.user, "POST", &path, JSON, &body(None))
        .await
        .expect_refused("ApprovalPending");
    stack.approve(&stopped).await;
    for chosen in ["coredns", "job-evil", "job-12345"] {
        let answer = stack
            .call(&agent.user, "POST", &path, JSON, &body(Some(chosen)))
            .await;
        assert_eq!(answer.status, 403, "{chosen}: {answer:?}");
    }
    let made = stack
        .call(&agent.user, "POST", &path, JSON, &body(None))
        .await
        .expect_ok();
    assert!(
        made["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("job-")
    );
    assert_eq!(
        stack
            .call(&agent.user, "POST", &path, JSON, &body(None))
            .await
            .status,
        403,
        "once"
    );
}

#[tokio::test]
async fn v8_w11_a_generation_that_the_client_sets_is_refused() {
    let stack = installed().await;
    let agent = stack.agent("w11").await;
    let path = format!("/api/v1/namespaces/{}/configmaps", agent.namespace);
    for generation in [5_i64, i64::MAX] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "g", "generation": generation}});
        let answer = stack
            .call(&agent.user, "POST", &path, JSON, &body)
            .await
            .expect_refused("NotApprovable");
        assert!(answer.has_cause("Generation"), "{answer:?}");
    }
}

#[tokio::test]
async fn v10_a_write_of_status_is_gated_and_shown_as_what_it_is() {
    let stack = installed().await;
    let agent = stack.agent("v10").await;
    stack
        .cluster
        .allow(&agent.user, Some(&agent.namespace), json!([{"apiGroups": ["apps"], "resources": ["deployments/status"], "verbs": ["patch", "update"]}]))
        .await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api/status",
        agent.namespace
    );
    let body = json!({"metadata": {"finalizers": ["example.com/hold"], "annotations": {"a": "b"}}});
    let answer = stack
        .patch(&agent.user, &path, body)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&answer).await;
    assert_eq!(request.spec.action.subresource.as_deref(), Some("status"));
    assert!(
        request
            .spec
            .diff
            .iter()
            .any(|field| field.path.starts_with("/metadata/finalizers")),
        "{:?}",
        request.spec.diff
    );
    assert!(
        request
            .spec
            .facts
            .iter()
            .any(|fact| fact.kind == "Destructive")
    );
}

#[tokio::test]
async fn v21_proxies_and_what_else_nobody_modelled_are_refused_with_that_word() {
    let stack = installed().await;
    let agent = stack.agent("v21").await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes/proxy", "pods/exec", "pods/eviction", "services/proxy"], "verbs": ["*"]}]);
    stack.cluster.allow(&agent.user, None, rules).await;
    for (method, path) in [
        (
            "GET",
            "/api/v1/nodes/n1/proxy/logs/../run/web/p/c".to_owned(),
        ),
        ("GET", "/api/v1/nodes/n1/proxy/logs/%2e%2e/run".to_owned()),
        (
            "GET",
            format!(
                "/api/v1/namespaces/{}/services/https:api:443/proxy/",
                agent.namespace
            ),
        ),
    ] {
        let answer = stack
            .call(&agent.user, method, &path, JSON, &Value::Null)
            .await
            .expect_refused("NotApprovable");
        assert!(answer.has_cause("NotModelled"), "{path}: {answer:?}");
    }
    let collection = format!("/api/v1/namespaces/{}/configmaps", agent.namespace);
    let answer = stack
        .call(&agent.user, "DELETE", &collection, JSON, &Value::Null)
        .await
        .expect_refused("NotApprovable");
    assert!(
        answer.has_cause("Collection") && answer.message().contains("delete by name"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_create_whose_name_exists_asks_nobody() {
    let stack = installed().await;
    let agent = stack.agent("exists").await;
    let path = format!("/api/v1/namespaces/{}/configmaps", agent.namespace);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}});
    let answer = stack
        .call(&agent.user, "POST", &path, JSON, &body)
        .await
        .expect_refused("NotApprovable");
    assert!(answer.has_cause("Exists"), "{answer:?}");
    assert!(stack.requests(&agent.namespace).await.is_empty());
}

#[tokio::test]
async fn an_agent_writes_neither_our_kinds_nor_webhook_configurations() {
    let stack = installed().await;
    let agent = stack.agent("own-kinds").await;
    stack.cluster.bind(&agent.user, "cluster-admin", None).await;
    let policy = "/apis/grantgate.dev/v1alpha1/clusterapprovalpolicies/grantgate-default";
    let answer = stack
        .patch(&agent.user, policy, json!({"spec": {"effect": "Exempt"}}))
        .await;
    assert_eq!(answer.status, 403, "{answer:?}");
    let gate =
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/grantgate-gate";
    let answer = stack
        .call(&agent.user, "DELETE", gate, JSON, &Value::Null)
        .await;
    assert_eq!(answer.status, 403, "{answer:?}");
}

//! Writes that look like no change and are one.

use serde_json::{Value, json};

use super::definitions::{Version, allow_widgets, define, known, make_widget};
use crate::{
    cluster::User,
    stack::{deployment, installed},
};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

#[tokio::test]
async fn v1_a_volatile_value_that_changes_needs_a_grant_and_is_free_within_its_shape() {
    let stack = installed().await;
    let agent = stack.agent("v1").await;
    let pointer = "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
    stack
        .put_policy(
            &agent.name,
            json!({"binding": {"volatile": [{"path": pointer, "shape": "Timestamp"}]}}),
        )
        .await;
    let kubectl = stack.cluster.kubectl(&agent.user);
    let restart = [
        "rollout",
        "restart",
        "deploy/api",
        "-n",
        agent.namespace.as_str(),
    ];
    let stopped = kubectl.run(restart).await;
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    let requests = stack.requests(&agent.namespace).await;
    assert_eq!(requests.len(), 1);
    stack.approve_request(&requests[0]).await;
    kubectl.run(restart).await.expect_ok();
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api",
        agent.namespace
    );
    let body = json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "not a time"}}}}});
    let other = stack.patch(&agent.user, &path, body).await;
    assert_eq!(other.status, 403, "{other:?}");
}

#[tokio::test]
async fn v2_status_without_a_subresource_is_part_of_the_change() {
    let stack = installed().await;
    let agent = stack.agent("v2").await;
    let group = format!("{}.example.com", agent.name);
    define(stack, &group, &[Version::stored("v1")]).await;
    allow_widgets(stack, &agent, &group).await;
    let path = make_widget(stack, &agent, &group, "v1", json!({"replicas": 1})).await;
    let answer = known(
        stack,
        &agent,
        "PATCH",
        &path,
        MERGE,
        &json!({"status": {"phase": "Hacked"}}),
    )
    .await;
    let request = stack
        .request_of(&answer.expect_refused("ApprovalPending"))
        .await;
    assert!(
        request.spec.diff[0].path.starts_with("/status"),
        "{:?}",
        request.spec.diff
    );
}

#[tokio::test]
async fn v3_v4_w6_a_custom_resource_is_written_in_its_storage_version_only() {
    let stack = installed().await;
    let agent = stack.agent("v3").await;
    let group = format!("{}.example.com", agent.name);
    define(
        stack,
        &group,
        &[Version::stored("v1"), Version::lacking("v1alpha1")],
    )
    .await;
    allow_widgets(stack, &agent, &group).await;
    let stored = make_widget(
        stack,
        &agent,
        &group,
        "v1",
        json!({"replicas": 1, "paused": true}),
    )
    .await;
    let other = stored.replace("/v1/", "/v1alpha1/");

    let mut back = stack
        .call(&agent.user, "GET", &other, JSON, &Value::Null)
        .await
        .expect_ok();
    let answer = known(stack, &agent, "PUT", &other, JSON, &back)
        .await
        .expect_refused("NotApprovable");
    assert!(answer.has_cause("Version"), "V3: {answer:?}");
    back["spec"]["replicas"] = json!(2);
    let answer = stack
        .call(&agent.user, "PUT", &other, JSON, &back)
        .await
        .expect_refused("NotApprovable");
    assert!(
        answer.message().contains("version v1"),
        "V4: {}",
        answer.message()
    );
    let kept = stack
        .call(&User::admin(), "GET", &stored, JSON, &Value::Null)
        .await
        .expect_ok();
    assert_eq!(kept["spec"]["paused"], true);

    // W6: the storage version moves while objects are still stored in the other one; then nothing is a no-op.
    let moved = [
        Version {
            storage: false,
            ..Version::stored("v1")
        },
        Version {
            storage: true,
            ..Version::lacking("v1alpha1")
        },
    ];
    define(stack, &group, &moved).await;
    let back = stack
        .call(&agent.user, "GET", &other, JSON, &Value::Null)
        .await
        .expect_ok();
    let answer = crate::cluster::wait::eventually(
        "the moved storage version is known",
        crate::cluster::wait::PATIENCE,
        async || {
            let answer = stack.call(&agent.user, "PUT", &other, JSON, &back).await;
            (!answer.has_cause("Version") && !answer.has_cause("Unready")).then_some(answer)
        },
    )
    .await
    .unwrap();
    assert_eq!(answer.status, 403, "W6: {answer:?}");
    let kept = stack
        .call(&User::admin(), "GET", &stored, JSON, &Value::Null)
        .await
        .expect_ok();
    assert_eq!(kept["spec"]["paused"], true, "W6");
}

#[tokio::test]
async fn v5_the_order_of_lists_and_duplicate_keys_count() {
    let stack = installed().await;
    let agent = stack.agent("v5").await;
    let mut object = deployment(&agent.namespace, "two", 1);
    let container = |name: &str| json!({"name": name, "image": "registry.example/init:1"});
    object["spec"]["template"]["spec"]["initContainers"] =
        json!([container("first"), container("second")]);
    object["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "MODE", "value": "safe"}, {"name": "MODE", "value": "fast"}]);
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", agent.namespace);
    let made = stack
        .call(&User::admin(), "POST", &path, JSON, &object)
        .await
        .expect_ok();
    let path = format!("{path}/two");
    let current = async || {
        stack
            .call(&User::admin(), "GET", &path, JSON, &Value::Null)
            .await
            .expect_ok()
    };
    assert_eq!(made["metadata"]["name"], "two");
    for pointer in [
        "/spec/template/spec/initContainers",
        "/spec/template/spec/containers/0/env",
    ] {
        let mut swapped = current().await;
        swapped["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("resourceVersion");
        swapped
            .pointer_mut(pointer)
            .unwrap()
            .as_array_mut()
            .unwrap()
            .swap(0, 1);
        let answer = stack
            .call(&agent.user, "PUT", &path, JSON, &swapped)
            .await
            .expect_refused("ApprovalPending");
        assert!(
            !stack.request_of(&answer).await.spec.diff.is_empty(),
            "{pointer}"
        );
    }
}

#[tokio::test]
async fn w1_a_token_is_never_minted_by_a_dry_run() {
    let stack = installed().await;
    let agent = stack.agent("w1").await;
    stack
        .cluster
        .allow(&agent.user, Some(&agent.namespace), json!([{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}]))
        .await;
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    for query in ["", "?dryRun=All"] {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/default/token{query}",
            agent.namespace
        );
        let answer = stack
            .call(&agent.user, "POST", &path, JSON, &body)
            .await
            .expect_refused("NotApprovable");
        assert!(answer.has_cause("NotModelled"), "{answer:?}");
        assert!(answer.body["status"]["token"].is_null());
    }
}

#[tokio::test]
async fn w2_taking_ownership_of_fields_is_a_change_and_is_shown() {
    let stack = installed().await;
    let agent = stack.agent("w2").await;
    let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
    let same = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"mode": "slow"}});
    let apply = format!("{path}?fieldManager=argocd&force=true");
    let answer = stack
        .call(
            &agent.user,
            "PATCH",
            &apply,
            "application/apply-patch+yaml",
            &same,
        )
        .await;
    let request = stack
        .request_of(&answer.expect_refused("ApprovalPending"))
        .await;
    assert!(
        request
            .spec
            .facts
            .iter()
            .any(|fact| fact.kind == "FieldOwnership"),
        "{:?}",
        request.spec.facts
    );
    assert!(
        request.spec.change.contains("argocd"),
        "{}",
        request.spec.change
    );

    // Dropping everybody's ownership changes no value either.
    let answer = stack
        .patch(
            &agent.user,
            &path,
            json!({"metadata": {"managedFields": [{}]}}),
        )
        .await;
    answer.expect_refused("ApprovalPending");
}

#[tokio::test]
async fn w5_a_built_in_kind_is_written_in_its_preferred_version_only() {
    let stack = installed().await;
    let agent = stack.agent("w5").await;
    let cpu = |target: i32| json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}});
    let body = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "api"},
        "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"},
            "metrics": [cpu(50), cpu(20)]},
    });
    let path = format!(
        "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
        agent.namespace
    );
    stack
        .call(&User::admin(), "POST", &path, JSON, &body)
        .await
        .expect_ok();
    let older = format!("{}/api", path.replace("/v2/", "/v1/"));
    let mut back = stack
        .call(&agent.user, "GET", &older, JSON, &Value::Null)
        .await
        .expect_ok();
    // The autoscaler writes its status meanwhile: the agent does not say on what it builds.
    back["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let answer = stack
        .call(&agent.user, "PUT", &older, JSON, &back)
        .await
        .expect_refused("NotApprovable");
    assert!(
        answer.has_cause("Version") && answer.message().contains("v2"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn w7_a_write_that_changes_nothing_may_store_a_default_that_the_schema_has_now() {
    let stack = installed().await;
    let agent = stack.agent("w7").await;
    let group = format!("{}.example.com", agent.name);
    define(stack, &group, &[Version::stored("v1")]).await;
    allow_widgets(stack, &agent, &group).await;
    let path = make_widget(stack, &agent, &group, "v1", json!({"replicas": 1})).await;
    let mut spec = Version::stored("v1").spec;
    spec["mode"] = json!({"type": "string", "default": "Keep"});
    define(
        stack,
        &group,
        &[Version {
            spec,
            ..Version::stored("v1")
        }],
    )
    .await;
    // What the review shows on both sides has the default already: this limit is documented, not closed.
    let read = crate::cluster::wait::eventually(
        "the default is served",
        crate::cluster::wait::PATIENCE,
        async || {
            let read = stack
                .call(&agent.user, "GET", &path, JSON, &Value::Null)
                .await
                .expect_ok();
            (read["spec"]["mode"] == "Keep").then_some(read)
        },
    )
    .await
    .unwrap();
    known(stack, &agent, "PUT", &path, JSON, &read)
        .await
        .expect_ok();
    assert!(stack.requests(&agent.namespace).await.is_empty());
}

#[tokio::test]
async fn w13_a_write_of_a_secret_that_changes_nothing_needs_the_right_to_read_it() {
    let stack = installed().await;
    let agent = stack.agent("w13").await;
    let path = format!("/api/v1/namespaces/{}/secrets", agent.namespace);
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "stringData": {"password": "hunter2"}});
    stack
        .call(&User::admin(), "POST", &path, JSON, &body)
        .await
        .expect_ok();
    let writer = stack
        .cluster
        .service_account(&agent.namespace, "writer")
        .await;
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["patch"]}]);
    stack
        .cluster
        .allow(&writer, Some(&agent.namespace), rules)
        .await;
    let two = json!({"subjects": [
        {"serviceAccount": {"namespace": agent.namespace, "name": "bot"}},
        {"serviceAccount": {"namespace": agent.namespace, "name": "writer"}}]});
    stack.declare(&agent, two).await;
    for query in ["", "?dryRun=All"] {
        let answer = stack
            .patch(&writer, &format!("{path}/db{query}"), json!({}))
            .await
            .expect_refused("ToolNotEnabled");
        assert!(answer.has_cause("ReadsSecret"), "{answer:?}");
    }
    // The first account may read Secrets (role edit), so the same write is free for it.
    let read = stack
        .patch(&agent.user, &format!("{path}/db"), json!({}))
        .await
        .expect_ok();
    assert_eq!(read["metadata"]["name"], "db");
    let changed = stack
        .call(
            &agent.user,
            "PATCH",
            &format!("{path}/db"),
            STRATEGIC,
            &json!({"data": {"password": "bmV3"}}),
        )
        .await;
    let request = stack
        .request_of(&changed.expect_refused("ApprovalPending"))
        .await;
    let stored = serde_json::to_string(&request).unwrap();
    assert!(
        stored.contains("hmac:") && !stored.contains("bmV3") && !stored.contains("aHVudGVyMg=="),
        "{stored}"
    );
}

#[tokio::test]
async fn w15_text_in_self_link_is_no_change_and_is_never_shown() {
    let stack = installed().await;
    let agent = stack.agent("w15").await;
    let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
    let mut back = stack
        .call(&agent.user, "GET", &path, JSON, &Value::Null)
        .await
        .expect_ok();
    back["metadata"]["selfLink"] = json!("/evil");
    stack
        .call(&agent.user, "PUT", &path, JSON, &back)
        .await
        .expect_ok();
    back["data"]["mode"] = json!("fast");
    let answer = stack
        .call(&agent.user, "PUT", &path, JSON, &back)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&answer).await;
    assert!(
        !request.spec.change.contains("/evil") && request.spec.diff.len() == 1,
        "{:?}",
        request.spec.diff
    );
}

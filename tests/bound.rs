//! What a grant binds: each alone makes the use fail, with its own reason and the differing field named, and what it does not bind
//! leaves it good.

use grantgate::api::grant::GrantPhase;
use serde_json::json;

use crate::{
    cluster::User,
    stack::{Agent, Answer, Stack, installed},
};

/// What makes an approved scale to 5 fail, alone.
async fn refused_after(
    prefix: &str,
    reason: &str,
    change: impl AsyncFnOnce(&Stack<'_>, &Agent),
) -> Answer {
    let stack = installed().await;
    let agent = stack.agent(prefix).await;
    let grant = stack.approved_scale(&agent, 5).await;
    change(stack, &agent).await;
    let answer = stack.scale(&agent, 5).await.expect_refused(reason);
    assert!(stack.uses(&grant).await.is_empty(), "nothing was used");
    let next = stack.request_of(&answer).await;
    assert_eq!(
        next.spec
            .previous
            .as_ref()
            .map(|previous| previous.uid.as_str()),
        Some(grant.spec.request_ref.uid.as_str())
    );
    assert!(answer.has_cause("ApprovalPending"));
    answer
}

#[tokio::test]
async fn a_touched_field_changed_since_makes_the_use_fail() {
    let answer = refused_after("moved", "GrantStale", async |stack, agent| {
        stack.admin_scale(&agent.namespace, 4).await
    })
    .await;
    assert!(
        answer.causes().contains(&("Field", "/spec/replicas")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn an_object_made_anew_under_the_same_name_makes_the_use_fail() {
    let answer = refused_after("anew", "GrantStale", async |stack, agent| {
        stack.admin_recreate(&agent.namespace, 3).await
    })
    .await;
    assert!(
        answer.causes().contains(&("Field", "action.targetUID")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_policy_changed_since_makes_the_use_fail() {
    let answer = refused_after("policy", "GrantStale", async |stack, agent| {
        stack
            .put_policy(
                &agent.name,
                json!({"validity": {"uses": 1, "durationSeconds": 300}}),
            )
            .await;
    })
    .await;
    assert!(answer.has_cause("PolicyChanged"), "{answer:?}");
    assert!(names_a_policy(&answer, "policy"), "{answer:?}");
}

/// Whether an answer names, as a field that differs, the policy of that name's beginning.
fn names_a_policy(answer: &Answer, prefix: &str) -> bool {
    answer.causes().iter().any(|(reason, field)| {
        *reason == "Field" && field.starts_with(&format!("ClusterApprovalPolicy/{prefix}"))
    })
}

/// A second policy for what carries a label, by which ana decides too.
async fn put_labelled_policy(stack: &Stack<'_>, name: &str, label: &str, value: &str) {
    stack
        .put_policy(
            name,
            json!({"targets": [{"kubernetes": {"scope": "All", "namespaceSelector": {"matchLabels": {label: value}}}}]}),
        )
        .await;
}

/// The one grant of the agent's namespace, once it is stale.
async fn wait_stale(stack: &Stack<'_>, agent: &Agent) {
    let grants = stack.grants(&agent.namespace).await;
    stack.wait_grant_phase(&grants[0], GrantPhase::Stale).await;
}

#[tokio::test]
async fn a_policy_that_begins_to_match_makes_the_use_fail() {
    let answer = refused_after("begins", "GrantStale", async |stack, agent| {
        let name = format!("added-{}", agent.name);
        put_labelled_policy(
            stack,
            &name,
            "kubernetes.io/metadata.name",
            &agent.namespace,
        )
        .await;
        wait_stale(stack, agent).await;
    })
    .await;
    assert!(answer.has_cause("BoundaryCrossed"), "{answer:?}");
    assert!(names_a_policy(&answer, "added-begins"), "{answer:?}");
}

#[tokio::test]
async fn a_namespace_relabelled_into_another_policy_makes_the_use_fail() {
    let answer = refused_after("relabelled", "GrantStale", async |stack, agent| {
        wait_relabelled(stack, agent).await;
        wait_stale(stack, agent).await;
    })
    .await;
    assert!(answer.has_cause("BoundaryCrossed"), "{answer:?}");
    assert!(names_a_policy(&answer, "bounded-relabelled"), "{answer:?}");
}

/// A policy that matches nothing yet, and a label that makes it match the agent's namespace.
async fn wait_relabelled(stack: &Stack<'_>, agent: &Agent) {
    let name = format!("bounded-{}", agent.name);
    put_labelled_policy(stack, &name, "bounded-by", &name).await;
    let path = format!("/api/v1/namespaces/{}", agent.namespace);
    stack
        .patch(
            &User::admin(),
            &path,
            json!({"metadata": {"labels": {"bounded-by": name}}}),
        )
        .await
        .expect_ok();
}

#[tokio::test]
async fn a_revoked_grant_makes_the_use_fail() {
    let answer = refused_after("revoked", "GrantStale", async |stack, agent| {
        let grants = stack.grants(&agent.namespace).await;
        stack.revoke(&grants[0]).await;
        stack
            .wait_grant_phase(&grants[0], GrantPhase::Revoked)
            .await;
    })
    .await;
    assert!(answer.has_cause("Revoked"), "{answer:?}");
}

#[tokio::test]
async fn an_expired_grant_makes_the_use_fail() {
    let stack = installed().await;
    let agent = stack.agent("expired").await;
    stack
        .put_policy(
            &agent.name,
            json!({"validity": {"uses": 1, "durationSeconds": 1}}),
        )
        .await;
    let grant = stack.approved_scale(&agent, 5).await;
    stack.wait_grant_phase(&grant, GrantPhase::Expired).await;
    stack.scale(&agent, 5).await.expect_refused("GrantExpired");
    assert!(stack.uses(&grant).await.is_empty());
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
}

#[tokio::test]
async fn ft1_another_value_is_a_mismatch_that_names_the_field_and_leaves_the_grant() {
    let stack = installed().await;
    let agent = stack.agent("value").await;
    let grant = stack.approved_scale(&agent, 5).await;
    let answer = stack.scale(&agent, 6).await.expect_refused("GrantMismatch");
    assert!(
        answer.causes().contains(&("Field", "/spec/replicas")),
        "{answer:?}"
    );
    assert!(
        answer.message().contains("/spec/replicas"),
        "{}",
        answer.message()
    );
    assert!(stack.uses(&grant).await.is_empty());
    stack.scale(&agent, 5).await.expect_ok();
    let after = stack
        .scale(&agent, 7)
        .await
        .expect_refused("ApprovalPending");
    assert!(
        !after.has_cause("Mismatch"),
        "a spent grant permits nothing that could differ: {after:?}"
    );
}

#[tokio::test]
async fn ft2_another_agent_or_name_asks_for_itself_and_leaves_the_grant() {
    let stack = installed().await;
    let agent = stack.agent("mine").await;
    let grant = stack.approved_scale(&agent, 5).await;

    let other = stack.agent("other").await;
    stack
        .cluster
        .bind(&other.user, "edit", Some(&agent.namespace))
        .await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api/scale",
        agent.namespace
    );
    let answer = stack
        .patch(&other.user, &path, json!({"spec": {"replicas": 5}}))
        .await
        .expect_refused("ApprovalPending");
    assert_eq!(
        stack.request_of(&answer).await.spec.requester.agent,
        other.name
    );

    stack.admin_put_deployment(&agent.namespace, "web", 3).await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/web/scale",
        agent.namespace
    );
    stack
        .patch(&agent.user, &path, json!({"spec": {"replicas": 5}}))
        .await
        .expect_refused("ApprovalPending");

    assert!(stack.uses(&grant).await.is_empty());
    stack.scale(&agent, 5).await.expect_ok();
}

#[tokio::test]
async fn ft2_another_namespace_asks_for_itself_and_leaves_the_grant() {
    let stack = installed().await;
    let agent = stack.agent("here").await;
    let there = stack.agent("there").await;
    stack
        .cluster
        .bind(&agent.user, "edit", Some(&there.namespace))
        .await;
    let grant = stack.approved_scale(&agent, 5).await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api/scale",
        there.namespace
    );
    let answer = stack
        .patch(&agent.user, &path, json!({"spec": {"replicas": 5}}))
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&answer).await;
    assert_eq!(
        (
            request.metadata.namespace.as_deref(),
            request.spec.requester.agent.as_str()
        ),
        (Some(there.namespace.as_str()), agent.name.as_str())
    );
    assert!(request.spec.previous.is_none());
    assert_eq!(stack.replicas(&there.namespace).await, 3);
    assert!(stack.uses(&grant).await.is_empty());
    stack.scale(&agent, 5).await.expect_ok();
}

#[tokio::test]
async fn another_served_version_is_refused_as_such_and_leaves_the_grant() {
    let stack = installed().await;
    let agent = stack.agent("served").await;
    let path = |version: &str| {
        format!(
            "/apis/autoscaling/{version}/namespaces/{}/horizontalpodautoscalers",
            agent.namespace
        )
    };
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "api"},
        "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}},
    });
    stack
        .call(
            &User::admin(),
            "POST",
            &path("v2"),
            "application/json",
            &autoscaler,
        )
        .await
        .expect_ok();
    let raise = async |version: &str| {
        let path = format!("{}/api", path(version));
        let change = json!({"spec": {"maxReplicas": 9}});
        stack.patch(&agent.user, &path, change).await
    };
    let stopped = raise("v2").await.expect_refused("ApprovalPending");
    let grant = stack.approve(&stopped).await.grant.unwrap();
    let refused = raise("v1").await.expect_refused("NotApprovable");
    assert!(
        refused.has_cause("Version") && refused.message().contains("v2"),
        "{refused:?}"
    );
    assert_eq!(stack.requests(&agent.namespace).await.len(), 1);
    assert!(stack.uses(&grant).await.is_empty());
    raise("v2").await.expect_ok();
    assert_eq!(stack.uses(&grant).await.len(), 1);
}

#[tokio::test]
async fn with_too_little_time_left_in_the_call_nothing_is_used() {
    let stack = installed().await;
    let agent = stack.agent("hasty").await;
    let grant = stack.approved_scale(&agent, 5).await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api/scale?timeout=1s",
        agent.namespace
    );
    let hasty = stack
        .patch(&agent.user, &path, json!({"spec": {"replicas": 5}}))
        .await
        .expect_refused("ApprovalUnavailable");
    assert!(hasty.has_cause("Busy"), "{hasty:?}");
    assert!(stack.uses(&grant).await.is_empty());
    stack.scale(&agent, 5).await.expect_ok();
}

#[tokio::test]
async fn an_unrelated_change_leaves_the_grant_good() {
    let stack = installed().await;
    let agent = stack.agent("unrelated").await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api",
        agent.namespace
    );
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "registry.example/api:2"}]}}}});
    let strategic = "application/strategic-merge-patch+json";
    let stopped = stack
        .call(&agent.user, "PATCH", &path, strategic, &image)
        .await
        .expect_refused("ApprovalPending");
    stack.approve(&stopped).await;
    let admin = User::admin();
    stack
        .patch(
            &admin,
            &path,
            json!({"metadata": {"annotations": {"note": "by a controller"}}}),
        )
        .await
        .expect_ok();
    stack
        .patch(
            &admin,
            &format!("{path}/status"),
            json!({"status": {"observedGeneration": 99}}),
        )
        .await
        .expect_ok();
    stack
        .call(&agent.user, "PATCH", &path, strategic, &image)
        .await
        .expect_ok();
}

//! The path that everything rests on: stopped, seen, decided, done once, and stopped again where anything differs.

use grantgate::api::{approval_request::RequestPhase, grant::GrantPhase};
use serde_json::json;

use crate::{
    cluster::{User, audit::Select},
    stack::{Agent, Stack, installed, request_phase},
};

#[tokio::test]
async fn a_change_waits_is_approved_happens_once_and_waits_again() {
    let stack = installed().await;
    let agent = stack.agent("story").await;

    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    assert!(
        stopped
            .message()
            .contains("NOT EXECUTED (this write), waiting for a person"),
        "{}",
        stopped.message()
    );
    assert_eq!(stack.replicas(&agent.namespace).await, 3);

    let request = stack.request_of(&stopped).await;
    assert_eq!(request.spec.diff.len(), 1);
    assert_eq!(request.spec.diff[0].path, "/spec/replicas");
    assert_eq!(
        (
            request.spec.diff[0].from.as_deref(),
            request.spec.diff[0].to.as_deref()
        ),
        (Some("3"), Some("5"))
    );
    assert_eq!(request.spec.requester.agent, agent.name);

    let grant = stack.approve(&stopped).await.grant.unwrap();
    stack.scale(&agent, 5).await.expect_ok();
    assert_eq!(stack.replicas(&agent.namespace).await, 5);
    assert_eq!(stack.uses(&grant).await.len(), 1);

    stack.admin_scale(&agent.namespace, 3).await;
    let again = stack.scale(&agent, 5).await;
    assert_eq!(again.status, 403, "{again:?}");
    let next = stack.request_of(&again).await;
    assert_eq!(
        next.spec.previous.as_ref().map(|previous| &previous.uid),
        request.metadata.uid.as_ref()
    );
    assert_eq!(request_phase(&next), None);
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
}

#[tokio::test]
async fn repeats_of_one_change_share_one_request_and_write_nothing() {
    let stack = installed().await;
    let agent = stack.agent("repeat").await;
    let first = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let mark = stack.cluster.audit_mark().await;
    for _ in 0..3 {
        let again = stack
            .scale(&agent, 5)
            .await
            .expect_refused("ApprovalPending");
        assert_eq!(again.request(), first.request());
    }
    let webhook = User::by_token(
        "system:serviceaccount:grantgate-system:grantgate-webhook",
        &[],
    );
    let written = stack
        .cluster
        .audit_settled(
            &Select::since(&mark)
                .user(&webhook)
                .writes()
                .namespace(&agent.namespace),
        )
        .await;
    assert!(written.is_empty(), "{written:?}");
    let other = stack
        .scale(&agent, 6)
        .await
        .expect_refused("ApprovalPending");
    assert_ne!(
        other.request(),
        first.request(),
        "another change is another request"
    );
    assert_eq!(stack.requests(&agent.namespace).await.len(), 2);
}

#[tokio::test]
async fn an_allow_writes_exactly_once_and_reads_nothing() {
    let stack = installed().await;
    let agent = stack.agent("cost").await;
    stack.approved_scale(&agent, 5).await;
    let mark = stack.cluster.audit_mark().await;
    stack.scale(&agent, 5).await.expect_ok();
    let webhook = User::by_token(
        "system:serviceaccount:grantgate-system:grantgate-webhook",
        &[],
    );
    let events = stack
        .cluster
        .audit_settled(
            &Select::since(&mark)
                .user(&webhook)
                .namespace(&agent.namespace),
        )
        .await;
    let calls: Vec<String> = events
        .iter()
        .map(|event| format!("{} {:?}", event.verb, event.object_ref))
        .collect();
    assert_eq!(events.len(), 1, "{calls:#?}");
    assert_eq!(events[0].verb, "update");
}

#[tokio::test]
async fn a_dry_run_and_a_write_that_changes_nothing_pass_and_leave_nothing() {
    let stack = installed().await;
    let agent = stack.agent("free").await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api",
        agent.namespace
    );
    stack
        .patch(&agent.user, &path, json!({"spec": {"replicas": 3}}))
        .await
        .expect_ok();
    stack
        .patch(
            &agent.user,
            &format!("{path}?dryRun=All"),
            json!({"spec": {"replicas": 9}}),
        )
        .await
        .expect_ok();
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
    assert!(stack.requests(&agent.namespace).await.is_empty());
}

/// What makes an approved scale to 5 fail, alone.
async fn refused_after(
    prefix: &str,
    reason: &str,
    change: impl AsyncFnOnce(&Stack<'_>, &Agent),
) -> crate::stack::Answer {
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
    refused_after("policy", "GrantStale", async |stack, agent| {
        stack
            .put_policy(
                &agent.name,
                json!({"validity": {"uses": 1, "durationSeconds": 300}}),
            )
            .await;
    })
    .await;
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
    let answer = stack.scale(&agent, 5).await.expect_refused("GrantExpired");
    assert_ne!(answer.request().unwrap().1, grant.spec.request_ref.name);
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

#[tokio::test]
async fn a_denial_ends_the_request_and_after_the_cool_down_the_same_call_asks_anew() {
    let stack = installed().await;
    let agent = stack.agent("denied").await;
    stack
        .put_policy(&agent.name, json!({"denialCooldownSeconds": 3600}))
        .await;
    let first = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let denied = stack.deny(&first).await;
    let refused = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalDenied");
    assert!(
        refused.message().contains("a person denied"),
        "{}",
        refused.message()
    );
    assert_eq!(
        stack.requests(&agent.namespace).await.len(),
        1,
        "no request within the cool-down"
    );

    let agent = stack.agent("denied-again").await;
    let first = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let before = stack.deny(&first).await;
    let second = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let next = stack.request_of(&second).await;
    assert_eq!(
        next.spec
            .previous
            .as_ref()
            .map(|previous| previous.reason.as_str()),
        Some("Denied")
    );
    let after = stack
        .request(&agent.namespace, before.metadata.name.as_deref().unwrap())
        .await;
    assert_eq!(
        (after.spec, after.status),
        (before.spec, before.status),
        "the predecessor is unchanged"
    );
    assert_eq!(request_phase(&denied), Some(RequestPhase::Denied));
}

#[tokio::test]
async fn kubectl_is_stopped_with_the_whole_message_and_goes_through_once_approved() {
    let stack = installed().await;
    let agent = stack.agent("kubectl").await;
    let kubectl = stack.cluster.kubectl(&agent.user);
    let namespace = agent.namespace.as_str();
    for command in [
        vec!["scale", "deploy/api", "--replicas=6", "-n", namespace],
        vec!["delete", "configmap", "settings", "-n", namespace],
        vec![
            "patch",
            "deploy/api",
            "-n",
            namespace,
            "--type=merge",
            "-p",
            r#"{"spec":{"minReadySeconds":5}}"#,
        ],
        vec!["label", "deploy/api", "tier=B", "-n", namespace],
    ] {
        let stopped = kubectl.run(command.clone()).await;
        assert_eq!(stopped.code, Some(1), "{command:?}: {stopped:?}");
        assert!(
            stopped.stderr.contains("NOT EXECUTED (this write)"),
            "{command:?}: {}",
            stopped.stderr
        );
        assert!(
            stopped
                .stderr
                .contains("Poll: kubectl get approvalrequests.grantgate.dev ar-"),
            "{}",
            stopped.stderr
        );
        let pending: Vec<_> = stack
            .requests(namespace)
            .await
            .into_iter()
            .filter(|request| request_phase(request).is_none())
            .collect();
        assert_eq!(pending.len(), 1, "{command:?}");
        stack.approve_request(&pending[0]).await;
        kubectl.run(command).await.expect_ok();
    }
}

#[tokio::test]
async fn a_person_who_is_no_agent_is_never_asked() {
    let stack = installed().await;
    let agent = stack.agent("person").await;
    stack
        .cluster
        .bind(&User::ben(), "edit", Some(&agent.namespace))
        .await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api/scale",
        agent.namespace
    );
    stack
        .patch(&User::ben(), &path, json!({"spec": {"replicas": 7}}))
        .await
        .expect_ok();
    assert!(stack.requests(&agent.namespace).await.is_empty());
}

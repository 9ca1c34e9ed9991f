//! Who writes records, where they live, and whose votes count.

use grantgate::api::{ApprovalRequest, approval_request::RequestPhase};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::{
        User,
        wait::{PATIENCE, eventually},
    },
    stack::{Stack, installed, request_phase},
};

const JSON: &str = "application/json";

#[tokio::test]
async fn v17_a_request_about_a_terminating_namespace_lives_with_the_installation() {
    let stack = installed().await;
    let agent = stack.agent("v17").await;
    let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
    stack
        .patch(
            &User::admin(),
            &path,
            json!({"metadata": {"finalizers": ["example.com/hold"]}}),
        )
        .await
        .expect_ok();
    let namespaces: Api<Namespace> = Api::all(stack.cluster.admin());
    namespaces
        .delete(&agent.namespace, &DeleteParams::default())
        .await
        .unwrap();
    let answer = eventually("the namespace is seen to terminate", PATIENCE, async || {
        let answer = stack.label(&agent, "B").await;
        answer
            .request()
            .is_some_and(|(home, _)| home == crate::stack::SYSTEM)
            .then_some(answer)
    })
    .await
    .unwrap();
    assert_eq!(answer.status, 403);
    stack
        .patch(
            &User::admin(),
            &path,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .expect_ok();
    eventually(
        "the namespace is gone, records and all",
        PATIENCE,
        async || {
            namespaces
                .get_opt(&agent.namespace)
                .await
                .unwrap()
                .is_none()
                .then_some(())
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn v18_a_vote_bears_its_true_author() {
    let stack = installed().await;
    let agent = stack.agent("v18").await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;
    let path = format!(
        "/apis/grantgate.dev/v1alpha1/namespaces/{}/approvaldecisions",
        agent.namespace
    );
    let mut forged = Stack::decision(&request, "Approve");
    forged["spec"]["approver"] = json!({"username": "ben@example.com", "uid": "", "groups": []});
    let answer = stack.call(&User::ana(), "POST", &path, JSON, &forged).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    let stored = stack.vote(&User::ana(), &request, "Approve").await.unwrap();
    assert_eq!(stored.spec.approver.unwrap().username, "ana@example.com");
}

#[tokio::test]
async fn v20_the_right_to_approve_counts_in_the_targets_namespace_only() {
    let stack = installed().await;
    let agent = stack.agent("v20").await;
    let elsewhere = stack.cluster.namespace("v20-elsewhere", &[]).await;
    stack
        .put_policy(&agent.name, json!({"approvers": {"required": [{"count": 1, "from": [{"user": "ana@example.com"}, {"user": "dan@example.com"}]}]}}))
        .await;
    stack
        .cluster
        .bind(&User::dan(), "grantgate-approver", Some(&elsewhere))
        .await;
    // He may create decisions here, but not approve by any policy here.
    let rules = json!([{"apiGroups": ["grantgate.dev"], "resources": ["approvaldecisions"], "verbs": ["create"]}]);
    stack
        .cluster
        .allow(&User::dan(), Some(&agent.namespace), rules)
        .await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;
    let refused = stack
        .vote(&User::dan(), &request, "Approve")
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("approve"), "{refused}");
    assert_eq!(request_phase(&stack.request_of(&stopped).await), None);
    stack.vote(&User::ana(), &request, "Approve").await.unwrap();
    stack
        .wait_request_phase(&request, RequestPhase::Approved)
        .await;
}

#[tokio::test]
async fn a_vote_on_another_digest_or_by_the_agent_is_refused() {
    let stack = installed().await;
    let agent = stack.agent("votes").await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;
    let path = format!(
        "/apis/grantgate.dev/v1alpha1/namespaces/{}/approvaldecisions",
        agent.namespace
    );
    let mut other = Stack::decision(&request, "Approve");
    other["spec"]["requests"][0]["digest"] = json!(format!("v1:sha256:{}", "0".repeat(64)));
    let answer = stack.call(&User::ana(), "POST", &path, JSON, &other).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    stack
        .cluster
        .bind(&agent.user, "grantgate-approver", Some(&agent.namespace))
        .await;
    let own = stack.vote(&agent.user, &request, "Approve").await;
    assert!(own.is_err(), "an agent decides nothing");
    assert_eq!(request_phase(&stack.request_of(&stopped).await), None);
}

#[tokio::test]
async fn nobody_files_or_changes_records_by_hand() {
    let stack = installed().await;
    let agent = stack.agent("hand").await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;
    let api: Api<ApprovalRequest> = Api::namespaced(stack.cluster.admin(), &agent.namespace);
    let mut copy = ApprovalRequest::new("ar-forged", request.spec.clone());
    copy.metadata.namespace = Some(agent.namespace.clone());
    assert!(api.create(&PostParams::default(), &copy).await.is_err());
    let name = request.metadata.name.as_deref().unwrap();
    assert!(api.delete(name, &DeleteParams::default()).await.is_err());
    let path = format!(
        "/apis/grantgate.dev/v1alpha1/namespaces/{}/approvalrequests/{name}/status",
        agent.namespace
    );
    let answer = stack
        .patch(
            &User::admin(),
            &path,
            json!({"status": {"phase": "Approved"}}),
        )
        .await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(request_phase(&stack.request_of(&stopped).await), None);
}

#[tokio::test]
async fn a_namespaced_policy_exempts_nothing_that_a_cluster_policy_asks_for() {
    let stack = installed().await;
    let agent = stack.agent("tenant").await;
    let exempt = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalPolicy", "metadata": {"name": "free", "namespace": agent.namespace},
        "spec": {"effect": "Exempt", "targets": [{"kubernetes": {
            "rules": [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "operations": ["UPDATE"]}]}}]},
    });
    stack.kubectl_apply(&exempt).await;
    let api: Api<grantgate::api::ApprovalPolicy> =
        Api::namespaced(stack.cluster.admin(), &agent.namespace);
    let in_force = async || {
        eventually("the namespaced policy is InForce", PATIENCE, async || {
            let status = api.get("free").await.ok()?.status?;
            status
                .conditions
                .into_iter()
                .find(|condition| condition.type_ == "InForce" && condition.status == "True")
        })
        .await
        .unwrap()
    };
    in_force().await;
    stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    stack
        .put_policy(&agent.name, json!({"namespaceMay": ["Exempt"]}))
        .await;
    stack.scale(&agent, 5).await.expect_ok();
    stack
        .label(&agent, "B")
        .await
        .expect_refused("ApprovalPending");
}

#[tokio::test]
async fn a_policy_that_does_not_compile_is_refused_with_its_path() {
    let stack = installed().await;
    for (when, words) in [
        ("object.spec.replicas >", "when"),
        ("[1,2].all(a, [1,2].all(b, [1,2].all(c, a == b)))", "when"),
        (&"(".repeat(40), "when"),
    ] {
        let policy: Value = json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "broken"},
            "spec": {"effect": "RequireApproval", "targets": [{"kubernetes": {"scope": "All", "when": when}}],
                "approvers": {"required": [{"count": 1, "from": []}]}},
        });
        let path = "/apis/grantgate.dev/v1alpha1/clusterapprovalpolicies";
        let answer = stack
            .call(&User::admin(), "POST", path, JSON, &policy)
            .await;
        assert_eq!(answer.status, 403, "{when}: {answer:?}");
        assert!(
            answer.message().contains("spec.targets[0].kubernetes")
                && answer.message().contains(words),
            "{}",
            answer.message()
        );
    }
}

#[tokio::test]
async fn a_subject_stands_in_one_identity_and_our_own_accounts_in_none() {
    let stack = installed().await;
    let agent = stack.agent("twice-declared").await;
    let path = "/apis/grantgate.dev/v1alpha1/agentidentities";
    for (subject, words) in [
        (
            json!({"serviceAccount": {"namespace": agent.namespace, "name": "bot"}}),
            "belongs to AgentIdentity",
        ),
        (
            json!({"serviceAccount": {"namespace": crate::stack::SYSTEM, "name": "grantgate-webhook"}}),
            "own accounts",
        ),
        (json!({"group": "system:masters"}), ""),
        (json!({"user": "system:apiserver"}), ""),
    ] {
        let identity = json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": format!("{}-other", agent.name)},
            "spec": {"owner": {"group": "team-platform"}, "subjects": [subject]},
        });
        let answer = stack
            .call(&User::admin(), "POST", path, JSON, &identity)
            .await;
        assert!(matches!(answer.status, 403 | 422), "{subject}: {answer:?}");
        assert!(answer.message().contains(words), "{}", answer.message());
    }
}

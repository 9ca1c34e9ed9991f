//! Grants that were deleted, copied, restored or kept beyond what they were for.

use grantgate::{
    api::{Grant, approval_request::RequestPhase, grant::GrantPhase},
    cluster::lease::REACHED,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::{
        User,
        wait::{PATIENCE, eventually},
    },
    stack::{Agent, SYSTEM, Stack, grant_phase, installed, request_phase},
};

/// Writes as the controller's own account, which alone may.
fn as_controller(stack: &Stack<'_>, controller: &User) -> kube::Client {
    stack.cluster.client(controller)
}

/// The controller's account, let do once what retention will need: delete a record.
async fn controller(stack: &Stack<'_>, agent: &Agent) -> User {
    let account = stack
        .cluster
        .service_account(crate::stack::SYSTEM, "grantgate-controller")
        .await;
    let rules =
        json!([{"apiGroups": ["grantgate.dev"], "resources": ["grants"], "verbs": ["delete"]}]);
    stack
        .cluster
        .allow(&account, Some(&agent.namespace), rules)
        .await;
    account
}

async fn used_grant(stack: &Stack<'_>, agent: &Agent) -> Grant {
    let grant = stack.approved_scale(agent, 5).await;
    stack.scale(agent, 5).await.expect_ok();
    stack.admin_scale(&agent.namespace, 3).await;
    stack
        .grant(&agent.namespace, grant.metadata.name.as_deref().unwrap())
        .await
}

#[tokio::test]
async fn w10_the_thirty_third_open_use_is_busy() {
    let stack = installed().await;
    let agent = stack.agent("w10").await;
    stack
        .put_policy(
            &agent.name,
            json!({"validity": {"uses": 40, "durationSeconds": 600}}),
        )
        .await;
    let grant = used_grant(stack, &agent).await;
    // As if thirty-one more calls had come at once.
    let mut full = grant.clone();
    let status = full.status.as_mut().unwrap();
    let one = status.uses.values().next().unwrap().clone();
    for number in 1..32 {
        let uid = format!("00000000-0000-4000-8000-{number:012}");
        status.uses.insert(uid, one.clone());
    }
    status.used = Some(32);
    let account = stack
        .cluster
        .service_account(SYSTEM, "grantgate-webhook")
        .await;
    let api: Api<Grant> = Api::namespaced(stack.cluster.client(&account), &agent.namespace);
    let name = grant.metadata.name.as_deref().unwrap();
    api.replace_status(name, &PostParams::default(), &full)
        .await
        .unwrap();
    let answer = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalUnavailable");
    assert!(answer.has_cause("Busy"), "{answer:?}");
    let after = stack.grant(&agent.namespace, name).await.status.unwrap();
    assert_eq!((after.used, after.uses.len()), (Some(32), 32));
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
}

#[tokio::test]
async fn a_deleted_grant_is_never_minted_again() {
    let stack = installed().await;
    let agent = stack.agent("deleted").await;
    let grant = used_grant(stack, &agent).await;
    let name = grant.metadata.name.clone().unwrap();
    let account = controller(stack, &agent).await;
    let api: Api<Grant> = Api::namespaced(as_controller(stack, &account), &agent.namespace);
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let request = stack
        .request(&agent.namespace, &grant.spec.request_ref.name)
        .await;
    eventually("GrantLost is observed", PATIENCE, async || {
        let request = stack
            .request(&agent.namespace, request.metadata.name.as_deref().unwrap())
            .await;
        request
            .status?
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == "GrantLost" && condition.status == "True")
    })
    .await
    .unwrap();
    assert!(stack.grants(&agent.namespace).await.is_empty());
    assert_eq!(stack.scale(&agent, 5).await.status, 403);
    assert!(
        stack.grants(&agent.namespace).await.is_empty(),
        "nothing was minted again"
    );
}

/// Waits until every replica knows what there was at a revision.
async fn wait_reached(stack: &Stack<'_>, resource: &str, resource_version: &str) {
    let leases: Api<Lease> = Api::namespaced(stack.cluster.admin(), SYSTEM);
    let webhooks = ListParams::default().labels("grantgate.dev/component=webhook");
    eventually("every replica has reached it", PATIENCE, async || {
        let leases = leases.list(&webhooks).await.unwrap().items;
        let have = leases.iter().filter(|lease| {
            let reached = lease
                .annotations()
                .get(REACHED)
                .cloned()
                .unwrap_or_default();
            let reached: Value = serde_json::from_str(&reached).unwrap_or_default();
            let number = |text: &str| text.parse::<u64>().unwrap_or(0);
            number(reached[resource].as_str().unwrap_or_default()) >= number(resource_version)
        });
        (have.count() == stack.webhooks.len()).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_restored_copy_of_a_grant_never_works() {
    let stack = installed().await;
    let agent = stack.agent("restored").await;
    let grant = used_grant(stack, &agent).await;
    let name = grant.metadata.name.clone().unwrap();
    let account = controller(stack, &agent).await;
    let api: Api<Grant> = Api::namespaced(as_controller(stack, &account), &agent.namespace);
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    let mut copy = Grant::new(&name, grant.spec.clone());
    copy.metadata.namespace = Some(agent.namespace.clone());
    let copy = api.create(&PostParams::default(), &copy).await.unwrap();
    wait_reached(
        stack,
        "grants",
        copy.metadata.resource_version.as_deref().unwrap(),
    )
    .await;
    let answer = stack.scale(&agent, 5).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
    assert!(stack.uses(&copy).await.is_empty());
}

#[tokio::test]
async fn v19_nothing_winds_a_grant_back() {
    let stack = installed().await;
    let agent = stack.agent("v19").await;
    let grant = used_grant(stack, &agent).await;
    let name = grant.metadata.name.clone().unwrap();
    let account = controller(stack, &agent).await;
    for client in [stack.cluster.admin(), as_controller(stack, &account)] {
        let api: Api<Grant> = Api::namespaced(client, &agent.namespace);
        for body in [
            json!({"status": null}),
            json!({"status": {"uses": null}}),
            json!({"status": {"used": 0}}),
            json!({"status": {"used": null}}),
        ] {
            let refused = api
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(body.clone()))
                .await;
            assert!(refused.is_err(), "{body}");
        }
    }
    assert_eq!(stack.scale(&agent, 5).await.status, 403);
    assert_eq!(stack.uses(&grant).await.len(), 1);
}

#[tokio::test]
async fn two_identical_changes_one_after_the_other_are_both_possible() {
    let stack = installed().await;
    let agent = stack.agent("twice").await;
    let first = used_grant(stack, &agent).await;
    let answer = stack.scale(&agent, 5).await.expect_refused("GrantSpent");
    let second = stack.approve(&answer).await.grant.unwrap();
    assert_ne!(first.metadata.name, second.metadata.name);
    stack.scale(&agent, 5).await.expect_ok();
    assert_eq!(stack.replicas(&agent.namespace).await, 5);
}

#[tokio::test]
async fn a_stale_grant_never_comes_back_to_life() {
    let stack = installed().await;
    let agent = stack.agent("stale").await;
    let grant = stack.approved_scale(&agent, 5).await;
    stack.admin_scale(&agent.namespace, 4).await;
    stack.scale(&agent, 5).await.expect_refused("GrantStale");
    assert_eq!(
        grant_phase(
            &stack
                .grant(&agent.namespace, grant.metadata.name.as_deref().unwrap())
                .await
        ),
        GrantPhase::Stale
    );
    stack.admin_scale(&agent.namespace, 3).await;
    let answer = stack.scale(&agent, 5).await;
    assert_eq!(
        answer.status, 403,
        "the old state is back, the permission is not: {answer:?}"
    );
    assert!(stack.uses(&grant).await.is_empty());
}

#[tokio::test]
async fn w12_a_change_that_ran_and_was_reverted_is_not_settled_as_not_observed() {
    let stack = installed().await;
    let agent = stack.agent("w12").await;
    let grant = used_grant(stack, &agent).await;
    // Reverted by `used_grant`. Whatever the record says once the window is over, it never says that nothing ran.
    let settled = eventually(
        "the use is settled",
        std::time::Duration::from_secs(180),
        async || {
            let once = stack.uses(&grant).await.pop()?;
            (once.effect != grantgate::api::grant::UseEffect::Pending).then_some(once)
        },
    )
    .await
    .unwrap();
    assert_ne!(
        settled.effect,
        grantgate::api::grant::UseEffect::NotObserved,
        "{settled:?}"
    );
    assert!(settled.evidence.is_some() && settled.settled_at.is_some());
}

#[tokio::test]
async fn ft5_a_tool_disabled_while_pending_runs_nothing_and_enabled_again_revives_nothing() {
    let stack = installed().await;
    let agent = stack.agent("ft5").await;
    let mount = async |disable: serde_json::Value| {
        stack
            .kubectl_apply(&json!({
                "apiVersion": "grantgate.dev/v1alpha1", "kind": "ToolServer", "metadata": {"name": "kubernetes", "namespace": agent.namespace},
                "spec": {"identity": {"subjects": [{"serviceAccount": {"namespace": agent.namespace, "name": "bot"}}]},
                    "catalog": {"name": "kubernetes-mcp-server", "version": "1"}},
            }))
            .await;
        stack
            .kubectl_apply(&json!({
                "apiVersion": "grantgate.dev/v1alpha1", "kind": "ToolMount", "metadata": {"name": "bot", "namespace": agent.namespace},
                "spec": {"agent": agent.name, "server": "kubernetes", "enable": ["resources_scale"], "disable": disable},
            }))
            .await;
        let api: Api<grantgate::api::ToolMount> =
            Api::namespaced(stack.cluster.admin(), &agent.namespace);
        eventually("the mount is InForce", PATIENCE, async || {
            let mount = api.get("bot").await.ok()?;
            let generation = mount.metadata.generation;
            mount.status?.conditions.into_iter().find(|condition| {
                condition.type_ == "InForce"
                    && condition.status == "True"
                    && condition.observed_generation == generation
            })
        })
        .await
        .unwrap();
    };
    mount(json!([])).await;
    stack.declare(&agent, json!({"surface": "Mounts"})).await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;
    let label = stack
        .label(&agent, "B")
        .await
        .expect_refused("ToolNotEnabled");
    assert!(label.message().contains("refused"), "{}", label.message());

    mount(json!(["resources_scale"])).await;
    stack
        .scale(&agent, 5)
        .await
        .expect_refused("ToolNotEnabled");
    stack
        .wait_request_phase(&request, RequestPhase::Superseded)
        .await;
    let late = stack.vote(&User::ana(), &request, "Approve").await;
    assert!(late.is_err(), "a superseded request cannot be approved");

    mount(json!([])).await;
    let again = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    assert_ne!(again.request(), stopped.request(), "nothing comes back");
    let grant = stack.approve(&again).await.grant.unwrap();
    mount(json!(["resources_scale"])).await;
    stack.wait_grant_phase(&grant, GrantPhase::Stale).await;
    mount(json!([])).await;
    let last = stack.scale(&agent, 5).await;
    assert_eq!(last.status, 403, "{last:?}");
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
}

#[tokio::test]
async fn ft3_the_most_specific_policy_shapes_and_the_strictest_validity_holds() {
    let stack = installed().await;
    let agent = stack.agent("ft3").await;
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": agent.namespace}});
    // The policy of `agent` asks for everything, ana deciding, 600 s. These two are more specific.
    stack
        .put_policy(&format!("{}-named", agent.name), json!({
            "targets": [{"kubernetes": {"rules": [{"apiGroups": [""], "resources": ["configmaps"], "operations": ["DELETE"]}], "namespaceSelector": here}}],
            "approvers": {"required": [{"count": 1, "from": [{"user": "ben@example.com"}]}]},
            "validity": {"uses": 5, "durationSeconds": 3600}}))
        .await;
    stack
        .put_policy(
            &format!("{}-destructive", agent.name),
            json!({
            "targets": [{"kubernetes": {"scope": "Destructive", "namespaceSelector": here}}],
            "validity": {"uses": 3, "durationSeconds": 60}}),
        )
        .await;
    let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
    let stopped = stack
        .call(
            &agent.user,
            "DELETE",
            &path,
            "application/json",
            &serde_json::Value::Null,
        )
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;
    assert_eq!(request.spec.policies.len(), 3);
    let asked: Vec<&str> = request
        .spec
        .policies
        .iter()
        .filter(|policy| policy.approvers.is_some())
        .map(|policy| policy.name.as_str())
        .collect();
    assert_eq!(
        asked,
        [format!("{}-named", agent.name)],
        "the named policy decides who"
    );
    assert_eq!(
        (
            request.spec.validity.uses,
            request.spec.validity.duration_seconds
        ),
        (Some(1), Some(60)),
        "the strictest holds"
    );
    assert!(
        stack.vote(&User::ana(), &request, "Approve").await.is_err(),
        "ana is in no row that is needed"
    );
    assert_eq!(request_phase(&request), None);
}

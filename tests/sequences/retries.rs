//! What happens between an admission and its commit: retries inside the API server, and reverts by others.

use grantgate::api::{Grant, grant::GrantPhase};
use k8s_openapi::ByteString;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::ConfigMap,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::definitions::{Version, allow_widgets, define, known, make_widget};
use crate::{
    cluster::{
        User,
        faults::Moment,
        wait::{PATIENCE, eventually},
        webhookproxy::WebhookProxy,
    },
    stack::{Agent, Answer, Stack, installed},
};

/// A second webhook that agrees with everything, and holds the agent's writes where a test wants to meddle before they are stored.
struct Interval<'s> {
    stack: &'s Stack<'static>,
    front: WebhookProxy,
    name: String,
}

impl<'s> Interval<'s> {
    async fn before_commits_of(stack: &'s Stack<'static>, agent: &Agent) -> Interval<'s> {
        let certificate = stack.cluster.authority().server(&[]).unwrap();
        let front = WebhookProxy::start(&certificate, &[stack.addresses(0).await.unwrap().0]);
        let name = format!("interval-{}", agent.name);
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": "interval.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 20,
                "clientConfig": {"url": format!("{}/stamp", front.url()), "caBundle": ByteString(stack.cluster.authority().pem().into())},
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
                "matchConditions": [{"name": "agent", "expression": format!("request.userInfo.username == '{}'", agent.user.name)}],
            }],
        }))
        .unwrap();
        let api: Api<ValidatingWebhookConfiguration> = Api::all(stack.cluster.admin());
        api.create(&PostParams::default(), &configuration)
            .await
            .unwrap();
        let interval = Interval { stack, front, name };
        // In use on both API servers before the test begins.
        for server in 0..stack.cluster.servers() {
            eventually("the second webhook is called", PATIENCE, async || {
                let client = stack.cluster.client_at(server, &agent.user);
                let maps: Api<ConfigMap> = Api::namespaced(client, &agent.namespace);
                let params = PatchParams {
                    dry_run: true,
                    ..PatchParams::default()
                };
                interval.front.faults().forget();
                let _ = maps
                    .patch(
                        "settings",
                        &params,
                        &Patch::Merge(json!({"data": {"probe": "x"}})),
                    )
                    .await;
                (!interval.front.faults().seen().is_empty()).then_some(())
            })
            .await
            .unwrap();
        }
        interval
    }

    /// Runs `write`, and `meddle` once after the use was consumed and before it is stored.
    async fn meddling(
        &self,
        grant: &Grant,
        write: impl Future<Output = Answer>,
        meddle: impl Future<Output = ()>,
    ) -> Answer {
        let trap = self
            .front
            .faults()
            .hold(Moment::Before, 1, |seen| seen.path == "/stamp");
        let meddled = async {
            trap.sprung().await;
            eventually("the use is consumed", PATIENCE, async || {
                (!self.stack.uses(grant).await.is_empty()).then_some(())
            })
            .await
            .unwrap();
            meddle.await;
            trap.release();
        };
        let (answer, ()) = tokio::join!(write, meddled);
        answer
    }

    async fn end(self) {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.stack.cluster.admin());
        api.delete(&self.name, &DeleteParams::default())
            .await
            .unwrap();
    }
}

async fn admin_settings(stack: &Stack<'_>, agent: &Agent, body: Value) {
    let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
    stack.patch(&User::admin(), &path, body).await.expect_ok();
}

async fn tier(stack: &Stack<'_>, agent: &Agent) -> String {
    let api: Api<ConfigMap> = Api::namespaced(stack.cluster.admin(), &agent.namespace);
    api.get("settings").await.unwrap().metadata.labels.unwrap()["tier"].clone()
}

async fn approved_label(stack: &Stack<'_>, agent: &Agent) -> Grant {
    let stopped = stack
        .label(agent, "B")
        .await
        .expect_refused("ApprovalPending");
    stack.approve(&stopped).await.grant.unwrap()
}

#[tokio::test]
async fn v6_a_label_set_back_by_another_inside_the_window_is_not_changed_again() {
    let stack = installed().await;
    let agent = stack.agent("v6").await;
    let grant = approved_label(stack, &agent).await;
    stack.label(&agent, "B").await.expect_ok();
    admin_settings(
        stack,
        &agent,
        json!({"metadata": {"labels": {"tier": "A"}}}),
    )
    .await;
    stack.label(&agent, "B").await.expect_refused("GrantSpent");
    assert_eq!(tier(stack, &agent).await, "A");
    assert_eq!(stack.uses(&grant).await.len(), 1);
}

#[tokio::test]
async fn v7_nor_the_status_of_a_custom_resource_or_a_priority_class() {
    let stack = installed().await;
    let agent = stack.agent("v7").await;
    let group = format!("{}.example.com", agent.name);
    define(
        stack,
        &group,
        &[Version {
            status: true,
            ..Version::stored("v1")
        }],
    )
    .await;
    allow_widgets(stack, &agent, &group).await;
    let path = format!(
        "{}/status",
        make_widget(stack, &agent, &group, "v1", json!({"replicas": 1})).await
    );
    let admin = User::admin();
    let (waiting, done) = (
        json!({"status": {"phase": "Waiting"}}),
        json!({"status": {"phase": "Done"}}),
    );
    stack
        .patch(&admin, &path, waiting.clone())
        .await
        .expect_ok();
    let stopped = known(
        stack,
        &agent,
        "PATCH",
        &path,
        "application/merge-patch+json",
        &done,
    )
    .await
    .expect_refused("ApprovalPending");
    stack.approve(&stopped).await;
    stack
        .patch(&agent.user, &path, done.clone())
        .await
        .expect_ok();
    stack.patch(&admin, &path, waiting).await.expect_ok();
    stack
        .patch(&agent.user, &path, done)
        .await
        .expect_refused("GrantSpent");

    // PriorityClass: cluster-scoped, and its generation never moves.
    let name = format!("prio-{}", agent.name);
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1});
    stack.kubectl_apply(&class).await;
    stack
        .cluster
        .allow(&agent.user, None, json!([{"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["patch"]}]))
        .await;
    stack
        .put_policy(&format!("{}-classes", agent.name), json!({"targets": [{"kubernetes": {
            "rules": [{"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "operations": ["UPDATE"]}], "names": [name]}}]}))
        .await;
    stack
        .cluster
        .bind(&User::ana(), "grantgate-approver", None)
        .await;
    let path = format!("/apis/scheduling.k8s.io/v1/priorityclasses/{name}");
    let described = |text: &str| json!({"description": text});
    let stopped = stack
        .patch(&agent.user, &path, described("B"))
        .await
        .expect_refused("ApprovalPending");
    assert_eq!(
        stopped.request().unwrap().0,
        "grantgate-system",
        "a cluster-scoped target's record lives with the installation"
    );
    stack.approve(&stopped).await;
    stack
        .patch(&agent.user, &path, described("B"))
        .await
        .expect_ok();
    stack
        .patch(&admin, &path, json!({"description": null}))
        .await
        .expect_ok();
    stack
        .patch(&agent.user, &path, described("B"))
        .await
        .expect_refused("GrantSpent");
}

#[tokio::test]
async fn v8_nor_an_object_that_was_made_with_a_generation() {
    let stack = installed().await;
    let agent = stack.agent("v8").await;
    let path = format!("/api/v1/namespaces/{}/configmaps", agent.namespace);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "g", "generation": 5}, "data": {"mode": "slow"}});
    stack
        .call(&User::admin(), "POST", &path, "application/json", &body)
        .await
        .expect_ok();
    let path = format!("{path}/g");
    let mode = |mode: &str| json!({"data": {"mode": mode}});
    let stopped = stack
        .patch(&agent.user, &path, mode("fast"))
        .await
        .expect_refused("ApprovalPending");
    stack.approve(&stopped).await;
    stack
        .patch(&agent.user, &path, mode("fast"))
        .await
        .expect_ok();
    stack
        .patch(&User::admin(), &path, mode("slow"))
        .await
        .expect_ok();
    stack
        .patch(&agent.user, &path, mode("fast"))
        .await
        .expect_refused("GrantSpent");
}

#[tokio::test]
async fn v9_a_retry_that_raises_the_generation_is_readmitted_on_the_generation_of_its_use() {
    let stack = installed().await;
    let agent = stack.agent("v9").await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api",
        agent.namespace
    );
    let paused = json!({"spec": {"minReadySeconds": 7}});
    let stopped = stack
        .patch(&agent.user, &path, paused.clone())
        .await
        .expect_refused("ApprovalPending");
    let grant = stack.approve(&stopped).await.grant.unwrap();
    let interval = Interval::before_commits_of(stack, &agent).await;
    let status = format!("{path}/status");
    let answer = interval
        .meddling(&grant, stack.patch(&agent.user, &path, paused), async {
            stack
                .patch(
                    &User::admin(),
                    &status,
                    json!({"status": {"observedGeneration": 98}}),
                )
                .await
                .expect_ok();
        })
        .await;
    answer.expect_ok();
    let uses = stack.uses(&grant).await;
    assert_eq!(uses.len(), 1);
    assert_eq!(
        uses[0].witness_moves, 0,
        "the generation proves it, no witness was needed"
    );
    interval.end().await;
}

#[tokio::test]
async fn w9_a_foreign_write_between_use_and_retry_is_seen_through_by_the_witness() {
    let stack = installed().await;
    let agent = stack.agent("w9").await;
    let grant = approved_label(stack, &agent).await;
    let interval = Interval::before_commits_of(stack, &agent).await;
    let answer = interval
        .meddling(&grant, stack.label(&agent, "B"), async {
            admin_settings(stack, &agent, json!({"data": {"other": "1"}})).await;
            admin_settings(stack, &agent, json!({"data": {"other": "2"}})).await;
        })
        .await;
    answer.expect_ok();
    assert_eq!(tier(stack, &agent).await, "B");
    let uses = stack.uses(&grant).await;
    assert_eq!((uses.len(), uses[0].witness_moves), (1, 1));
    assert_ne!(
        uses[0].first, uses[0].shown,
        "the first revision shown stays for the record"
    );

    // The same for scale, whose parent the witness watches.
    let grant = stack.approved_scale(&agent, 5).await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api",
        agent.namespace
    );
    let answer = interval
        .meddling(&grant, stack.scale(&agent, 5), async {
            stack
                .patch(
                    &User::admin(),
                    &path,
                    json!({"metadata": {"labels": {"x": "y"}}}),
                )
                .await
                .expect_ok();
        })
        .await;
    answer.expect_ok();
    assert_eq!(stack.uses(&grant).await.len(), 1);
    interval.end().await;
}

#[tokio::test]
async fn a_retry_whose_touched_field_moved_meanwhile_is_stale() {
    let stack = installed().await;
    let agent = stack.agent("touched").await;
    let grant = approved_label(stack, &agent).await;
    let interval = Interval::before_commits_of(stack, &agent).await;
    let answer = interval
        .meddling(&grant, stack.label(&agent, "B"), async {
            admin_settings(
                stack,
                &agent,
                json!({"metadata": {"labels": {"tier": "C"}}}),
            )
            .await;
        })
        .await;
    answer.expect_refused("GrantStale");
    assert_eq!(tier(stack, &agent).await, "C");
    stack.wait_grant_phase(&grant, GrantPhase::Stale).await;
    interval.end().await;
}

#[tokio::test]
async fn a_revocation_between_use_and_retry_stops_the_retry() {
    let stack = installed().await;
    let agent = stack.agent("revoked-between").await;
    let grant = approved_label(stack, &agent).await;
    let interval = Interval::before_commits_of(stack, &agent).await;
    let answer = interval
        .meddling(&grant, stack.label(&agent, "B"), async {
            stack.revoke(&grant).await;
            admin_settings(stack, &agent, json!({"data": {"other": "1"}})).await;
        })
        .await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(tier(stack, &agent).await, "A");
    interval.end().await;
}

#[tokio::test]
async fn a_pod_is_deleted_under_one_use_however_often_the_server_asks() {
    let stack = installed().await;
    let agent = stack.agent("pod").await;
    let path = format!("/api/v1/namespaces/{}/pods", agent.namespace);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]}});
    eventually(
        "the ServiceAccount is there for the pod",
        PATIENCE,
        async || {
            stack
                .call(&User::admin(), "POST", &path, "application/json", &pod)
                .await
                .ok()
                .then_some(())
        },
    )
    .await
    .unwrap();
    let path = format!("{path}/p?gracePeriodSeconds=0");
    let delete = async || {
        stack
            .call(
                &agent.user,
                "DELETE",
                &path,
                "application/json",
                &Value::Null,
            )
            .await
    };
    let stopped = delete().await.expect_refused("ApprovalPending");
    let grant = stack.approve(&stopped).await.grant.unwrap();
    delete().await.expect_ok();
    assert_eq!(stack.uses(&grant).await.len(), 1);
    assert_eq!(delete().await.status, 404);
}

#[tokio::test]
async fn w14_a_foreground_deletion_repeated_deletes_nothing_twice() {
    let stack = installed().await;
    let agent = stack.agent("w14").await;
    admin_settings(
        stack,
        &agent,
        json!({"metadata": {"finalizers": ["example.com/hold"]}}),
    )
    .await;
    let path = format!(
        "/api/v1/namespaces/{}/configmaps/settings?propagationPolicy=Foreground",
        agent.namespace
    );
    let delete = async || {
        stack
            .call(
                &agent.user,
                "DELETE",
                &path,
                "application/json",
                &Value::Null,
            )
            .await
    };
    let stopped = delete().await.expect_refused("ApprovalPending");
    let grant = stack.approve(&stopped).await.grant.unwrap();
    delete().await.expect_ok();
    delete().await.expect_ok();
    assert_eq!(
        stack.uses(&grant).await.len(),
        1,
        "the same deletion of the same uid"
    );
    admin_settings(stack, &agent, json!({"metadata": {"finalizers": null}})).await;
    admin_settings_gone(stack, &agent).await;
    assert_eq!(stack.uses(&grant).await.len(), 1);
}

async fn admin_settings_gone(stack: &Stack<'_>, agent: &Agent) {
    let api: Api<ConfigMap> = Api::namespaced(stack.cluster.admin(), &agent.namespace);
    eventually("the ConfigMap is gone", PATIENCE, async || {
        api.get_opt("settings")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await
    .unwrap();
}

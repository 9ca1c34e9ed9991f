//! A replica that cannot see, and a webhook that is not there: agents are stopped, and nobody else is.

use grantgate::api::ClusterApprovalPolicy;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, apps::v1::ReplicaSet,
    coordination::v1::Lease, core::v1::Namespace,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::{
        Cluster, User,
        http::{Tls, send},
        process::Process,
        wait::{PATIENCE, eventually},
    },
    stack::{Agent, Answer, SYSTEM, Setup, Stack, deployment, kubeconfig_at, with_controllers},
};

/// What a replica says about itself: HTTP status and words of `/readyz`.
async fn readiness(stack: &Stack<'_>, number: usize) -> (u16, String) {
    let (_, probes) = stack.addresses(number).await.unwrap();
    let url = format!("http://{probes}/readyz");
    let answer = send(
        &Tls::trusting_anyone().unwrap(),
        http::Method::GET,
        &url,
        &[],
        "",
    )
    .await;
    let answer = answer.unwrap();
    (answer.status, answer.text())
}

async fn wait_unready(stack: &Stack<'_>, number: usize, words: &str) {
    eventually(
        &format!("the replica says {words:?}"),
        PATIENCE,
        async || {
            let (status, text) = readiness(stack, number).await;
            (status == 503 && text.contains(words)).then_some(())
        },
    )
    .await
    .unwrap();
}

/// Condition `InForce` of a policy: status, reason, and whether it is of the policy as it is now.
async fn in_force(cluster: &Cluster, name: &str) -> Option<(String, String, bool)> {
    let api: Api<ClusterApprovalPolicy> = Api::all(cluster.admin());
    let policy = api.get(name).await.unwrap();
    let generation = policy.metadata.generation;
    let found = policy
        .status?
        .conditions
        .into_iter()
        .find(|condition| condition.type_ == "InForce")?;
    let current = found.observed_generation == generation;
    Some((found.status, found.reason, current))
}

fn expect_unready(answer: Answer) {
    let answer = answer.expect_refused("ApprovalUnavailable");
    assert!(answer.has_cause("Unready"), "{answer:?}");
}

/// Two replicas, the second of which reaches the API server through a proxy.
async fn second_behind_a_proxy<'c>(
    cluster: &'c Cluster,
    proxy: &crate::cluster::apiproxy::ApiProxy,
) -> Stack<'c> {
    let kubeconfig = kubeconfig_at(cluster, proxy.endpoint(), "grantgate-webhook").await;
    let setup = Setup {
        replicas: 2,
        webhook_kubeconfigs: vec![None, Some(kubeconfig)],
        ..Setup::default()
    };
    Stack::start(cluster, setup).await
}

#[tokio::test]
async fn a_replica_whose_watches_stall_allows_nothing_and_holds_a_change_back_from_being_in_force()
{
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let mut stack = second_behind_a_proxy(&cluster, &proxy).await;
    let agent = stack.agent("stalled").await;
    let revoked = stack.approved_scale(&agent, 5).await;
    let stopped = stack.label(&agent, "B").await;
    stack.approve(&stopped).await;
    stack.only(1, &agent).await;

    proxy.faults().stall_watches(true);
    // Its copy of the grant is good for ever; the grant itself is not.
    stack.revoke(&revoked).await;
    let answer = stack.scale(&agent, 5).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(stack.replicas(&agent.namespace).await, 3);

    // A policy that this replica cannot see.
    let spec = json!({"spec": {"validity": {"uses": 1, "durationSeconds": 300}}});
    let path = format!(
        "/apis/grantgate.dev/v1alpha1/clusterapprovalpolicies/{}",
        agent.name
    );
    stack.patch(&User::admin(), &path, spec).await.expect_ok();
    eventually("the controller says who is behind", PATIENCE, async || {
        let (status, reason, current) = in_force(&cluster, &agent.name).await?;
        (status == "False" && reason == "ReplicaBehind" && current).then_some(())
    })
    .await
    .unwrap();

    wait_unready(&stack, 1, "nothing heard of").await;
    expect_unready(stack.label(&agent, "B").await);
    expect_unready(stack.scale(&agent, 7).await);
    // It still renews its Lease, so it still counts, and the change is still not in force.
    let (status, _, _) = in_force(&cluster, &agent.name).await.unwrap();
    assert_eq!(status, "False");
    assert_eq!(readiness(&stack, 0).await.0, 200, "the other one sees");
    // What the blind one refuses, the other one decides: by the new policy.
    stack.only(0, &agent).await;
    stack.label(&agent, "B").await.expect_refused("GrantStale");

    proxy.faults().stall_watches(false);
    stack.wait_until_ready().await.unwrap();
    stack.wait_in_force(&agent.name).await;
    stack.only(1, &agent).await;
    let answer = stack.label(&agent, "B").await.expect_refused("GrantStale");
    assert!(answer.request().is_some());
}

#[tokio::test]
async fn a_change_is_in_force_without_a_stalled_replica_once_that_one_is_gone() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let mut stack = second_behind_a_proxy(&cluster, &proxy).await;
    let agent = stack.agent("gone").await;
    stack.only(0, &agent).await;
    proxy.faults().stall_watches(true);
    let spec = json!({"spec": {"validity": {"uses": 1, "durationSeconds": 300}}});
    let path = format!(
        "/apis/grantgate.dev/v1alpha1/clusterapprovalpolicies/{}",
        agent.name
    );
    stack.patch(&User::admin(), &path, spec).await.expect_ok();
    eventually("the controller says who is behind", PATIENCE, async || {
        let (status, reason, current) = in_force(&cluster, &agent.name).await?;
        (status == "False" && reason == "ReplicaBehind" && current).then_some(())
    })
    .await
    .unwrap();
    stack.webhooks[1].kill();
    stack.wait_in_force(&agent.name).await;
}

#[tokio::test]
async fn a_replica_that_has_not_seen_a_policy_yet_ends_neither_grant_nor_request() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let stack = second_behind_a_proxy(&cluster, &proxy).await;
    let agent = stack.agent("unseen").await;
    stack.only(0, &agent).await;

    proxy.faults().stall_watches(true);
    let more = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "seen-by-one"},
        "spec": {
            "effect": "RequireApproval",
            "targets": [{"kubernetes": {"scope": "All",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": agent.namespace}}}}],
            "approvers": {"required": [{"count": 1, "from": [{"user": "ana@example.com"}]}]},
        },
    });
    stack.kubectl_apply(&more).await;
    let request = eventually("one replica asks by it", PATIENCE, async || {
        let stopped = stack.scale(&agent, 5).await;
        let request = stack.request_of(&stopped).await;
        (request.spec.policies.len() == 2).then_some(request)
    })
    .await
    .unwrap();
    let label = stack.label(&agent, "B").await;
    let waiting = stack
        .request_of(&label.expect_refused("ApprovalPending"))
        .await;
    let grant = stack.approve_request(&request).await.grant.unwrap();

    // The other replica knows one policy of the two, so to it another set matched then than does now.
    stack.only(1, &agent).await;
    let answer = stack.scale(&agent, 5).await;
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(
        matches!(answer.reason(), "ApprovalUnavailable" | "ApprovalPending"),
        "{answer:?}"
    );
    assert_eq!(stack.label(&agent, "B").await.status, 403);
    let name = waiting.metadata.name.as_deref().unwrap();
    let still = stack.request(&agent.namespace, name).await;
    assert_eq!(still.status, None, "the request still waits");
    let name = grant.metadata.name.as_deref().unwrap();
    let still = stack.grant(&agent.namespace, name).await;
    assert_eq!(
        still.metadata.resource_version, grant.metadata.resource_version,
        "the grant is as it was: {still:?}"
    );

    proxy.faults().stall_watches(false);
    eventually("it has caught up", PATIENCE, async || {
        stack.scale(&agent, 5).await.ok().then_some(())
    })
    .await
    .unwrap();
    assert_eq!(stack.uses(&grant).await.len(), 1);
}

#[tokio::test]
async fn a_replica_whose_clock_is_ten_minutes_off_is_not_ready_and_decides_nothing() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let mut stack = second_behind_a_proxy(&cluster, &proxy).await;
    let agent = stack.agent("clock").await;
    stack.approved_scale(&agent, 5).await;
    stack.only(1, &agent).await;
    for seconds in [600, -600] {
        proxy.faults().shift_date(seconds);
        wait_unready(&stack, 1, "clock").await;
        expect_unready(stack.scale(&agent, 5).await);
        expect_unready(stack.scale(&agent, 6).await);
        assert_eq!(stack.replicas(&agent.namespace).await, 3);
        proxy.faults().shift_date(0);
        stack.wait_until_ready().await.unwrap();
    }
    stack.scale(&agent, 5).await.expect_ok();
    assert_eq!(stack.replicas(&agent.namespace).await, 5);
}

async fn wait_for_leader(cluster: &Cluster, name: &str) {
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), SYSTEM);
    eventually(&format!("{name} leads"), PATIENCE, async || {
        let lease = leases.get("grantgate-controller").await.ok()?;
        (lease.spec?.holder_identity? == name).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_leader_that_cannot_decide_still_gates_new_agents_and_gives_way_to_one_that_can() {
    let cluster = Cluster::start(with_controllers()).await;
    let proxy = cluster.api_proxy(0);
    let kubeconfig = kubeconfig_at(&cluster, proxy.endpoint(), "grantgate-controller").await;
    let setup = Setup {
        controller_kubeconfig: Some(kubeconfig),
        ..Setup::default()
    };
    let mut stack = Stack::start(&cluster, setup).await;
    wait_for_leader(&cluster, "controller").await;
    proxy.faults().shift_date(600);
    let first = stack.controller.as_mut().unwrap();
    first
        .wait_for_log("cannot do the leader's work", PATIENCE)
        .await
        .unwrap();
    let late = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": "late"},
        "spec": {"owner": {"group": "team-platform"}, "subjects": [{"user": "oidc:late"}]},
    });
    stack.kubectl_apply(&late).await;
    stack.wait_enforced("late").await;

    let recipe = stack.controller_recipe("second", &Setup::default()).await;
    let _second = Process::start(recipe.unwrap()).unwrap();
    wait_for_leader(&cluster, "second").await;
    let agent = stack.agent("decided").await;
    stack.approved_scale(&agent, 5).await;
    stack.scale(&agent, 5).await.expect_ok();
}

#[tokio::test]
async fn with_the_webhook_stopped_agents_are_refused_and_nobody_else_notices() {
    let cluster = Cluster::start(with_controllers()).await;
    let mut stack = Stack::start(&cluster, Setup::default()).await;
    let agent = stack.agent("stopped").await;
    let grant = stack.approved_scale(&agent, 5).await;
    let waiting = stack
        .label(&agent, "B")
        .await
        .expect_refused("ApprovalPending");
    let node = cluster.certificate_user("system:node:n1", Some("system:nodes"));
    cluster
        .allow(
            &node,
            None,
            json!([
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["create", "get"]},
                {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            ]),
        )
        .await;
    cluster
        .bind(&User::ben(), "edit", Some(&agent.namespace))
        .await;
    for webhook in &mut stack.webhooks {
        webhook.kill();
    }

    // Agents: refused, whatever they write, and also what was approved.
    for answer in [
        stack.scale(&agent, 5).await,
        stack.label(&agent, "C").await,
        stack.scale(&agent, 3).await,
    ] {
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(
            answer.message().contains("gate.grantgate.dev"),
            "{answer:?}"
        );
    }
    assert_eq!(stack.replicas(&agent.namespace).await, 3);

    // People, also with rights of their own only.
    let map = json!({"data": {"mode": "fast"}});
    let settings = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
    for person in [User::admin(), User::ben()] {
        stack
            .patch(&person, &settings, map.clone())
            .await
            .expect_ok();
    }
    stack.revoke(&grant).await;

    // Controllers.
    let other = cluster.namespace("bystander", &[]).await;
    stack.kubectl_apply(&deployment(&other, "web", 2)).await;
    eventually("the Deployment gets its ReplicaSet", PATIENCE, async || {
        let sets: Api<ReplicaSet> = Api::namespaced(cluster.admin(), &other);
        let all = sets.list(&ListParams::default()).await.ok()?;
        all.items
            .iter()
            .any(|set| set.spec.as_ref().and_then(|spec| spec.replicas) == Some(2))
            .then_some(())
    })
    .await
    .unwrap();

    // Nodes.
    let json = "application/json";
    let new = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    stack
        .call(&node, "POST", "/api/v1/nodes", json, &new)
        .await
        .expect_ok();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    stack
        .patch(&node, "/api/v1/nodes/n1/status", ready)
        .await
        .expect_ok();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    stack
        .call(&node, "POST", leases, json, &lease)
        .await
        .expect_ok();

    // A namespace that holds a request, a decision and a grant.
    assert!(stack.request_of(&waiting).await.metadata.uid.is_some());
    let namespaces: Api<Namespace> = Api::all(cluster.admin());
    namespaces
        .delete(&agent.namespace, &DeleteParams::default())
        .await
        .unwrap();
    eventually("the namespace is gone", PATIENCE, async || {
        let found = namespaces.get_opt(&agent.namespace).await.ok()?;
        found.is_none().then_some(())
    })
    .await
    .unwrap();
}

/// A policy whose second target has a condition that is no CEL, for a namespace.
fn broken_policy(namespace: &str) -> Value {
    json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "broken"},
        "spec": {
            "effect": "Exempt",
            "targets": [
                {"kubernetes": {"rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "operations": ["CREATE"]}]}},
                {"kubernetes": {
                    "rules": [{"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "operations": ["UPDATE"]}],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "when": "object.spec.replicas >",
                }},
            ],
            "approvers": {"required": []},
        },
    })
}

#[tokio::test]
async fn what_a_policy_matches_that_cannot_be_read_is_unready_and_its_status_says_where() {
    let cluster = Cluster::start(with_controllers()).await;
    let mut stack = Stack::start(&cluster, Setup::default()).await;
    let agent: Agent = stack.agent("unreadable").await;
    let grant = stack.approved_scale(&agent, 5).await;

    // With the guard there, such a policy is refused in words.
    let policies = "/apis/grantgate.dev/v1alpha1/clusterapprovalpolicies";
    let policy = broken_policy(&agent.namespace);
    let admin = User::admin();
    let json = "application/json";
    let refused = stack.call(&admin, "POST", policies, json, &policy).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(
        refused
            .message()
            .contains("spec.targets[1].kubernetes.when"),
        "{refused:?}"
    );

    // Without it, it is stored.
    stack.controller.as_mut().unwrap().kill();
    let guards: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin());
    guards
        .delete("grantgate-guard", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the policy is stored", PATIENCE, async || {
        let stored = stack.call(&admin, "POST", policies, json, &policy).await;
        stored.ok().then_some(())
    })
    .await
    .unwrap();
    let answer = eventually("the replica has seen the policy", PATIENCE, async || {
        let answer = stack.scale(&agent, 6).await;
        answer.has_cause("Unready").then_some(answer)
    })
    .await
    .unwrap();
    assert!(answer.message().contains("broken"), "{answer:?}");
    expect_unready(answer);
    expect_unready(stack.scale(&agent, 5).await);
    assert!(stack.uses(&grant).await.is_empty());
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
    // What it does not match is decided as ever.
    stack
        .label(&agent, "B")
        .await
        .expect_refused("ApprovalPending");

    stack.controller.as_mut().unwrap().restart().unwrap();
    let policies: Api<ClusterApprovalPolicy> = Api::all(cluster.admin());
    let status = eventually("the policy's status says so", PATIENCE, async || {
        let status = policies.get("broken").await.ok()?.status?;
        let said = status
            .conditions
            .iter()
            .any(|condition| condition.type_ == "Valid" && condition.status == "False");
        said.then_some(status)
    })
    .await
    .unwrap();
    assert_eq!(status.problems[0].path, "spec.targets[1].kubernetes.when");
    guards_are_back(&guards).await;

    // Taken away, the way is free again.
    policies
        .delete("broken", &DeleteParams::default())
        .await
        .unwrap();
    eventually("the approved call goes through", PATIENCE, async || {
        stack.scale(&agent, 5).await.ok().then_some(())
    })
    .await
    .unwrap();
    assert_eq!(stack.uses(&grant).await.len(), 1);
    stack.wait_until_ready().await.unwrap();
}

async fn guards_are_back(guards: &Api<ValidatingWebhookConfiguration>) {
    eventually("the controller puts the guard back", PATIENCE, async || {
        guards.get_opt("grantgate-guard").await.ok().flatten()
    })
    .await
    .unwrap();
}

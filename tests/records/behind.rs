//! What is in force waits for a replica that has not seen it.

use std::time::Duration;

use grantgate::api::ClusterApprovalPolicy;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::condition;
use crate::{
    cluster::wait::{PATIENCE, eventually},
    stack::{SYSTEM, Stack},
};

/// What comes of `what` while a replica goes on renewing its Lease, however long that takes.
async fn alive<T>(beat: impl AsyncFn(), what: impl Future<Output = T>) -> T {
    let mut beats = tokio::time::interval(Duration::from_secs(4));
    tokio::pin!(what);
    loop {
        tokio::select! {
            came = &mut what => return came,
            _ = beats.tick() => beat().await,
        }
    }
}

/// On a cluster of its own: until that replica's Lease runs out, nothing there comes into force.
pub(super) async fn in_force_waits_for_a_replica_that_is_behind(stack: &Stack<'_>) {
    let leases: Api<Lease> = Api::namespaced(stack.cluster.admin(), SYSTEM);
    let policies: Api<ClusterApprovalPolicy> = Api::all(stack.cluster.admin());
    let beat = async |reached: &str| {
        let renewed = grantgate::cluster::clock::Clock::local();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "grantgate-webhook-slow", "labels": {"grantgate.dev/component": "webhook"},
                "annotations": {"grantgate.dev/reached": json!({"clusterapprovalpolicies": reached}).to_string()}},
            "spec": {"holderIdentity": "slow", "leaseDurationSeconds": 15, "renewTime": MicroTime(renewed)},
        });
        let apply = PatchParams::apply("test").force();
        leases
            .patch("grantgate-webhook-slow", &apply, &Patch::Apply(&lease))
            .await
            .unwrap();
    };
    let in_force = async || {
        let policy = policies.get("slowly").await.ok()?;
        let generation = policy.metadata.generation;
        let conditions = policy.status?.conditions;
        let observed = conditions
            .iter()
            .find(|condition| condition.type_ == "InForce")?
            .observed_generation;
        (observed == generation).then_some(())?;
        condition(&conditions, "InForce")
    };
    beat("1").await;
    let policy = json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy", "metadata": {"name": "slowly"},
        "spec": {
            "effect": "RequireApproval",
            "targets": [{"kubernetes": {"scope": "All", "namespaceSelector": {"matchLabels": {"nobody": "here"}}}}],
            "approvers": {"required": [{"count": 1, "from": [{"user": "ana@example.com"}]}]},
        },
    });
    stack.kubectl_apply(&policy).await;
    let observed = eventually("InForce is observed", PATIENCE, in_force);
    let (status, reason, message) = alive(async || beat("1").await, observed).await.unwrap();
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "ReplicaBehind"),
        "{message}"
    );
    assert!(message.contains("grantgate-webhook-slow"), "{message}");

    let version = policies
        .get("slowly")
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    beat(&version).await;
    eventually(
        "it is in force once that replica has seen it",
        PATIENCE,
        async || in_force().await.filter(|(status, _, _)| status == "True"),
    )
    .await
    .unwrap();

    // One that died behind is waited for until its Lease runs out.
    beat("1").await;
    let mut changed = policy;
    changed["spec"]["validity"] = json!({"uses": 2});
    stack.kubectl_apply(&changed).await;
    let observed = eventually("the new generation is observed", PATIENCE, in_force);
    let (status, _, _) = alive(async || beat("1").await, observed).await.unwrap();
    assert_eq!(status, "False");
    eventually(
        "it is in force once that replica's Lease ran out",
        PATIENCE,
        async || in_force().await.filter(|(status, _, _)| status == "True"),
    )
    .await
    .unwrap();
}

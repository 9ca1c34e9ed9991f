//! `PUT` through the gate, as ratios to `PUT` through a webhook that always allows, in one run on a real API server.

use std::time::Instant;

use k8s_openapi::{ByteString, api::admissionregistration::v1::ValidatingWebhookConfiguration};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, Options, User, wait},
    percentiles,
    stack::{Setup, Stack},
};

const ROUNDS: usize = 60;
/// Rounds with an approval, which takes longest.
const ALLOWED: usize = 30;

/// Prints the ratios.
pub async fn run() {
    let cluster = Cluster::start(Options {
        fsync: true,
        controller_manager: true,
        ..Options::default()
    })
    .await;
    let stack = Stack::start(&cluster, Setup::default()).await;
    let agent = stack.agent("bench").await;

    // The reference: an ungated account whose writes a webhook sees that always allows, on the same process and connection kind.
    let plain = cluster.service_account(&agent.namespace, "plain").await;
    cluster.bind(&plain, "edit", Some(&agent.namespace)).await;
    let authority = cluster_authority(&stack).await;
    let always: ValidatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": "always"},
        "webhooks": [{
            "name": "always.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
            "clientConfig": {"url": format!("{}/stamp", stack.front.url()), "caBundle": authority},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
            "matchConditions": [{"name": "plain", "expression": format!("request.userInfo.username == '{}'", plain.name)}],
        }],
    }))
    .unwrap();
    Api::<ValidatingWebhookConfiguration>::all(cluster.admin())
        .create(&PostParams::default(), &always)
        .await
        .unwrap();

    let path = format!("/api/v1/namespaces/{}/configmaps/settings", agent.namespace);
    let map = |mode: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "labels": {"tier": "A"}}, "data": {"mode": mode}});
    let put = async |user: &User, query: &str, body: &Value| -> (u16, f64) {
        let begun = Instant::now();
        let answer = stack
            .call(
                user,
                "PUT",
                &format!("{path}{query}"),
                "application/json",
                body,
            )
            .await;
        (answer.status, begun.elapsed().as_secs_f64() * 1e6)
    };

    let (mut allowed, mut denied, mut dry, mut free) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        stack.kubectl_free_put(&path, &map("slow")).await;
        let (status, time) = put(&plain, "", &map(&format!("plain-{round}"))).await;
        assert_eq!(status, 200);
        free.push(time);
        stack.kubectl_free_put(&path, &map("slow")).await;
        let (status, time) = put(&agent.user, "", &map("other")).await;
        assert_eq!(status, 403);
        denied.push(time);
        let (status, time) = put(&agent.user, "?dryRun=All", &map("other")).await;
        assert_eq!(status, 200);
        dry.push(time);
        if round < ALLOWED {
            // A grant for each: that is how a change is made once.
            let mode = map(&format!("fast-{round}"));
            let stopped = stack
                .call(&agent.user, "PUT", &path, "application/json", &mode)
                .await
                .expect_refused("ApprovalPending");
            stack.approve(&stopped).await;
            let (status, time) = put(&agent.user, "", &mode).await;
            assert_eq!(status, 200);
            allowed.push(time);
        }
    }
    assert_eq!(allowed.len(), ALLOWED);
    let reference = percentiles(&mut free).0;
    println!("PUT of a ConfigMap through a real API server, {ROUNDS} rounds, etcd with fsync");
    println!("  webhook that always allows          {reference:8.0} us");
    for (what, samples) in [
        ("gate, allowed and consumed", &mut allowed),
        ("gate, denied (pending)", &mut denied),
        ("gate, dry run", &mut dry),
    ] {
        let (median, _) = percentiles(samples);
        println!(
            "  {what:<34}  {median:8.0} us   / always allow {:.2}   ({} samples)",
            median / reference,
            samples.len()
        );
    }
}

/// The authority of the serving certificate, from the gate's own configuration.
async fn cluster_authority(stack: &Stack<'_>) -> ByteString {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(stack.cluster.admin());
    wait::eventually("the gate's configuration", wait::PATIENCE, async || {
        let gate = api.get("grantgate-gate").await.ok()?;
        gate.webhooks?.into_iter().next()?.client_config.ca_bundle
    })
    .await
    .unwrap()
}

impl Stack<'_> {
    /// Somebody who is no agent replaces an object.
    async fn kubectl_free_put(&self, path: &str, body: &Value) {
        self.call(&User::admin(), "PUT", path, "application/json", body)
            .await
            .expect_ok();
    }
}

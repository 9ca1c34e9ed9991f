//! A decision that was stored under another's name while nothing kept that from happening.

use grantgate::{
    api::ApprovalDecision,
    control::{
        authorship::{GUARD_SINCE, LEASE, POLICY},
        configuration::{GUARD, STAMP},
    },
};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding,
        ValidatingWebhookConfiguration,
    },
    coordination::v1::Lease,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{
    cluster::{
        Cluster, User,
        process::Process,
        wait::{PATIENCE, eventually},
    },
    stack::{SYSTEM, Setup, Stack, request_phase, with_controllers},
};

#[tokio::test]
async fn a_decision_forged_while_the_guard_was_absent_never_counts() {
    let cluster = Cluster::start(with_controllers()).await;
    let mut stack = Stack::start(&cluster, Setup::default()).await;
    let agent = stack.agent("forged").await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;

    stack.controller.take().unwrap().kill();
    let admin = cluster.admin();
    let gone = DeleteParams::default();
    let guards: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
    guards.delete(GUARD, &gone).await.unwrap();
    let stamps: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    stamps.delete(STAMP, &gone).await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(admin.clone());
    let binding = bindings.get(POLICY).await.unwrap();
    bindings.delete(POLICY, &gone).await.unwrap();

    let mut forged = Stack::decision(&request, "Approve");
    forged["spec"]["approver"] = json!({
        "username": User::ana().name, "uid": "", "groups": ["system:authenticated"],
    });
    let forged: ApprovalDecision = serde_json::from_value(forged).unwrap();
    let decisions: Api<ApprovalDecision> = Api::namespaced(admin, &agent.namespace);
    let params = PostParams::default();
    let forged = eventually("nothing refuses it any more", PATIENCE, async || {
        decisions.create(&params, &forged).await.ok()
    })
    .await
    .unwrap();

    let mut again = ValidatingAdmissionPolicyBinding {
        spec: binding.spec,
        ..ValidatingAdmissionPolicyBinding::default()
    };
    again.metadata.name = binding.metadata.name;
    again.metadata.labels = binding.metadata.labels;
    bindings.create(&params, &again).await.unwrap();
    let recipe = stack
        .controller_recipe("after", &Setup::default())
        .await
        .unwrap();
    stack.controller = Some(Process::start(recipe).unwrap());

    let name = forged.metadata.name.as_deref().unwrap();
    let why = eventually("it is judged", PATIENCE, async || {
        let status = decisions.get(name).await.ok()?.status?;
        let counted = status
            .conditions
            .into_iter()
            .find(|condition| condition.type_ == "Counted")?;
        (counted.status == "False").then_some(counted.message)
    })
    .await
    .unwrap();
    assert!(why.contains("before its author could be proven"), "{why}");
    let name = request.metadata.name.as_deref().unwrap();
    let request = stack.request(&agent.namespace, name).await;
    assert_eq!(request_phase(&request), None);
    assert!(stack.grants(&agent.namespace).await.is_empty());
    assert_eq!(stack.scale(&agent, 5).await.status, 403);

    // Her own vote counts. When it was stored is known to the second only, so one from the very second would not.
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), SYSTEM);
    let since = leases.get(LEASE).await.unwrap();
    let since: Timestamp = since.annotations()[GUARD_SINCE].parse().unwrap();
    eventually("that second is over", PATIENCE, async || {
        let now = grantgate::cluster::clock::Clock::local();
        (now.as_second() > since.as_second()).then_some(())
    })
    .await
    .unwrap();
    let grant = stack.approve_request(&request).await.grant.unwrap();
    stack.scale(&agent, 5).await.expect_ok();
    assert_eq!(stack.uses(&grant).await.len(), 1);
}

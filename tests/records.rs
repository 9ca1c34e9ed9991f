//! Records as the controller keeps them: one grant for each request, ever; what ends, why, and what counted.

mod behind;

use std::time::Duration;

use grantgate::api::{
    ApprovalDecision, ApprovalRequest, Grant, ToolMount, ToolServer,
    approval_request::RequestPhase,
    grant::{GrantPhase, UseEffect},
};
use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::{
    cluster::{
        Cluster, Options, User,
        faults::{Moment, Seen},
        wait::{PATIENCE, eventually},
    },
    stack::{SYSTEM, Setup, Stack, grant_phase, installed, request_phase},
};

/// A write of the controller, by the end of its path.
fn write(
    method: &'static str,
    contains: &'static str,
    ends: &'static str,
) -> impl Fn(&Seen) -> bool {
    move |seen: &Seen| {
        seen.method == method && seen.path.contains(contains) && seen.path.ends_with(ends)
    }
}

fn condition(conditions: &[Condition], kind: &str) -> Option<(String, String, String)> {
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == kind)?;
    Some((
        condition.status.clone(),
        condition.reason.clone(),
        condition.message.clone(),
    ))
}

/// The condition of a request, once it is there.
async fn request_condition(
    stack: &Stack<'_>,
    request: &ApprovalRequest,
    kind: &str,
) -> (String, String, String) {
    let (namespace, name) = (
        request.metadata.namespace.clone().unwrap(),
        request.metadata.name.clone().unwrap(),
    );
    eventually(&format!("the request says {kind}"), PATIENCE, async || {
        let status = stack.request(&namespace, &name).await.status?;
        condition(&status.conditions, kind)
    })
    .await
    .unwrap()
}

/// The garbage collector's name: the one that may delete records besides the namespace controller.
fn collector(cluster: &Cluster) -> User {
    cluster.certificate_user(
        "system:serviceaccount:kube-system:generic-garbage-collector",
        None,
    )
}

#[tokio::test]
async fn a_request_has_one_grant_wherever_the_controller_is_killed() {
    // With controllers, which fill the roles that agents are bound to.
    let cluster = Cluster::start(Options {
        controller_manager: true,
        ..Options::default()
    })
    .await;
    let proxy = cluster.api_proxy(0);
    let account = cluster.service_account(SYSTEM, "grantgate-controller");
    let setup = Setup {
        controller_kubeconfig: Some({
            // The namespace of the account comes with the installation.
            Stack::try_start(
                &cluster,
                Setup {
                    replicas: 0,
                    controller: false,
                    ..Setup::default()
                },
            )
            .await
            .unwrap();
            cluster.kubeconfig_via(proxy.endpoint(), &account.await)
        }),
        ..Setup::default()
    };
    let mut stack = Stack::start(&cluster, setup).await;
    let agent = stack.agent("killed").await;
    type Step = (&'static str, Moment, fn(&Seen) -> bool);
    let steps: [Step; 6] = [
        ("before the approval is stored", Moment::Before, |seen| {
            write("PUT", "/approvalrequests/", "/status")(seen) && approves(seen)
        }),
        ("after the approval is stored", Moment::After, |seen| {
            write("PUT", "/approvalrequests/", "/status")(seen) && approves(seen)
        }),
        ("before the grant is made", Moment::Before, |seen| {
            write("POST", "/namespaces/", "/grants")(seen)
        }),
        ("after the grant is made", Moment::After, |seen| {
            write("POST", "/namespaces/", "/grants")(seen)
        }),
        ("before its uid is stored", Moment::Before, |seen| {
            write("PUT", "/approvalrequests/", "/status")(seen) && names_uid(seen)
        }),
        ("after its uid is stored", Moment::After, |seen| {
            write("PUT", "/approvalrequests/", "/status")(seen) && names_uid(seen)
        }),
    ];
    for (number, (what, moment, which)) in steps.into_iter().enumerate() {
        let stopped = stack
            .scale(&agent, 10 + number as i32)
            .await
            .expect_refused("ApprovalPending");
        let request = stack.request_of(&stopped).await;
        let trap = proxy.faults().hold(moment, 1, which);
        stack.vote(&User::ana(), &request, "Approve").await.unwrap();
        trap.sprung().await;
        let controller = stack.controller.as_mut().unwrap();
        controller.kill();
        drop(trap);
        controller.restart().unwrap();
        let (namespace, name) = (
            agent.namespace.clone(),
            request.metadata.name.clone().unwrap(),
        );
        let request = eventually(
            &format!("the grant is recorded: killed {what}"),
            PATIENCE * 2,
            async || {
                let request = stack.request(&namespace, &name).await;
                request
                    .status
                    .as_ref()?
                    .grant
                    .as_ref()?
                    .uid
                    .is_some()
                    .then_some(request)
            },
        )
        .await
        .unwrap();
        assert_eq!(
            request_phase(&request),
            Some(RequestPhase::Approved),
            "{what}"
        );
        let of_request: Vec<Grant> = stack
            .grants(&namespace)
            .await
            .into_iter()
            .filter(|grant| Some(&grant.spec.request_ref.uid) == request.metadata.uid.as_ref())
            .collect();
        assert_eq!(of_request.len(), 1, "{what}");
        assert_eq!(
            request.status.unwrap().grant.unwrap().uid,
            of_request[0].metadata.uid,
            "{what}"
        );
        stack.scale(&agent, 10 + number as i32).await.expect_ok();
        assert_eq!(stack.uses(&of_request[0]).await.len(), 1, "{what}");
    }

    behind::in_force_waits_for_a_replica_that_is_behind(&stack).await;
}

fn approves(seen: &Seen) -> bool {
    String::from_utf8_lossy(&seen.body).contains("\"phase\":\"Approved\"") && !names_uid(seen)
}

fn names_uid(seen: &Seen) -> bool {
    let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    body["status"]["grant"]["uid"].is_string()
}

#[tokio::test]
async fn a_grant_that_was_deleted_is_never_made_again() {
    let stack = installed().await;
    let agent = stack.agent("lost").await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let decided = stack.approve(&stopped).await;
    let grant = decided.grant.unwrap();
    stack.scale(&agent, 5).await.expect_ok();
    let grants: Api<Grant> = Api::namespaced(
        stack.cluster.client(&collector(stack.cluster)),
        &agent.namespace,
    );
    grants
        .delete(
            grant.metadata.name.as_deref().unwrap(),
            &DeleteParams::default(),
        )
        .await
        .unwrap();
    let (status, reason, _) = request_condition(stack, &decided.request, "GrantLost").await;
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Gone"));

    stack.admin_scale(&agent.namespace, 3).await;
    let next = stack.scale(&agent, 5).await;
    assert_eq!(next.status, 403, "{next:?}");
    let next = stack.request_of(&next).await;
    assert_eq!(
        next.spec
            .previous
            .as_ref()
            .map(|previous| previous.reason.as_str()),
        Some("Lost")
    );
    assert!(stack.grants(&agent.namespace).await.is_empty());
    // The approval of the new one makes one, and still none for the old one.
    stack.approve_request(&next).await;
    let grants = stack.grants(&agent.namespace).await;
    assert_eq!(grants.len(), 1);
    assert_eq!(
        Some(&grants[0].spec.request_ref.uid),
        next.metadata.uid.as_ref()
    );
}

#[tokio::test]
async fn a_request_that_nobody_decides_expires_and_a_later_yes_does_not_count() {
    let stack = installed().await;
    let agent = stack.agent("silence").await;
    stack
        .put_policy(
            &agent.name,
            json!({"onSilence": [{"afterSeconds": 2, "action": "Expire"}]}),
        )
        .await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;
    let expired = stack
        .wait_request_phase(&request, RequestPhase::Expired)
        .await;
    assert!(
        expired
            .status
            .as_ref()
            .unwrap()
            .ended_at
            .as_ref()
            .unwrap()
            .0
            >= request.spec.deadline.0
    );
    let (status, reason, _) = request_condition(stack, &request, "Decided").await;
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Expired"));
    stack
        .vote(&User::ana(), &request, "Approve")
        .await
        .unwrap_err();
    assert!(stack.grants(&agent.namespace).await.is_empty());
}

#[tokio::test]
async fn a_second_yes_of_one_person_is_recorded_and_does_not_count() {
    let stack = installed().await;
    let agent = stack.agent("twice").await;
    stack
        .cluster
        .bind(&User::ben(), "grantgate-approver", Some(&agent.namespace))
        .await;
    let two = json!({"approvers": {"required": [{"count": 2, "from": [{"user": "ana@example.com"}, {"user": "ben@example.com"}]}]}});
    stack.put_policy(&agent.name, two).await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let request = stack.request_of(&stopped).await;
    let first = stack.vote(&User::ana(), &request, "Approve").await.unwrap();
    let second = stack.vote(&User::ana(), &request, "Approve").await.unwrap();
    let decisions: Api<ApprovalDecision> = Api::namespaced(stack.cluster.admin(), &agent.namespace);
    let counted = async |decision: &ApprovalDecision| {
        let name = decision.metadata.name.clone().unwrap();
        eventually(
            "the decision says whether it counted",
            PATIENCE,
            async || {
                let stored = decisions.get(&name).await.ok()?;
                condition(&stored.status?.conditions, "Counted")
            },
        )
        .await
        .unwrap()
    };
    let (a, b) = (counted(&first).await, counted(&second).await);
    let mut words = [a.0.as_str(), b.0.as_str()];
    words.sort_unstable();
    assert_eq!(words, ["False", "True"], "{a:?} {b:?}");
    let why = if a.0 == "False" { a.2 } else { b.2 };
    assert!(
        why.contains(request.metadata.name.as_deref().unwrap()) && why.contains("counts once"),
        "{why}"
    );
    let waiting = request_condition(stack, &request, "Decided").await;
    assert_eq!(
        (waiting.0.as_str(), waiting.1.as_str()),
        ("False", "Waiting")
    );
    assert!(waiting.2.contains("1 more of"), "{waiting:?}");
    assert!(
        stack.grants(&agent.namespace).await.is_empty(),
        "one person is not two"
    );

    stack.vote(&User::ben(), &request, "Approve").await.unwrap();
    let approved = stack
        .wait_request_phase(&request, RequestPhase::Approved)
        .await;
    assert_eq!(approved.status.unwrap().votes.len(), 3);
    let owned = decisions
        .get(first.metadata.name.as_deref().unwrap())
        .await
        .unwrap();
    assert_eq!(
        owned
            .metadata
            .owner_references
            .map(|owners| owners[0].uid.clone()),
        request.metadata.uid,
        "a decision goes with its request"
    );
}

#[tokio::test]
async fn a_no_after_the_yes_takes_back_what_nobody_used_yet() {
    let stack = installed().await;
    let agent = stack.agent("late-no").await;
    stack
        .cluster
        .bind(&User::ben(), "grantgate-approver", Some(&agent.namespace))
        .await;
    let either = json!({"approvers": {"required": [{"count": 1, "from": [{"user": "ana@example.com"}, {"user": "ben@example.com"}]}]}});
    stack.put_policy(&agent.name, either).await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let decided = stack.approve(&stopped).await;
    stack
        .vote(&User::ben(), &decided.request, "Deny")
        .await
        .unwrap();
    let grant = stack
        .wait_grant_phase(&decided.grant.unwrap(), GrantPhase::Revoked)
        .await;
    let status = grant.status.unwrap();
    assert_eq!(status.used.unwrap_or(0), 0);
    let (_, reason, message) = condition(&status.conditions, "Ended").unwrap();
    assert!(
        reason == "Revoked" && message.contains("ben@example.com"),
        "{message}"
    );
    let request = stack
        .request(
            &agent.namespace,
            decided.request.metadata.name.as_deref().unwrap(),
        )
        .await;
    assert_eq!(
        request.status.unwrap().votes.len(),
        2,
        "the denial is recorded"
    );
    assert_eq!(stack.scale(&agent, 5).await.status, 403);
}

#[tokio::test]
async fn what_loses_its_policy_or_its_tool_is_superseded_or_stale() {
    let stack = installed().await;
    let agent = stack.agent("access").await;
    let pending = stack
        .scale(&agent, 6)
        .await
        .expect_refused("ApprovalPending");
    let pending = stack.request_of(&pending).await;
    let grant = stack.approved_scale(&agent, 5).await;
    stack
        .put_policy(
            &agent.name,
            json!({"validity": {"uses": 1, "durationSeconds": 300}}),
        )
        .await;
    // In force means: whatever it voids is marked.
    let stored = stack
        .grant(&agent.namespace, grant.metadata.name.as_deref().unwrap())
        .await;
    assert_eq!(grant_phase(&stored), GrantPhase::Stale);
    assert_eq!(
        condition(&stored.status.unwrap().conditions, "Ended")
            .unwrap()
            .1,
        "PolicyChanged"
    );
    stack
        .wait_request_phase(&pending, RequestPhase::Superseded)
        .await;
    assert_eq!(
        request_condition(stack, &pending, "Decided").await.1,
        "PolicyChanged"
    );

    let answer = stack.scale(&agent, 5).await.expect_refused("GrantStale");
    let grant = stack.approve(&answer).await.grant.unwrap();
    let answer = stack.scale(&agent, 7).await;
    let pending = stack.request_of(&answer).await;
    stack.declare(&agent, json!({"surface": "Mounts"})).await;
    let stale = stack.wait_grant_phase(&grant, GrantPhase::Stale).await;
    assert_eq!(
        condition(&stale.status.unwrap().conditions, "Ended")
            .unwrap()
            .1,
        "AccessRemoved"
    );
    stack
        .wait_request_phase(&pending, RequestPhase::Superseded)
        .await;
    assert_eq!(
        request_condition(stack, &pending, "Decided").await.1,
        "AccessRemoved"
    );
}

#[tokio::test]
async fn an_approver_who_loses_the_right_takes_the_permission_along() {
    let stack = installed().await;
    let agent = stack.agent("approver").await;
    let grant = stack.approved_scale(&agent, 5).await;
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> =
        Api::namespaced(stack.cluster.admin(), &agent.namespace);
    for binding in bindings.list(&ListParams::default()).await.unwrap() {
        let of_ana = binding
            .subjects
            .iter()
            .flatten()
            .any(|subject| subject.name == User::ana().name);
        if of_ana {
            bindings
                .delete(
                    binding.metadata.name.as_deref().unwrap(),
                    &DeleteParams::default(),
                )
                .await
                .unwrap();
        }
    }
    let stale = stack.wait_grant_phase(&grant, GrantPhase::Stale).await;
    let (_, reason, message) = condition(&stale.status.unwrap().conditions, "Ended").unwrap();
    assert!(
        reason == "ApproverLost" && message.contains("ana@example.com"),
        "{message}"
    );
}

#[tokio::test]
async fn a_change_that_was_undone_at_once_is_confirmed_all_the_same() {
    let stack = installed().await;
    let agent = stack.agent("undone").await;
    let grant = stack.approved_scale(&agent, 5).await;
    stack.scale(&agent, 5).await.expect_ok();
    stack.admin_scale(&agent.namespace, 3).await;
    // Served again for 34 s, by a request that lives for 34 s more; 20 s later the target is read.
    let used = eventually("the use is settled", Duration::from_secs(180), async || {
        let used = stack.uses(&grant).await.into_iter().next()?;
        (used.effect != UseEffect::Pending).then_some(used)
    })
    .await
    .unwrap();
    let evidence = used.evidence.unwrap();
    assert_eq!(used.effect, UseEffect::Confirmed, "{evidence:?}");
    assert!(evidence.message.unwrap().contains("changed again since"));
    let spent = stack.wait_grant_phase(&grant, GrantPhase::Exhausted).await;
    let conditions = spent.status.unwrap().conditions;
    assert_eq!(condition(&conditions, "Settled").unwrap().0, "True");
    assert_eq!(condition(&conditions, "Ended").unwrap().1, "Spent");

    let events: Api<Event> = Api::namespaced(stack.cluster.admin(), &agent.namespace);
    // An event follows what it tells of.
    let told = eventually("the end is told", PATIENCE, async || {
        let told = events.list(&ListParams::default()).await.ok()?.items;
        let ended = |event: &Event| event.reason.as_deref() == Some("Exhausted");
        told.iter().any(ended).then_some(told)
    })
    .await
    .unwrap();
    for reason in ["Approved", "Granted", "UseSettled", "Exhausted"] {
        let about = told
            .iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        assert_eq!(about.count(), 1, "{reason}");
    }
}

#[tokio::test]
async fn a_mount_shows_what_each_tool_comes_to_and_a_name_that_is_missing() {
    let stack = installed().await;
    let namespace = stack.cluster.namespace("tools", &[]).await;
    let object = |kind: &str, name: &str, spec: serde_json::Value| json!({"apiVersion": "grantgate.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec});
    let actions = json!([{"apiGroups": ["apps"], "resources": ["deployments/scale"], "operations": ["UPDATE"]}]);
    stack
        .kubectl_apply(&object("ToolServer", "k8s", json!({"identity": {"callerToken": {}}, "tools": [
            {"name": "scale", "class": "Write", "actions": actions}, {"name": "list", "class": "ReadOnly"},
        ]})))
        .await;
    stack
        .kubectl_apply(&object(
            "ToolMount",
            "m",
            json!({"agent": "nobody", "server": "k8s", "disable": ["gone"], "approval": []}),
        ))
        .await;
    let servers: Api<ToolServer> = Api::namespaced(stack.cluster.admin(), &namespace);
    let server = eventually("the server is resolved", PATIENCE, async || {
        servers.get("k8s").await.ok()?.status
    })
    .await
    .unwrap();
    assert_eq!(server.tools.len(), 2);
    assert_eq!(condition(&server.conditions, "Resolved").unwrap().0, "True");

    let mounts: Api<ToolMount> = Api::namespaced(stack.cluster.admin(), &namespace);
    let mount = eventually("the mount is in force", PATIENCE, async || {
        let status = mounts.get("m").await.ok()?.status?;
        (condition(&status.conditions, "InForce")?.0 == "True" && !status.tools.is_empty())
            .then_some(status)
    })
    .await
    .unwrap();
    let (status, _, message) = condition(&mount.conditions, "Resolved").unwrap();
    assert!(
        status == "False" && message.contains("spec.agent"),
        "{message}"
    );
    let scale = mount
        .tools
        .iter()
        .find(|tool| tool.name == "scale")
        .unwrap();
    assert_eq!(
        (
            scale.enabled,
            scale.needs_approval,
            scale.enforced_at.as_str()
        ),
        (true, false, "Nowhere")
    );
    let (status, _, message) = condition(&mount.conditions, "StillAsked").unwrap();
    assert!(status == "True" && message.contains("scale"), "{message}");
}

//! However a request ended, the identical call asks anew: the new request names the one before it and why that ended, and that one
//! stays as it is (FT4). Each twice in a row, so that the chain is longer than one link.

use grantgate::api::{ApprovalRequest, approval_request::RequestPhase, grant::GrantPhase};
use serde_json::{Value, json};

use crate::{
    cluster::wait::{PATIENCE, eventually},
    stack::{Agent, Stack, installed, request_phase},
};

/// The identical call once more, as soon as nothing but a cool-down is in the way. Returns the request that waits then.
async fn asks_anew(
    stack: &Stack<'_>,
    agent: &Agent,
    ended: &ApprovalRequest,
    reason: &str,
) -> ApprovalRequest {
    let namespace = agent.namespace.as_str();
    let name = ended.metadata.name.as_deref().unwrap();
    let before = stack.request(namespace, name).await;
    assert_eq!(before.metadata.uid, ended.metadata.uid);
    let known = stack.requests(namespace).await.len();
    let answer = eventually("the same may be asked again", PATIENCE, async || {
        let answer = stack.scale(agent, 5).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        (answer.reason() != "ApprovalDenied").then_some(answer)
    })
    .await
    .unwrap();
    let next = stack.request_of(&answer).await;
    assert_eq!(request_phase(&next), None, "{answer:?}");
    assert_eq!(stack.requests(namespace).await.len(), known + 1);
    let previous = next.spec.previous.clone().unwrap();
    assert_eq!(
        (
            previous.name.as_str(),
            Some(&previous.uid),
            previous.reason.as_str()
        ),
        (name, ended.metadata.uid.as_ref(), reason)
    );
    let after = stack.request(namespace, name).await;
    assert_eq!(
        serde_json::to_value(&after).unwrap(),
        serde_json::to_value(&before).unwrap(),
        "the predecessor is unchanged"
    );
    next
}

/// Lets a request end in some way, asks again, lets that one end in the same way, and asks again.
async fn twice(
    prefix: &str,
    policy: Value,
    reason: &str,
    end: impl AsyncFn(&Stack<'_>, &Agent, &ApprovalRequest),
) {
    let stack = installed().await;
    let agent = stack.agent(prefix).await;
    stack.put_policy(&agent.name, policy).await;
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let mut request = stack.request_of(&stopped).await;
    assert!(request.spec.previous.is_none());
    for _ in 0..2 {
        end(stack, &agent, &request).await;
        request = asks_anew(stack, &agent, &request, reason).await;
    }
}

#[tokio::test]
async fn after_a_denial_and_its_cool_down() {
    twice(
        "denied",
        json!({"denialCooldownSeconds": 1}),
        "Denied",
        async |stack, _, request| {
            let ana = crate::cluster::User::ana();
            stack.vote(&ana, request, "Deny").await.unwrap();
            stack
                .wait_request_phase(request, RequestPhase::Denied)
                .await;
        },
    )
    .await;
}

#[tokio::test]
async fn within_the_cool_down_of_a_denial_the_same_call_is_denied_and_nothing_is_asked() {
    let stack = installed().await;
    let agent = stack.agent("cooling").await;
    stack
        .put_policy(&agent.name, json!({"denialCooldownSeconds": 3600}))
        .await;
    let first = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    stack.deny(&first).await;
    let refused = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalDenied");
    assert!(
        refused.message().contains("a person denied"),
        "{}",
        refused.message()
    );
    assert_eq!(stack.requests(&agent.namespace).await.len(), 1);
    let other = stack.scale(&agent, 6).await;
    other.expect_refused("ApprovalPending");
}

#[tokio::test]
async fn after_nobody_decided_in_time() {
    twice(
        "silent",
        json!({"onSilence": [{"afterSeconds": 2, "action": "Expire"}]}),
        "Expired",
        async |stack, _, request| {
            stack
                .wait_request_phase(request, RequestPhase::Expired)
                .await;
        },
    )
    .await;
}

#[tokio::test]
async fn after_the_grant_ran_out_unused() {
    twice(
        "run-out",
        json!({"validity": {"uses": 1, "durationSeconds": 1}}),
        "Expired",
        async |stack, _, request| {
            let grant = stack.approve_request(request).await.grant.unwrap();
            stack.wait_grant_phase(&grant, GrantPhase::Expired).await;
        },
    )
    .await;
}

#[tokio::test]
async fn after_the_grant_was_spent() {
    twice(
        "spent",
        json!({}),
        "Spent",
        async |stack, agent, request| {
            let grant = stack.approve_request(request).await.grant.unwrap();
            stack.scale(agent, 5).await.expect_ok();
            assert_eq!(stack.uses(&grant).await.len(), 1);
            stack.admin_scale(&agent.namespace, 3).await;
        },
    )
    .await;
}

#[tokio::test]
async fn after_the_grant_was_revoked() {
    twice(
        "revoked",
        json!({}),
        "Revoked",
        async |stack, _, request| {
            let grant = stack.approve_request(request).await.grant.unwrap();
            stack.revoke(&grant).await;
            stack.wait_grant_phase(&grant, GrantPhase::Revoked).await;
        },
    )
    .await;
}

#[tokio::test]
async fn after_the_grant_went_stale() {
    twice(
        "stale",
        json!({}),
        "Stale",
        async |stack, agent, request| {
            stack.approve_request(request).await;
            let now = stack.replicas(&agent.namespace).await;
            stack.admin_scale(&agent.namespace, 7 - now).await;
        },
    )
    .await;
}

#[tokio::test]
async fn after_the_target_moved_while_nobody_had_decided() {
    let stack = installed().await;
    let agent = stack.agent("moved-on").await;
    let first = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let first = stack.request_of(&first).await;
    stack.admin_scale(&agent.namespace, 4).await;
    let second = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let second = stack.request_of(&second).await;
    let ended = stack
        .request(&agent.namespace, first.metadata.name.as_deref().unwrap())
        .await;
    assert_eq!(request_phase(&ended), Some(RequestPhase::Superseded));
    assert_eq!(ended.spec, first.spec);
    let previous = second.spec.previous.as_ref().unwrap();
    assert_eq!(
        (Some(&previous.uid), previous.reason.as_str()),
        (first.metadata.uid.as_ref(), "Superseded")
    );
    assert_eq!(second.spec.diff[0].from.as_deref(), Some("4"));
    // What shows the new state is asked about, and nothing else is.
    let again = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    assert_eq!(again.request().unwrap().1, second.metadata.name.unwrap());
}

//! What an attempt costs, counted in the audit log over everything that the webhook's account did, wherever.

use serde_json::json;

use crate::{
    cluster::{
        Cluster, User,
        audit::{Event, Mark, Select},
    },
    stack::{Agent, Setup, Stack, with_controllers},
};

/// What a replica does whether it is called or not: it watches, says that it lives, and looks after its certificate and the server's
/// clock.
fn is_background(event: &Event) -> bool {
    let resource = event
        .object_ref
        .as_ref()
        .map(|object| object.resource.as_str());
    matches!(event.verb.as_str(), "watch" | "list")
        || match resource {
            Some("leases") => true,
            Some("secrets") => event.verb == "get",
            Some(_) => false,
            None => event.verb == "get",
        }
}

/// Everything else that the webhook did since.
async fn caused(cluster: &Cluster, since: &Mark) -> Vec<String> {
    let webhook = User::by_token(
        "system:serviceaccount:grantgate-system:grantgate-webhook",
        &[],
    );
    let events = cluster
        .audit_settled(&Select::since(since).user(&webhook))
        .await;
    events
        .iter()
        .filter(|event| !is_background(event))
        .map(|event| format!("{} {}", event.verb, event.request_uri))
        .collect()
}

async fn dry_run(stack: &Stack<'_>, agent: &Agent, replicas: i32) {
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api/scale?dryRun=All",
        agent.namespace
    );
    stack
        .patch(&agent.user, &path, json!({"spec": {"replicas": replicas}}))
        .await
        .expect_ok();
}

#[tokio::test]
async fn a_repeat_writes_nothing_an_allow_writes_once_and_neither_reads() {
    let cluster = Cluster::start(with_controllers()).await;
    let stack = Stack::start(&cluster, Setup::default()).await;
    let agent = stack.agent("cost").await;
    let mark = cluster.audit_mark().await;
    let nothing: Vec<String> = Vec::new();

    dry_run(&stack, &agent, 9).await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api",
        agent.namespace
    );
    stack
        .patch(&agent.user, &path, json!({"spec": {"replicas": 3}}))
        .await
        .expect_ok();
    assert_eq!(
        caused(&cluster, &mark).await,
        nothing,
        "a dry run, and a write that changes nothing"
    );
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
    assert!(stack.requests(&agent.namespace).await.is_empty());

    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let mark = cluster.audit_mark().await;
    for _ in 0..3 {
        let again = stack
            .scale(&agent, 5)
            .await
            .expect_refused("ApprovalPending");
        assert_eq!(again.request(), stopped.request());
    }
    assert_eq!(caused(&cluster, &mark).await, nothing, "repeated denials");

    let grant = stack.approve(&stopped).await.grant.unwrap();
    let mark = cluster.audit_mark().await;
    dry_run(&stack, &agent, 5).await;
    assert_eq!(
        caused(&cluster, &mark).await,
        nothing,
        "a dry run of what is approved"
    );
    assert!(stack.uses(&grant).await.is_empty());

    let mark = cluster.audit_mark().await;
    stack.scale(&agent, 5).await.expect_ok();
    let caused = caused(&cluster, &mark).await;
    let status = format!(
        "update /apis/grantgate.dev/v1alpha1/namespaces/{}/grants/{}/status",
        agent.namespace,
        grant.metadata.name.as_deref().unwrap()
    );
    assert_eq!(caused.len(), 1, "{caused:?}");
    assert!(caused[0].starts_with(&status), "{caused:?}");
    assert_eq!(stack.replicas(&agent.namespace).await, 5);
}

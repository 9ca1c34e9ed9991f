//! The path that everything rests on: stopped, seen, decided, done once, and stopped again where anything differs.

use grantgate::api::{ApprovalRequest, approval_request::RequestPhase};
use serde_json::json;

use crate::{
    cluster::{
        User,
        audit::Select,
        wait::{PATIENCE, eventually},
    },
    mcp,
    stack::{Stack, installed, request_phase},
};

#[tokio::test]
async fn a_change_waits_is_approved_happens_once_and_waits_again() {
    let stack = installed().await;
    let agent = stack.agent("story").await;

    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    assert!(
        stopped
            .message()
            .contains("NOT EXECUTED (this write), waiting for a person"),
        "{}",
        stopped.message()
    );
    assert_eq!(stack.replicas(&agent.namespace).await, 3);

    let request = stack.request_of(&stopped).await;
    assert_eq!(request.spec.diff.len(), 1);
    assert_eq!(request.spec.diff[0].path, "/spec/replicas");
    assert_eq!(
        (
            request.spec.diff[0].from.as_deref(),
            request.spec.diff[0].to.as_deref()
        ),
        (Some("3"), Some("5"))
    );
    assert_eq!(request.spec.requester.agent, agent.name);

    let grant = stack.approve(&stopped).await.grant.unwrap();
    stack.scale(&agent, 5).await.expect_ok();
    assert_eq!(stack.replicas(&agent.namespace).await, 5);
    assert_eq!(stack.uses(&grant).await.len(), 1);

    stack.admin_scale(&agent.namespace, 3).await;
    let again = stack.scale(&agent, 5).await;
    assert_eq!(again.status, 403, "{again:?}");
    let next = stack.request_of(&again).await;
    assert_eq!(
        next.spec.previous.as_ref().map(|previous| &previous.uid),
        request.metadata.uid.as_ref()
    );
    assert_eq!(request_phase(&next), None);
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
}

#[tokio::test]
async fn repeats_of_one_change_share_one_request_and_another_change_has_its_own() {
    let stack = installed().await;
    let agent = stack.agent("repeat").await;
    let first = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    for _ in 0..3 {
        let again = stack
            .scale(&agent, 5)
            .await
            .expect_refused("ApprovalPending");
        assert_eq!(again.request(), first.request());
    }
    let other = stack
        .scale(&agent, 6)
        .await
        .expect_refused("ApprovalPending");
    assert_ne!(other.request(), first.request());
    assert_eq!(stack.requests(&agent.namespace).await.len(), 2);
}

/// What every client must get whole of a pending request.
fn assert_told(text: &str, request: &ApprovalRequest) {
    let namespace = request.metadata.namespace.as_deref().unwrap();
    let name = request.metadata.name.as_deref().unwrap();
    for part in [
        format!("NOT EXECUTED (this write), waiting for a person: request {namespace}/{name} for "),
        "Neither success nor failure: stop".to_owned(),
        format!(
            "awaits approval until {}.",
            request.spec.deadline.0.strftime("%H:%MZ")
        ),
    ] {
        assert!(text.contains(&part), "no {part:?} in {text}");
    }
    // Where a line tells more, the command is a shorter one.
    let polls = ["approvalrequests.grantgate.dev", "ggar"]
        .map(|resource| format!("Poll: kubectl get {resource} {name} -n {namespace}"));
    assert!(polls.iter().any(|poll| text.contains(poll)), "{text}");
}

/// The one request of a namespace that waits.
async fn pending(stack: &Stack<'_>, namespace: &str) -> ApprovalRequest {
    let mut requests = stack.requests(namespace).await;
    requests.retain(|request| request_phase(request).is_none());
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}

#[tokio::test]
async fn an_mcp_call_is_an_error_with_the_whole_message_until_it_is_approved_and_then_works_once() {
    let stack = installed().await;
    let agent = stack.agent("mcp").await;
    let server = tokio::task::spawn_blocking(mcp::Server::ensure)
        .await
        .unwrap()
        .unwrap();
    let dir = stack.cluster.dir().join(&agent.name);
    std::fs::create_dir_all(&dir).unwrap();
    let kubeconfig = stack.cluster.kubeconfig(&agent.user);
    let session = mcp::Session::start(&server, &kubeconfig, &dir)
        .await
        .unwrap();
    let scale = async |replicas: i32| {
        let arguments = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": agent.namespace, "name": "api", "scale": replicas,
        });
        let arguments = arguments.as_object().cloned().unwrap();
        session.call("resources_scale", arguments).await.unwrap()
    };

    let stopped = scale(5).await;
    assert!(stopped.is_error, "{stopped:?}");
    let request = pending(stack, &agent.namespace).await;
    assert_told(&stopped.text, &request);
    let again = scale(5).await;
    assert!(again.is_error && again.text == stopped.text, "{again:?}");
    assert_eq!(stack.requests(&agent.namespace).await.len(), 1);
    let other = scale(6).await;
    assert!(other.is_error && other.text != stopped.text, "{other:?}");
    assert_eq!(stack.requests(&agent.namespace).await.len(), 2);

    let grant = stack.approve_request(&request).await.grant.unwrap();
    // The server reads and writes; what the controllers write in between is a conflict, and the agent tries again.
    let done = eventually("the approved call goes through", PATIENCE, async || {
        let done = scale(5).await;
        (!done.text.contains("the object has been modified")).then_some(done)
    })
    .await
    .unwrap();
    assert!(!done.is_error, "{done:?}");
    assert_eq!(stack.replicas(&agent.namespace).await, 5);
    assert_eq!(stack.uses(&grant).await.len(), 1);
    stack.admin_scale(&agent.namespace, 3).await;
    let spent = eventually("the same call is decided again", PATIENCE, async || {
        let spent = scale(5).await;
        (!spent.text.contains("the object has been modified")).then_some(spent)
    })
    .await
    .unwrap();
    assert!(
        spent.is_error && spent.text.contains("waiting for a person"),
        "{spent:?}"
    );
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
}

#[tokio::test]
async fn kubectl_is_stopped_with_the_whole_message_and_goes_through_once_approved() {
    let stack = installed().await;
    let agent = stack.agent("kubectl").await;
    let kubectl = stack.cluster.kubectl(&agent.user);
    let namespace = agent.namespace.as_str();
    let map = |name: &str, mode: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"mode": mode}})
            .to_string()
    };
    for (command, input) in [
        ("scale deploy/api --replicas=6", String::new()),
        ("apply -f -", map("fresh", "slow")),
        ("apply -f -", map("fresh", "fast")),
        ("apply --server-side -f -", map("settings", "fast")),
        ("apply --server-side -f -", map("fresher", "slow")),
        (
            r#"patch deploy/api --type=merge -p {"spec":{"minReadySeconds":5}}"#,
            String::new(),
        ),
        ("label deploy/api tier=B", String::new()),
        ("delete configmap settings", String::new()),
    ] {
        let command: Vec<&str> = command.split(' ').chain(["-n", namespace]).collect();
        let stopped = kubectl.run_with_input(command.clone(), &input).await;
        assert_eq!(stopped.code, Some(1), "{command:?}: {stopped:?}");
        let request = pending(stack, namespace).await;
        assert_told(&stopped.stderr, &request);
        let again = kubectl.run_with_input(command.clone(), &input).await;
        assert_eq!(again.code, Some(1), "{command:?}: {again:?}");
        assert_eq!(
            pending(stack, namespace).await.metadata.uid,
            request.metadata.uid,
            "{command:?}"
        );
        stack.approve_request(&request).await;
        kubectl.run_with_input(command, &input).await.expect_ok();
    }
}

#[tokio::test]
async fn plain_kubectl_decides_and_revokes_too() {
    let stack = installed().await;
    let agent = stack.agent("plain").await;
    let ana = stack.cluster.kubectl(&User::ana());
    let namespace = agent.namespace.as_str();
    let decide = async |request: &ApprovalRequest, verdict: &str| {
        let decision = Stack::decision(request, verdict).to_string();
        ana.run_with_input(["create", "-f", "-"], &decision)
            .await
            .expect_ok();
    };

    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let listed = ana
        .run(["get", "approvalrequests.grantgate.dev", "-n", namespace])
        .await
        .expect_ok();
    let (_, name) = stopped.request().unwrap();
    assert!(listed.contains(&name), "{listed}");
    decide(&stack.request_of(&stopped).await, "Approve").await;
    let grant = format!("gr-{}", name.trim_start_matches("ar-"));
    eventually("the grant is minted", PATIENCE, async || {
        let got = ana.run(["get", "grants.grantgate.dev", &grant, "-n", namespace]);
        got.await.ok().then_some(())
    })
    .await
    .unwrap();
    ana.run([
        "patch",
        "grants.grantgate.dev",
        &grant,
        "-n",
        namespace,
        "--type=merge",
        "-p",
        r#"{"spec":{"revoked":true}}"#,
    ])
    .await
    .expect_ok();
    let stopped = stack.scale(&agent, 5).await.expect_refused("GrantStale");
    assert!(stopped.has_cause("Revoked"), "{stopped:?}");
    assert_eq!(stack.replicas(namespace).await, 3);

    let next = stack.request_of(&stopped).await;
    decide(&next, "Deny").await;
    stack.wait_request_phase(&next, RequestPhase::Denied).await;
}

#[tokio::test]
async fn a_person_who_is_no_agent_is_never_asked() {
    let stack = installed().await;
    let agent = stack.agent("person").await;
    stack
        .cluster
        .bind(&User::ben(), "edit", Some(&agent.namespace))
        .await;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/api/scale",
        agent.namespace
    );
    let mark = stack.cluster.audit_mark().await;
    stack
        .patch(&User::ben(), &path, json!({"spec": {"replicas": 7}}))
        .await
        .expect_ok();
    assert!(stack.requests(&agent.namespace).await.is_empty());
    let events = stack
        .cluster
        .audit_settled(
            &Select::since(&mark)
                .user(&User::ben())
                .on("deployments/scale")
                .namespace(&agent.namespace),
        )
        .await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        !events[0]
            .annotations
            .keys()
            .any(|key| key.starts_with("gate.grantgate.dev/")),
        "it was never sent to the gate: {events:?}"
    );
}

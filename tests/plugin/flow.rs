//! The plugin with grantgate running: what it says is what then happens.

use grantgate::{api::approval_request::RequestPhase, cli::seen::prefix};

use crate::{
    cluster::{User, tools::Output},
    stack::{Agent, Answer, Stack, installed},
};

async fn run(stack: &Stack<'_>, agent: &Agent, user: &User, line: &str) -> Output {
    let tail = ["-n", agent.namespace.as_str()];
    let args = ["grantgate"].into_iter().chain(line.split(' ')).chain(tail);
    stack.cluster.kubectl(user).run(args).await
}

/// The request that an answer names, and the digest prefix that `pending` shows for it.
async fn pending(stack: &Stack<'_>, agent: &Agent, stopped: &Answer) -> (String, String) {
    let request = stack.request_of(stopped).await;
    let name = request.metadata.name.unwrap();
    let table = run(stack, agent, &User::ana(), "pending").await.expect_ok();
    let row = table.lines().find(|line| line.starts_with(&name)).unwrap();
    let digest = row.split_whitespace().rev().nth(1).unwrap();
    assert_eq!(digest, prefix(&request.spec.digest));
    (name, digest.to_owned())
}

#[tokio::test]
async fn what_a_person_approves_with_the_plugin_goes_through_once() {
    let stack = installed().await;
    let agent = stack.agent("plugin").await;
    let ana = User::ana();
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let (name, digest) = pending(stack, &agent, &stopped).await;

    let shown = run(stack, &agent, &ana, &format!("show {name}"))
        .await
        .expect_ok();
    for part in [
        "/spec/replicas\n    - 3\n    + 5\n",
        "(recomputed here: equal)",
        &format!("--digest {digest}"),
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let own = run(
        stack,
        &agent,
        &agent.user,
        &format!("approve {name} --digest {digest}"),
    )
    .await;
    assert_eq!(own.code, Some(6), "{own:?}");

    let approve = format!("approve {name} --digest {digest} --reason CHG-881 --timeout 60s");
    let said = run(stack, &agent, &ana, &approve).await.expect_ok();
    let expected = format!("approvalrequest.grantgate.dev/{name} approved (1 of 1; grant gr-");
    assert!(said.starts_with(&expected), "{said}");
    run(
        stack,
        &agent,
        &agent.user,
        &format!("wait {name} --timeout 60s"),
    )
    .await
    .expect_ok();
    stack.scale(&agent, 5).await.expect_ok();
    assert_eq!(stack.replicas(&agent.namespace).await, 5);

    let grants = run(stack, &agent, &ana, "grants").await.expect_ok();
    assert!(
        grants.contains("Exhausted") && grants.contains("1/1"),
        "{grants}"
    );
    let again = run(stack, &agent, &ana, &approve).await;
    assert_eq!(again.code, Some(3), "{again:?}");
}

#[tokio::test]
async fn what_a_person_denies_with_the_plugin_stays_undone() {
    let stack = installed().await;
    let agent = stack.agent("plugin").await;
    let ana = User::ana();
    let stopped = stack
        .scale(&agent, 5)
        .await
        .expect_refused("ApprovalPending");
    let (name, digest) = pending(stack, &agent, &stopped).await;
    let said = run(
        stack,
        &agent,
        &ana,
        &format!("deny {name} --reason no --timeout 60s"),
    )
    .await
    .expect_ok();
    assert_eq!(
        said,
        format!("approvalrequest.grantgate.dev/{name} denied\n")
    );
    let request = stack.request_of(&stopped).await;
    stack
        .wait_request_phase(&request, RequestPhase::Denied)
        .await;
    for (line, code) in [
        (format!("deny {name}"), 3),
        (format!("approve {name} --digest {digest}"), 5),
        (format!("wait {name}"), 5),
    ] {
        let output = run(stack, &agent, &ana, &line).await;
        assert_eq!(output.code, Some(code), "{line}: {output:?}");
    }
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
}

#[tokio::test]
async fn a_grant_revoked_with_the_plugin_does_not_serve() {
    let stack = installed().await;
    let agent = stack.agent("plugin").await;
    let grant = stack.approved_scale(&agent, 5).await;
    let name = grant.metadata.name.unwrap();
    let said = run(
        stack,
        &agent,
        &User::ana(),
        &format!("revoke {name} --reason mistaken"),
    )
    .await
    .expect_ok();
    assert_eq!(said, format!("grant.grantgate.dev/{name} revoked\n"));
    let stopped = stack.scale(&agent, 5).await;
    assert_eq!(stopped.status, 403, "{stopped:?}");
    assert_eq!(stack.replicas(&agent.namespace).await, 3);
}

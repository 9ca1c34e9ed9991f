//! What the installation's own accounts are refused: nothing, over one whole story.

use std::time::Duration;

use grantgate::api::grant::{GrantPhase, UseEffect};

use crate::{
    cluster::{
        Cluster, User,
        audit::Select,
        process::Process,
        wait::{PATIENCE, eventually},
    },
    stack::{SYSTEM, Setup, Stack, with_controllers},
};

#[tokio::test]
async fn the_components_are_refused_nothing_over_a_whole_story() {
    let cluster = Cluster::start(with_controllers()).await;
    let mut stack = Stack::start(&cluster, Setup::default()).await;
    let mark = cluster.audit_mark().await;

    // Another controller takes over, so that what is done at the start is part of it.
    let recipe = stack.controller_recipe("second", &Setup::default()).await;
    let mut second = Process::start(recipe.unwrap()).unwrap();
    let first = stack.controller.as_mut().unwrap();
    first.terminate().await.unwrap();
    second.wait_for_log("leads", PATIENCE).await.unwrap();

    let agent = stack.agent("story").await;
    let used = stack.approved_scale(&agent, 5).await;
    stack.scale(&agent, 5).await.expect_ok();
    stack.deny(&stack.label(&agent, "B").await).await;
    let revoked = stack.approved_scale(&agent, 7).await;
    stack.revoke(&revoked).await;
    stack.wait_grant_phase(&revoked, GrantPhase::Revoked).await;
    eventually("the use is settled", Duration::from_secs(180), async || {
        let used = stack.uses(&used).await.into_iter().next()?;
        (used.effect != UseEffect::Pending).then_some(())
    })
    .await
    .unwrap();

    for account in ["grantgate-webhook", "grantgate-controller"] {
        let name = format!("system:serviceaccount:{SYSTEM}:{account}");
        let user = User::by_token(&name, &[]);
        let refused = cluster
            .audit_settled(&Select::since(&mark).user(&user).code(403))
            .await;
        let refused: Vec<String> = refused
            .iter()
            // A forged decision is there to be refused.
            .filter(|event| !event.request_uri.contains("approvaldecisions?&dryRun=All"))
            .map(|event| format!("{} {}", event.verb, event.request_uri))
            .collect();
        assert!(refused.is_empty(), "{account}: {refused:#?}");
    }
}

//! The story. Each fact that it tells is checked: where one does not hold, it ends with an error.

use anyhow::{Context, Result, ensure};

use crate::agent::Attempt;
use crate::stage::Stage;
use crate::telling::Telling;

/// Replicas in `docs/samples/02-target.yaml`, and what the agent wants.
const BEFORE: u32 = 3;
const WANTED: u32 = 6;

/// Tells it from the samples to the second request.
pub async fn tell(stage: &Stage<'_>, telling: Telling) -> Result<()> {
    declare(stage, telling).await?;

    telling.section("2. The agent tries");
    let first = refused(stage, telling).await?;
    expect_replicas(stage, BEFORE).await?;

    telling.section("3. A person looks, and decides");
    telling.says(
        "ana@example.com is in sre-oncall. She sees what would change, on what state, and names what she saw by its digest.",
    );
    let ana = &stage.ana;
    ana.types("kubectl grantgate pending -n web").await?;
    ana.types(&format!("kubectl grantgate show {first} -n web"))
        .await?;
    let digest = ana
        .asks(&format!(
            "kubectl get approvalrequests.grantgate.dev {first} -n web -o jsonpath='{{.spec.digest}}'"
        ))
        .await?;
    let prefix = digest
        .rsplit(':')
        .next()
        .and_then(|hex| hex.get(..8))
        .context("the request has no digest")?;
    ana.types(&format!(
        "kubectl grantgate approve {first} -n web --digest {prefix} --reason CHG-881"
    ))
    .await?;

    telling.section("4. The same call goes through, once");
    let attempt = call(stage, telling).await?;
    ensure!(!attempt.refused, "the approved call was refused");
    expect_replicas(stage, WANTED).await?;
    settled(stage, WANTED).await?;
    let ana = &stage.ana;
    ana.types("kubectl grantgate grants -n web").await?;

    telling.section("5. A person sets it back, and the same call waits again");
    telling.says(
        "People are never sent to the gate: Ana's own change needs no approval. The agent's next one does, although it is the same \
         call: its grant is spent.",
    );
    stage
        .ana
        .types(&format!(
            "kubectl scale deployment api -n web --replicas={BEFORE}"
        ))
        .await?;
    settled(stage, BEFORE).await?;
    let second = refused(stage, telling).await?;
    ensure!(
        first != second,
        "the call waits for the request that was used already"
    );
    expect_replicas(stage, BEFORE).await?;
    let ana = &stage.ana;
    ana.types("kubectl get approvalrequests -n web").await?;
    let previous = ana
        .types(&format!(
            "kubectl get approvalrequests {second} -n web -o jsonpath='{{.spec.previous.name}} {{.spec.previous.reason}}'"
        ))
        .await?;
    ensure!(
        previous.split(' ').next() == Some(first.as_str()),
        "the new request does not name its predecessor {first}"
    );

    telling.section("The end");
    telling.says(&format!(
        "Three times the agent asked for the same change. Twice nothing was executed, and it was told so; once, after a person had \
         seen exactly that change, it was. Request {second} waits now and names {first} as its predecessor."
    ));
    Ok(())
}

async fn declare(stage: &Stage<'_>, telling: Telling) -> Result<()> {
    telling.section("1. What the platform team declares");
    let admin = &stage.admin;
    admin.types("kubectl apply -f docs/samples/").await?;
    admin
        .types("kubectl wait agentidentity ops-bot --for=condition=Enforced --timeout=180s")
        .await?;
    admin
        .types("kubectl wait toolmount ops-bot-kubernetes -n agents --for=condition=InForce --timeout=180s")
        .await?;
    admin
        .types("kubectl wait clusterapprovalpolicy production-changes --for=condition=InForce --timeout=180s")
        .await?;
    Ok(())
}

/// The agent's call. The server reads the object and writes it back with its version, so a controller that writes in between makes
/// the API server itself refuse, whatever grantgate would say; the agent then does what it is told, and calls again.
async fn call(stage: &Stage<'_>, telling: Telling) -> Result<Attempt> {
    let mut attempt = stage.agent.scale(WANTED, telling).await?;
    for _ in 0..5 {
        if !(attempt.refused && attempt.text.contains("the object has been modified")) {
            break;
        }
        telling.says(
            "That was the API server's own conflict: a controller wrote the object in between. The agent calls again.",
        );
        attempt = stage.agent.scale(WANTED, telling).await?;
    }
    Ok(attempt)
}

/// Ana waits until the controllers have followed.
async fn settled(stage: &Stage<'_>, replicas: u32) -> Result<()> {
    let line = format!(
        "kubectl wait deployment api -n web --for=jsonpath='{{.status.replicas}}'={replicas} --timeout=180s"
    );
    stage.ana.types(&line).await.map(drop)
}

/// The agent asks, is told that nothing was executed, and which request it waits for.
async fn refused(stage: &Stage<'_>, telling: Telling) -> Result<String> {
    let attempt = call(stage, telling).await?;
    ensure!(
        attempt.refused && attempt.text.contains("NOT EXECUTED"),
        "the call was to wait for a person"
    );
    let (_, after) = attempt
        .text
        .split_once("request web/")
        .context("the answer names no request")?;
    let name: String = after
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '-')
        .collect();
    ensure!(name.starts_with("ar-"), "the answer names no request");
    Ok(name)
}

/// Ana looks at the Deployment itself.
async fn expect_replicas(stage: &Stage<'_>, wanted: u32) -> Result<()> {
    let found = stage
        .ana
        .types("kubectl get deployment api -n web -o jsonpath='{.spec.replicas}'")
        .await?;
    ensure!(
        found == wanted.to_string(),
        "the Deployment asks for {found} replicas, not {wanted}"
    );
    Ok(())
}

//! `grantgate cleanup`: takes away what stands in the way of writes, in the order in which nothing is locked out.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use grantgate::{
    cluster::{
        client::{self, CallError, ConnectOptions, within},
        clock::Clock,
    },
    control::configuration,
    decide::{gate_entries::Subjects, visible},
    manifests::{GATE, MUTATING_WEBHOOKS, POLICIES, VALIDATING_WEBHOOKS},
};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use kube::{Api, Client, Resource, api::DeleteParams};

use super::print;

const LIMIT: Duration = Duration::from_secs(10);

/// Arguments of `grantgate cleanup`.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    connect: ConnectOptions,
}

/// Removes bindings, then webhook configurations, and says what that means.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(clean(arguments))
}

async fn clean(arguments: Arguments) -> anyhow::Result<()> {
    let config = arguments.connect.config().await?;
    let client = client::connect(config, Clock::default().into())?;
    let gate: Option<ValidatingWebhookConfiguration> = configuration::read(&client, GATE)
        .await
        .context("cannot read what is gated now")?;
    let mut gated = Subjects::default();
    for entry in gate
        .as_ref()
        .map(configuration::installed)
        .unwrap_or_default()
    {
        gated.extend(&entry.subjects);
    }
    // The bindings first: one of them protects the configurations.
    for name in POLICIES {
        remove::<ValidatingAdmissionPolicyBinding>(&client, "policy binding", name).await?;
    }
    for name in VALIDATING_WEBHOOKS {
        remove::<ValidatingWebhookConfiguration>(&client, "validating webhook configuration", name)
            .await?;
    }
    for name in MUTATING_WEBHOOKS {
        remove::<MutatingWebhookConfiguration>(&client, "mutating webhook configuration", name)
            .await?;
    }
    print(&meaning(&gated))
}

async fn remove<K>(client: &Client, what: &str, name: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let removed: Result<_, CallError> =
        within(LIMIT, api.delete(name, &DeleteParams::default())).await;
    match removed {
        Ok(_) => print(&format!("{what} {name} removed\n")),
        Err(error) if error.is_not_found() => print(&format!("{what} {name} was not there\n")),
        Err(error) => Err(error).with_context(|| format!("cannot remove {what} {name}")),
    }
}

/// What holds from now on.
fn meaning(gated: &Subjects) -> String {
    let mut text = String::from(
        "\nFrom now on nothing waits for a person: every agent may do whatever RBAC allows its identity, and records are protected by RBAC alone.\n",
    );
    if gated.is_empty() {
        text.push_str("No declared identity was gated.\n");
    } else {
        text.push_str("These identities are no longer gated:\n");
        for line in gated.lines() {
            text.push_str(&format!("  {}\n", visible::visible(&line)));
        }
    }
    text.push_str(
        "A controller that still runs makes the configurations again: stop it first. Requests, decisions and grants stay.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_who_is_no_longer_gated() {
        let gated = Subjects {
            usernames: ["oidc:ops-bot".to_owned()].into(),
            groups: ["ai-agents".to_owned()].into(),
        };
        let text = meaning(&gated);
        assert!(text.contains("\n  user oidc:ops-bot\n  group ai-agents\n"));
        assert!(meaning(&Subjects::default()).contains("No declared identity"));
    }
}

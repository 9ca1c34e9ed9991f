//! Whether the copies that a decision used are what the API server has now. Asked before anything is ended because of policies, labels
//! or agents: a copy that lags would end it falsely, and what has ended stays so. A denial may come from a copy; an end may not.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::{
    api::{AgentIdentity, ApprovalPolicy, ClusterApprovalPolicy, PolicyRef},
    cluster::{
        client::{CallError, within},
        ledger::Ledger,
    },
    decide::{policy::PolicyName, proposal::Proposal, world::World},
};

const LIMIT: Duration = Duration::from_secs(1);

/// What an object's revision is told by: uid, generation and labels. Absent: there is none.
type Mark = Option<(String, Option<i64>, BTreeMap<String, String>)>;

impl Ledger {
    /// Whether the policies, the namespace and the agent that this proposal, or the record, was decided by are known here as they are.
    /// An answer that does not come counts as no.
    pub async fn sees_the_present(
        &self,
        world: &World,
        proposal: &Proposal,
        recorded: &[PolicyRef],
        namespace: Option<&str>,
    ) -> bool {
        self.compared(world, proposal, recorded, namespace)
            .await
            .unwrap_or(false)
    }

    async fn compared(
        &self,
        world: &World,
        proposal: &Proposal,
        recorded: &[PolicyRef],
        namespace: Option<&str>,
    ) -> Result<bool, CallError> {
        let client = &self.client;
        if let Some(name) = namespace {
            let known = world.namespaces.get(name);
            let there = mark(&Api::<Namespace>::all(client.clone()), name).await?;
            if known.map(|namespace| &namespace.labels) != there.as_ref().map(|(.., labels)| labels)
            {
                return Ok(false);
            }
        }
        let name = &proposal.requester.agent;
        let known = world.agents.get(name);
        let there = mark(&Api::<AgentIdentity>::all(client.clone()), name).await?;
        if known.map(|agent| (&agent.uid, &agent.labels))
            != there.as_ref().map(|(uid, _, labels)| (uid, labels))
        {
            return Ok(false);
        }
        let mut policies: Vec<PolicyName> = recorded
            .iter()
            .chain(&proposal.rules.policies)
            .map(PolicyName::of)
            .collect();
        policies.sort();
        policies.dedup();
        for name in policies {
            let known = world.policies.get(&name);
            let there = match &name.namespace {
                Some(namespace) => {
                    let api = Api::<ApprovalPolicy>::namespaced(client.clone(), namespace);
                    mark(&api, &name.name).await?
                }
                None => {
                    mark(
                        &Api::<ClusterApprovalPolicy>::all(client.clone()),
                        &name.name,
                    )
                    .await?
                }
            };
            if known.map(|policy| (&policy.uid, Some(policy.generation)))
                != there
                    .as_ref()
                    .map(|(uid, generation, _)| (uid, *generation))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

async fn mark<K>(api: &Api<K>, name: &str) -> Result<Mark, CallError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let there = within(LIMIT, api.get_metadata_opt(name)).await?;
    Ok(there.map(|there| {
        (
            there.uid().unwrap_or_default(),
            there.metadata.generation,
            there.labels().clone(),
        )
    }))
}

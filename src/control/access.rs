//! What stored requests and grants are judged by besides votes and time: policies, mounts, agents and namespaces, without the object
//! that was reviewed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::{
    api::{
        AgentIdentity, ApprovalPolicy, ApprovalRequest, ClusterApprovalPolicy, Surface, ToolMount,
        ToolMountSpec, ToolServer, ToolServerSpec, tool_server::Tool,
    },
    cluster::client::{CallError, within},
    control::store::Kept,
    decide::{
        boundary::{self, Boundary, Doubt, Rulebook, Stored},
        live::StaleReason,
        mount::{Coverage, Mount, Mounts},
        server::{self, ResolvedServer},
        subject::Agent,
    },
};

const LIMIT: Duration = Duration::from_secs(10);

/// Everything that is declared, compiled without conditions.
#[derive(Default)]
pub struct Declared {
    rulebook: Rulebook,
    mounts: Mounts,
    agents: BTreeMap<String, Agent>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// The objects that a [`Declared`] is compiled from.
#[derive(Default)]
pub struct Objects {
    /// Cluster policies.
    pub cluster_policies: Vec<Arc<ClusterApprovalPolicy>>,
    /// Namespaced policies.
    pub policies: Vec<Arc<ApprovalPolicy>>,
    /// Servers.
    pub servers: Vec<Arc<ToolServer>>,
    /// Mounts.
    pub mounts: Vec<Arc<ToolMount>>,
    /// Agents.
    pub agents: Vec<Arc<AgentIdentity>>,
    /// Labels of namespaces by name.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// What became of what a stored request relied on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing {
    /// Nothing of it changed.
    Same,
    /// It is void.
    Void {
        /// Why.
        reason: StaleReason,
        /// In words.
        words: String,
    },
    /// It cannot be told here.
    CannotTell(Doubt),
}

impl Objects {
    /// Reads everything live: what no watch can be behind of.
    pub async fn live(client: &Client) -> Result<Self, CallError> {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
        let namespaces = within(LIMIT, namespaces.list(&ListParams::default())).await?;
        Ok(Self {
            cluster_policies: list(client).await?,
            policies: list(client).await?,
            servers: list(client).await?,
            mounts: list(client).await?,
            agents: list(client).await?,
            namespaces: namespaces
                .items
                .into_iter()
                .map(|namespace| (namespace.name_any(), namespace.labels().clone()))
                .collect(),
        })
    }

    /// Compiles them.
    pub fn compile(&self) -> Declared {
        let servers: BTreeMap<(String, String), _> = self
            .servers
            .iter()
            .map(|server| {
                (
                    (server.namespace().unwrap_or_default(), server.name_any()),
                    Arc::new(mount_server(&server.spec)),
                )
            })
            .collect();
        let mounts = self.mounts.iter().map(|mount| {
            let namespace = mount.namespace().unwrap_or_default();
            let server = servers
                .get(&(namespace.clone(), mount.spec.server.clone()))
                .cloned();
            let name = format!("{namespace}/{}", mount.name_any());
            let spec: &ToolMountSpec = &mount.spec;
            (spec.agent.clone(), Mount::new(name, spec, server))
        });
        Declared {
            rulebook: Rulebook::new(
                self.cluster_policies.iter().map(AsRef::as_ref),
                self.policies.iter().map(AsRef::as_ref),
            ),
            mounts: Mounts::new(mounts),
            agents: self
                .agents
                .iter()
                .map(|agent| (agent.name_any(), Agent::from(agent.as_ref())))
                .collect(),
            namespaces: self.namespaces.clone(),
        }
    }
}

async fn list<K: Kept>(client: &Client) -> Result<Vec<Arc<K>>, CallError> {
    let api: Api<K> = Api::all(client.clone());
    let listed = within(LIMIT, api.list(&ListParams::default())).await?;
    Ok(listed.items.into_iter().map(Arc::new).collect())
}

/// A server whose actions are taken to happen whatever their conditions say: those cannot be evaluated without the object, and access
/// counts as taken away only where that is certain.
fn mount_server(spec: &ToolServerSpec) -> ResolvedServer {
    let resolved = server::resolve_server(spec);
    let mut plain = spec.clone();
    plain.tools = resolved
        .status_tools()
        .into_iter()
        .map(|tool| {
            let mut actions = tool.actions;
            for action in &mut actions {
                action.when = None;
            }
            let own = spec.tools.iter().find(|own| own.name == tool.name);
            Tool {
                name: tool.name,
                class: tool.class,
                actions: Some(actions),
                enforce_at: own.and_then(|own| own.enforce_at),
            }
        })
        .collect();
    server::resolve_server(&plain)
}

impl Declared {
    /// Judges a request. `before` is what [`Self::conditional`] said at an earlier look.
    pub fn judge(&self, request: &ApprovalRequest, before: Option<&BTreeSet<String>>) -> Standing {
        let spec = &request.spec;
        let Some(agent) = self.agents.get(&spec.requester.agent) else {
            return void(format!("AgentIdentity {} is gone", spec.requester.agent));
        };
        let stored = self.stored(request, agent);
        let situation = stored.situation();
        match agent.surface {
            Surface::Policies => {}
            Surface::Unknown => {
                return Standing::CannotTell(Doubt {
                    words: format!(
                        "AgentIdentity {} has a surface that this version does not know",
                        agent.name
                    ),
                    refused: true,
                });
            }
            Surface::Mounts => match self.mounts.covers(&situation) {
                Coverage::Covered(_) => {}
                Coverage::NotCovered(words) => return void(words),
                Coverage::Unready(words) => {
                    return Standing::CannotTell(Doubt {
                        words,
                        refused: true,
                    });
                }
            },
        }
        let filed_at = request
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::MAX, |time| time.0);
        match self
            .rulebook
            .compare(&spec.policies, &situation, filed_at, before)
        {
            Boundary::Same => Standing::Same,
            Boundary::Crossed { reason, words } => Standing::Void { reason, words },
            Boundary::CannotTell(words) => Standing::CannotTell(words),
        }
    }

    /// The policies that select a request only by conditions.
    pub fn conditional(&self, request: &ApprovalRequest) -> BTreeSet<String> {
        match self.agents.get(&request.spec.requester.agent) {
            Some(agent) => self
                .rulebook
                .conditional(&self.stored(request, agent).situation()),
            None => BTreeSet::new(),
        }
    }

    fn stored<'a>(&'a self, request: &'a ApprovalRequest, agent: &'a Agent) -> Stored<'a> {
        let action = &request.spec.action;
        Stored {
            action,
            destructive: boundary::is_destructive(action.operation, &request.spec.facts),
            username: &request.spec.requester.username,
            agent_name: &agent.name,
            agent_labels: &agent.labels,
            namespace_labels: boundary::reviewed_namespace(action)
                .and_then(|name| self.namespaces.get(name)),
        }
    }

    /// `owner.user` of an agent.
    pub fn owner(&self, agent: &str) -> Option<&str> {
        self.agents.get(agent)?.owner.user.as_deref()
    }
}

fn void(words: String) -> Standing {
    Standing::Void {
        reason: StaleReason::AccessRemoved,
        words,
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests"
    )]

    use serde_json::{Value, json};

    use super::*;

    fn object<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: Value) -> Arc<K> {
        Arc::new(
            serde_json::from_value(json!({
                "apiVersion": "grantgate.dev/v1alpha1", "kind": kind,
                "metadata": {"name": name, "namespace": "agents", "uid": name, "generation": 1},
                "spec": spec,
            }))
            .unwrap(),
        )
    }

    fn objects(surface: &str, enable: Value) -> Objects {
        let actions = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "operations": ["UPDATE"], "when": "object.spec.replicas > 1"}]);
        Objects {
            agents: vec![object(
                "AgentIdentity",
                "ops-bot",
                json!({"owner": {"user": "ana@example.com"}, "surface": surface, "subjects": [{"user": "bot"}]}),
            )],
            servers: vec![object(
                "ToolServer",
                "s",
                json!({"identity": {"callerToken": {}}, "tools": [{"name": "scale", "class": "Write", "actions": actions}]}),
            )],
            mounts: vec![object(
                "ToolMount",
                "m",
                json!({"agent": "ops-bot", "server": "s", "enable": enable}),
            )],
            ..Objects::default()
        }
    }

    fn request() -> ApprovalRequest {
        serde_json::from_value(json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ApprovalRequest", "metadata": {"name": "ar-a", "uid": "u1"},
            "spec": {
                "requester": {"username": "bot", "agent": "ops-bot"},
                "action": {"operation": "UPDATE", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "web", "name": "api", "options": "{}"},
                "actionKey": "k", "changeDigest": "c", "stateDigest": "s", "digest": "d", "change": "{}", "state": "{}",
                "binding": {"change": "Exact", "state": "TouchedFields"}, "policySetHash": "p", "validity": {"uses": 1},
                "denialCooldownSeconds": 60, "deadline": "2026-01-01T10:00:00Z",
            },
        }))
        .unwrap()
    }

    fn word(standing: Standing) -> &'static str {
        match standing {
            Standing::Same => "Same",
            Standing::CannotTell(_) => "CannotTell",
            Standing::Void { reason, .. } => reason.as_str(),
        }
    }

    #[test]
    fn access_is_lost_with_the_tool_the_mount_or_the_agent() {
        let judge = |objects: Objects| word(objects.compile().judge(&request(), None));
        assert_eq!(
            judge(objects("Mounts", json!(["@all"]))),
            "Same",
            "a condition cannot be told and is taken to hold"
        );
        assert_eq!(judge(objects("Mounts", json!([]))), "AccessRemoved");
        let mut without = objects("Mounts", json!(["@all"]));
        without.mounts.clear();
        assert_eq!(judge(without), "AccessRemoved");
        let mut without = objects("Policies", json!([]));
        without.mounts.clear();
        assert_eq!(judge(without), "Same", "no list bounds this agent");
        let mut without = objects("Mounts", json!(["@all"]));
        without.agents.clear();
        assert_eq!(judge(without), "AccessRemoved");
        assert_eq!(judge(objects("Sideways", json!(["@all"]))), "CannotTell");
        let mut without = objects("Mounts", json!(["@all"]));
        without.servers.clear();
        assert_eq!(
            judge(without),
            "CannotTell",
            "a server that is not known here"
        );
    }
}

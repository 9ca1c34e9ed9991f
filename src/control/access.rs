//! What stored requests and grants are judged by besides votes and time: policies, mounts, agents and namespaces, without the object
//! that was reviewed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};

use crate::{
    api::{
        AgentIdentity, ApprovalPolicy, ApprovalRequest, ClusterApprovalPolicy, Surface, ToolMount,
        ToolMountSpec, ToolServer, ToolServerSpec, tool_server::Tool,
    },
    cluster::client::{CallError, within},
    control::store::{self, Kept, Unread},
    decide::{
        boundary::{self, Boundary, Doubt, Rulebook, Stored},
        live::StaleReason,
        mount::{Coverage, Mount, Mounts},
        policy::PolicyName,
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
    unreadable_agents: BTreeMap<String, String>,
    unreadable_mounts: Vec<Unread>,
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
    /// What is stored and cannot be read.
    pub unreadable: Unreadable,
}

/// What is stored and cannot be read: a doubt on whatever it may select, and on nothing else. Of servers nothing need be known: mounts
/// of an absent one are a doubt already.
#[derive(Clone, Debug, Default)]
pub struct Unreadable {
    /// Cluster policies.
    pub cluster_policies: Vec<Unread>,
    /// Namespaced policies.
    pub policies: Vec<Unread>,
    /// Mounts.
    pub mounts: Vec<Unread>,
    /// Agents.
    pub agents: Vec<Unread>,
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
        let namespaces = within(LIMIT, namespaces.list_metadata(&ListParams::default())).await?;
        let mut objects = Self {
            namespaces: namespaces
                .items
                .into_iter()
                .map(|namespace| (namespace.name_any(), namespace.labels().clone()))
                .collect(),
            ..Self::default()
        };
        let unreadable = &mut objects.unreadable;
        (objects.cluster_policies, unreadable.cluster_policies) = list(client).await?;
        (objects.policies, unreadable.policies) = list(client).await?;
        (objects.mounts, unreadable.mounts) = list(client).await?;
        (objects.agents, unreadable.agents) = list(client).await?;
        (objects.servers, _) = list(client).await?;
        Ok(objects)
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
        let cluster = self.unreadable.cluster_policies.iter();
        let cluster = cluster.map(|one| (PolicyName::cluster(&one.name), one.why.as_str()));
        let namespaced = self.unreadable.policies.iter();
        let namespaced = namespaced.map(|one| {
            let name = PolicyName::namespaced(&one.namespace, &one.name);
            (name, one.why.as_str())
        });
        let unreadable: Vec<(PolicyName, &str)> = cluster.chain(namespaced).collect();
        Declared {
            rulebook: Rulebook::new(
                self.cluster_policies.iter().map(AsRef::as_ref),
                self.policies.iter().map(AsRef::as_ref),
            )
            .with_unreadable(unreadable.iter().map(|(name, why)| (name, *why))),
            mounts: Mounts::new(mounts),
            agents: self
                .agents
                .iter()
                .map(|agent| (agent.name_any(), Agent::from(agent.as_ref())))
                .collect(),
            namespaces: self.namespaces.clone(),
            unreadable_agents: self
                .unreadable
                .agents
                .iter()
                .map(|one| (one.name.clone(), one.why.clone()))
                .collect(),
            unreadable_mounts: self.unreadable.mounts.clone(),
        }
    }
}

/// Every object of a kind, and those that cannot be read: one of these must not hide the others.
async fn list<K: Kept>(client: &Client) -> Result<(Vec<Arc<K>>, Vec<Unread>), CallError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let listed = within(LIMIT, api.list(&ListParams::default())).await?;
    let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
    for object in listed.items {
        match store::read::<K>(object) {
            Ok(object) => readable.push(Arc::new(object)),
            Err(unread) => unreadable.push(unread),
        }
    }
    Ok((readable, unreadable))
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
            if let Some(why) = self.unreadable_agents.get(&spec.requester.agent) {
                return refused(format!(
                    "AgentIdentity {} cannot be read: {why}",
                    spec.requester.agent
                ));
            }
            return void(format!("AgentIdentity {} is gone", spec.requester.agent));
        };
        let stored = self.stored(request, agent);
        let situation = stored.situation();
        match agent.surface {
            Surface::Policies => {}
            Surface::Unknown => {
                return refused(format!(
                    "AgentIdentity {} has a surface that this version does not know",
                    agent.name
                ));
            }
            Surface::Mounts => match self.mounts.covers(&situation) {
                Coverage::Covered(_) => {}
                Coverage::NotCovered(words) => {
                    return match self.unreadable_mount_of(&agent.name) {
                        Some(mount) => refused(format!(
                            "ToolMount {}/{} cannot be read: {}",
                            mount.namespace, mount.name, mount.why
                        )),
                        None => void(words),
                    };
                }
                Coverage::Unready(words) => return refused(words),
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

    /// A mount that may be this agent's and cannot be read.
    fn unreadable_mount_of(&self, agent: &str) -> Option<&Unread> {
        self.unreadable_mounts.iter().find(|mount| {
            let named = mount.data.pointer("/spec/agent");
            let named = named.and_then(serde_json::Value::as_str);
            named.is_none_or(|named| named == agent)
        })
    }

    /// `owner.user` of an agent.
    pub fn owner(&self, agent: &str) -> Option<&str> {
        self.agents.get(agent)?.owner.user.as_deref()
    }
}

/// It cannot be told, and as long as that is so the webhook lets nothing through either.
fn refused(words: String) -> Standing {
    Standing::CannotTell(Doubt {
        words,
        refused: true,
    })
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

    fn unread(namespace: &str, name: &str, data: Value) -> Unread {
        Unread {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            data,
            why: "no such field".to_owned(),
        }
    }

    #[test]
    fn what_cannot_be_read_is_a_doubt_on_what_it_may_select_and_on_nothing_else() {
        let judge = |objects: Objects| word(objects.compile().judge(&request(), None));
        let with = |change: fn(&mut Objects)| {
            let mut all = objects("Mounts", json!(["@all"]));
            change(&mut all);
            judge(all)
        };
        let mut one = objects("Mounts", json!(["@all"]));
        let everywhere = unread("", "broken", json!({}));
        one.unreadable.cluster_policies.push(everywhere);
        assert_eq!(judge(one), "CannotTell");
        let elsewhere: fn(&mut Objects) = |all| {
            let policy = unread("other", "broken", json!({}));
            all.unreadable.policies.push(policy);
            all.unreadable
                .agents
                .push(unread("", "other-bot", json!({})));
        };
        assert_eq!(with(elsewhere), "Same");
        assert_eq!(
            with(|all| {
                all.unreadable
                    .policies
                    .push(unread("other", "broken", json!({})));
                all.mounts.clear();
            }),
            "AccessRemoved",
            "what is void is voided all the same"
        );
        assert_eq!(
            with(|all| {
                all.agents.clear();
                all.unreadable.agents.push(unread("", "ops-bot", json!({})));
            }),
            "CannotTell"
        );
        let mount: fn(&mut Objects) = |all| {
            all.mounts.clear();
            let data = json!({"spec": {"agent": "ops-bot", "enable": 7}});
            all.unreadable.mounts.push(unread("agents", "m", data));
        };
        assert_eq!(with(mount), "CannotTell");
        let other: fn(&mut Objects) = |all| {
            all.mounts.clear();
            let data = json!({"spec": {"agent": "other-bot", "enable": 7}});
            all.unreadable.mounts.push(unread("agents", "m", data));
        };
        assert_eq!(with(other), "AccessRemoved");
    }
}

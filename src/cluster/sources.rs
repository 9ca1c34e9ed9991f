//! The objects that a `World` is compiled from, and the compiling. An object that cannot be read is kept as unreadable: it never
//! loosens anything.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Resource, ResourceExt, api::DynamicObject};

use crate::{
    api::{
        AgentIdentity, ApprovalPolicy, ApprovalPolicySpec, ClusterApprovalPolicy,
        ClusterApprovalPolicySpec, PolicyBody, ServiceAccountRef, ToolMount, ToolServer,
        approval_policy::{Effect, KubernetesTarget, Scope, Target},
    },
    cluster::{
        index::{Key, key},
        watch::Change,
    },
    decide::{
        mount::{Mount, Mounts},
        policy::{Policy, Problem},
        redact::Redactor,
        resolve::Policies,
        resources::{Resources, Versions},
        server::{self, ResolvedServer},
        subject::{Agent, Agents},
        world::{Namespace, World},
    },
    manifests,
};

/// Objects as watched, and the world last made of them.
pub struct Sources {
    agents: Kept<AgentIdentity>,
    servers: Kept<ToolServer>,
    mounts: Kept<ToolMount>,
    policies: Kept<ApprovalPolicy>,
    cluster_policies: Kept<ClusterApprovalPolicy>,
    namespaces: BTreeMap<String, Namespace>,
    definitions: BTreeMap<(String, String), Versions>,
    built_in: Resources,
    world: World,
}

/// The objects of one kind: readable ones, and for the others why not.
struct Kept<K> {
    readable: BTreeMap<Key, K>,
    unreadable: BTreeMap<Key, String>,
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Self {
            readable: BTreeMap::new(),
            unreadable: BTreeMap::new(),
        }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug>
    Kept<K>
{
    fn take(&mut self, change: Change) {
        match change {
            Change::Reset(objects) => {
                *self = Self::default();
                objects.into_iter().for_each(|object| self.put(object));
            }
            Change::Applied(object) => self.put(*object),
            Change::Deleted(object) => {
                let key = key(&*object);
                self.readable.remove(&key);
                self.unreadable.remove(&key);
            }
        }
    }

    fn put(&mut self, mut object: DynamicObject) {
        let key = key(&object);
        object.managed_fields_mut().clear();
        match object.try_parse::<K>() {
            Ok(object) => {
                self.unreadable.remove(&key);
                self.readable.insert(key, object);
            }
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), namespace = key.0, name = key.1, %error, "cannot be read");
                self.readable.remove(&key);
                self.unreadable.insert(key, error.to_string());
            }
        }
    }
}

impl Sources {
    /// Nothing watched yet.
    pub fn new(system_namespace: &str, redactor: Redactor) -> Self {
        let canary = ServiceAccountRef {
            namespace: system_namespace.to_owned(),
            name: manifests::CANARY.to_owned(),
        };
        Self {
            agents: Kept::default(),
            servers: Kept::default(),
            mounts: Kept::default(),
            policies: Kept::default(),
            cluster_policies: Kept::default(),
            namespaces: BTreeMap::new(),
            definitions: BTreeMap::new(),
            built_in: Resources::default(),
            world: World {
                system_namespace: system_namespace.into(),
                canary: canary.username().into(),
                agents: Arc::default(),
                policies: Arc::default(),
                mounts: Arc::default(),
                namespaces: Arc::default(),
                resources: Arc::default(),
                redactor: Arc::new(redactor),
            },
        }
    }

    /// The world as compiled last.
    pub fn world(&self) -> World {
        self.world.clone()
    }

    /// Takes another fingerprint key.
    pub fn set_redactor(&mut self, redactor: Redactor) {
        self.world.redactor = Arc::new(redactor);
    }

    /// Takes a change of identities. An unreadable one keeps its subjects unknown, and unknown subjects are refused.
    pub fn on_agents(&mut self, change: Change) -> bool {
        self.agents.take(change);
        self.world.agents = Arc::new(Agents::of(self.agents.readable.values().map(Agent::from)));
        true
    }

    /// Takes a change of servers.
    pub fn on_servers(&mut self, change: Change) -> bool {
        self.servers.take(change);
        self.compile_mounts()
    }

    /// Takes a change of mounts.
    pub fn on_mounts(&mut self, change: Change) -> bool {
        self.mounts.take(change);
        self.compile_mounts()
    }

    fn compile_mounts(&mut self) -> bool {
        let servers: BTreeMap<&Key, Arc<ResolvedServer>> = self
            .servers
            .readable
            .iter()
            .map(|(key, server)| (key, Arc::new(server::resolve_server(&server.spec))))
            .collect();
        let mounts = self
            .mounts
            .readable
            .iter()
            .map(|((namespace, name), mount)| {
                let server = servers
                    .get(&(namespace.clone(), mount.spec.server.clone()))
                    .cloned();
                (
                    mount.spec.agent.clone(),
                    Mount::new(format!("{namespace}/{name}"), &mount.spec, server),
                )
            });
        self.world.mounts = Arc::new(Mounts::new(mounts));
        true
    }

    /// Takes a change of namespaced policies.
    pub fn on_policies(&mut self, change: Change) -> bool {
        self.policies.take(change);
        self.compile_policies()
    }

    /// Takes a change of cluster policies.
    pub fn on_cluster_policies(&mut self, change: Change) -> bool {
        self.cluster_policies.take(change);
        self.compile_policies()
    }

    fn compile_policies(&mut self) -> bool {
        let readable = (self.policies.readable.values().map(Policy::compile)).chain(
            self.cluster_policies
                .readable
                .values()
                .map(Policy::compile_cluster),
        );
        let unreadable = (self
            .policies
            .unreadable
            .iter()
            .map(|(key, why)| unreadable_policy(Some(&key.0), &key.1, why)))
        .chain(
            self.cluster_policies
                .unreadable
                .iter()
                .map(|(key, why)| unreadable_policy(None, &key.1, why)),
        );
        self.world.policies = Arc::new(Policies::new(readable.chain(unreadable)));
        true
    }

    /// Takes a change of namespaces.
    pub fn on_namespaces(&mut self, change: Change) -> bool {
        let before = self.namespaces.clone();
        let read = |object: &DynamicObject| Namespace {
            labels: object.labels().clone(),
            active: object.metadata.deletion_timestamp.is_none(),
        };
        match change {
            Change::Reset(objects) => {
                self.namespaces = objects
                    .iter()
                    .map(|object| (object.name_any(), read(object)))
                    .collect();
            }
            Change::Applied(object) => {
                self.namespaces.insert(object.name_any(), read(&object));
            }
            Change::Deleted(object) => {
                self.namespaces.remove(&object.name_any());
            }
        }
        if before != self.namespaces {
            self.world.namespaces = Arc::new(self.namespaces.clone());
        }
        true
    }

    /// Takes a change of custom resource definitions.
    pub fn on_definitions(&mut self, change: Change) -> bool {
        match change {
            Change::Reset(objects) => {
                self.definitions.clear();
                objects
                    .into_iter()
                    .for_each(|object| self.put_definition(object));
            }
            Change::Applied(object) => self.put_definition(*object),
            Change::Deleted(object) => {
                self.forget_definition(&object.name_any());
            }
        }
        self.compile_resources()
    }

    fn forget_definition(&mut self, name: &str) {
        if let Some((resource, group)) = name.split_once('.') {
            self.definitions
                .remove(&(group.to_owned(), resource.to_owned()));
        }
    }

    fn put_definition(&mut self, object: DynamicObject) {
        let name = object.name_any();
        let Ok(definition) = object.try_parse::<CustomResourceDefinition>() else {
            tracing::warn!(name, "a CustomResourceDefinition cannot be read");
            // What it said before may no longer hold: unknown is unready.
            self.forget_definition(&name);
            return;
        };
        let storage = definition
            .spec
            .versions
            .iter()
            .find(|version| version.storage)
            .map(|version| version.name.clone());
        let key = (
            definition.spec.group.clone(),
            definition.spec.names.plural.clone(),
        );
        match storage {
            Some(storage) => {
                let stored = definition
                    .status
                    .and_then(|status| status.stored_versions)
                    .unwrap_or_default();
                self.definitions
                    .insert(key, Versions::Custom { storage, stored });
            }
            None => {
                self.definitions.remove(&key);
            }
        }
    }

    /// Takes what the API server serves.
    pub fn on_discovery(&mut self, built_in: Resources) -> bool {
        self.built_in = built_in;
        self.compile_resources()
    }

    fn compile_resources(&mut self) -> bool {
        let mut resources = self.built_in.clone();
        for ((group, resource), versions) in &self.definitions {
            resources.insert(group, resource, versions.clone());
        }
        self.world.resources = Arc::new(resources);
        true
    }
}

/// A policy of which nothing can be read matches everything in its reach, and what it matches is unready.
fn unreadable_policy(namespace: Option<&str>, name: &str, why: &str) -> Policy {
    let body = PolicyBody {
        effect: Effect::Unknown,
        targets: vec![Target {
            kubernetes: Some(KubernetesTarget {
                scope: Some(Scope::Unknown),
                ..KubernetesTarget::default()
            }),
        }],
        agents: None,
        approvers: None,
        validity: None,
        on_silence: Vec::new(),
        denial_cooldown_seconds: None,
        binding: None,
    };
    let mut policy = match namespace {
        Some(namespace) => {
            let mut policy = ApprovalPolicy::new(name, ApprovalPolicySpec { body });
            policy.metadata.namespace = Some(namespace.to_owned());
            Policy::compile(&policy)
        }
        None => Policy::compile_cluster(&ClusterApprovalPolicy::new(
            name,
            ClusterApprovalPolicySpec {
                body,
                namespace_may: Vec::new(),
            },
        )),
    };
    policy
        .problems
        .insert(0, Problem::new("spec", format!("cannot be read: {why}")));
    policy
}

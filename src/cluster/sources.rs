//! The objects that a `World` is compiled from, and the compiling. An object that cannot be read is kept as unreadable: it never
//! loosens anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Resource, ResourceExt, api::DynamicObject};

use crate::{
    api::{AgentIdentity, ServiceAccountRef, ToolMount, ToolMountSpec, ToolServer},
    cluster::{
        index::{Key, key},
        watch::Change,
    },
    decide::{
        mount::{Mount, Mounts},
        policy::{Policy, PolicyName},
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
    agents: Kept<Agent>,
    servers: Kept<Arc<ResolvedServer>>,
    mounts: Kept<ToolMountSpec>,
    policies: Kept<Arc<Policy>>,
    cluster_policies: Kept<Arc<Policy>>,
    namespaces: BTreeMap<String, Namespace>,
    definitions: BTreeMap<(String, String), Versions>,
    built_in: Resources,
    world: World,
}

/// The objects of one kind, each with what was compiled of it: compiling is dear, and done for what changed alone.
struct Kept<C> {
    compiled: BTreeMap<Key, (Mark, C)>,
}

/// What tells one state of an object from another, as far as it counts here: writes of status move none of it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Mark {
    uid: Option<String>,
    generation: Option<i64>,
    labels: BTreeMap<String, String>,
}

impl Mark {
    /// `None`: the server keeps no generation of it, so every state is another.
    fn of(object: &DynamicObject) -> Option<Self> {
        Some(Self {
            uid: object.metadata.uid.clone(),
            generation: Some(object.metadata.generation?),
            labels: object.labels().clone(),
        })
    }
}

impl<C> Default for Kept<C> {
    fn default() -> Self {
        Self {
            compiled: BTreeMap::new(),
        }
    }
}

impl<C> Kept<C> {
    /// Takes a change; `compile` makes what is kept of an object, readable or not. Says whether anything is another now.
    fn take<K>(
        &mut self,
        change: Change,
        compile: impl Fn(&Key, Result<K, String>) -> Option<C>,
    ) -> bool
    where
        K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        match change {
            Change::Reset(objects) => {
                let listed: BTreeSet<Key> = objects.iter().map(key).collect();
                let before = self.compiled.len();
                self.compiled.retain(|key, _| listed.contains(key));
                let gone = before != self.compiled.len();
                objects
                    .into_iter()
                    .fold(gone, |any, object| self.put(object, &compile) || any)
            }
            Change::Applied(object) => self.put(*object, &compile),
            Change::Deleted(object) => self.compiled.remove(&key(&*object)).is_some(),
        }
    }

    fn put<K>(
        &mut self,
        mut object: DynamicObject,
        compile: &impl Fn(&Key, Result<K, String>) -> Option<C>,
    ) -> bool
    where
        K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let key = key(&object);
        let mark = Mark::of(&object);
        if mark.is_some() && self.compiled.get(&key).map(|(mark, _)| mark) == mark.as_ref() {
            return false;
        }
        object.managed_fields_mut().clear();
        let read = object.try_parse::<K>().map_err(|error| {
            tracing::warn!(kind = %K::kind(&()), namespace = key.0, name = key.1, %error, "cannot be read");
            error.to_string()
        });
        let mark = mark.unwrap_or(Mark {
            uid: None,
            generation: None,
            labels: BTreeMap::new(),
        });
        match compile(&key, read) {
            Some(compiled) => {
                self.compiled.insert(key, (mark, compiled));
            }
            None => {
                self.compiled.remove(&key);
            }
        }
        true
    }

    fn values(&self) -> impl Iterator<Item = &C> {
        self.compiled.values().map(|(_, compiled)| compiled)
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
        let changed = self.agents.take(change, |_, read| {
            read.ok()
                .as_ref()
                .map(|identity: &AgentIdentity| Agent::from(identity))
        });
        if changed {
            self.world.agents = Arc::new(Agents::of(self.agents.values().cloned()));
        }
        changed
    }

    /// Takes a change of servers.
    pub fn on_servers(&mut self, change: Change) -> bool {
        let changed = self.servers.take(change, |_, read: Result<ToolServer, _>| {
            let server = read.ok()?;
            Some(Arc::new(server::resolve_server(&server.spec)))
        });
        changed && self.compile_mounts()
    }

    /// Takes a change of mounts.
    pub fn on_mounts(&mut self, change: Change) -> bool {
        let changed = self.mounts.take(change, |_, read: Result<ToolMount, _>| {
            Some(read.ok()?.spec)
        });
        changed && self.compile_mounts()
    }

    fn compile_mounts(&mut self) -> bool {
        let mounts = self
            .mounts
            .compiled
            .iter()
            .map(|((namespace, name), (_, spec))| {
                let server = self
                    .servers
                    .compiled
                    .get(&(namespace.clone(), spec.server.clone()))
                    .map(|(_, server)| server.clone());
                (
                    spec.agent.clone(),
                    Mount::new(format!("{namespace}/{name}"), spec, server),
                )
            });
        self.world.mounts = Arc::new(Mounts::new(mounts));
        true
    }

    /// Takes a change of namespaced policies.
    pub fn on_policies(&mut self, change: Change) -> bool {
        let changed = self.policies.take(change, |key, read| {
            Some(Arc::new(match read {
                Ok(policy) => Policy::compile(&policy),
                Err(why) => Policy::unreadable(PolicyName::namespaced(&key.0, &key.1), &why),
            }))
        });
        changed && self.compile_policies()
    }

    /// Takes a change of cluster policies.
    pub fn on_cluster_policies(&mut self, change: Change) -> bool {
        let changed = self.cluster_policies.take(change, |key, read| {
            Some(Arc::new(match read {
                Ok(policy) => Policy::compile_cluster(&policy),
                Err(why) => Policy::unreadable(PolicyName::cluster(&key.1), &why),
            }))
        });
        changed && self.compile_policies()
    }

    fn compile_policies(&mut self) -> bool {
        let all = self.policies.values().chain(self.cluster_policies.values());
        self.world.policies = Arc::new(Policies::shared(all.cloned()));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, generation: i64, spec: Value, status: Value) -> Change {
        let object = json!({
            "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy",
            "metadata": {"name": name, "uid": name, "generation": generation}, "spec": spec, "status": status,
        });
        Change::Applied(Box::new(serde_json::from_value(object).unwrap()))
    }

    fn asks() -> Value {
        json!({
            "effect": "RequireApproval", "targets": [{"kubernetes": {"scope": "All"}}],
            "approvers": {"required": [{"count": 1, "from": []}]},
        })
    }

    #[test]
    fn a_write_of_status_compiles_nothing_and_a_new_generation_that_policy_alone() {
        let mut sources = Sources::new("grantgate-system", Redactor::unset());
        assert!(sources.on_cluster_policies(policy("a", 1, asks(), json!({}))));
        assert!(sources.on_cluster_policies(policy("b", 1, asks(), json!({}))));
        let before = sources.world();
        let status = json!({"conditions": []});
        assert!(!sources.on_cluster_policies(policy("a", 1, asks(), status)));
        assert!(Arc::ptr_eq(&before.policies, &sources.world().policies));

        assert!(sources.on_cluster_policies(policy("a", 2, asks(), json!({}))));
        let after = sources.world();
        let get = |world: &World, name: &str| -> *const Policy {
            world.policies.get(&PolicyName::cluster(name)).unwrap()
        };
        assert_eq!(get(&before, "b"), get(&after, "b"));
        assert_ne!(get(&before, "a"), get(&after, "a"));
    }

    #[test]
    fn a_policy_that_cannot_be_read_stays_as_one_that_matches_everything() {
        let mut sources = Sources::new("grantgate-system", Redactor::unset());
        assert!(sources.on_cluster_policies(policy("a", 1, json!({"targets": 7}), json!({}))));
        let world = sources.world();
        let known = world.policies.get(&PolicyName::cluster("a")).unwrap();
        assert!(known.problems[0].message.starts_with("cannot be read"));
        assert!(!sources.on_cluster_policies(policy("a", 1, json!({"targets": 7}), json!({}))));
    }
}

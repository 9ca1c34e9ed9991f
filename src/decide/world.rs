//! Everything that a decision looks at besides the review: compiled, immutable, shared.

use std::{collections::BTreeMap, sync::Arc};

use crate::decide::{
    mount::Mounts, redact::Redactor, resolve::Policies, resources::Resources, subject::Agents,
};

/// One consistent view of what is declared. Cheap to clone: parts are replaced whole.
#[derive(Clone)]
pub struct World {
    /// The installation's own namespace.
    pub system_namespace: Arc<str>,
    /// Username of the account whose calls prove that a gate entry holds.
    pub canary: Arc<str>,
    /// Declared agents.
    pub agents: Arc<Agents>,
    /// Compiled policies.
    pub policies: Arc<Policies>,
    /// Compiled mounts.
    pub mounts: Arc<Mounts>,
    /// Namespaces by name.
    pub namespaces: Arc<BTreeMap<String, Namespace>>,
    /// Which version of each resource is the stored one.
    pub resources: Arc<Resources>,
    /// How Secret values are fingerprinted.
    pub redactor: Arc<Redactor>,
}

/// What is known of a namespace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether new objects can be created in it.
    pub active: bool,
}

impl World {
    /// Where the records about a target live: in its namespace while that is Active, otherwise in the installation's own.
    pub fn home(&self, target_namespace: Option<&str>) -> String {
        match target_namespace {
            Some(name)
                if self
                    .namespaces
                    .get(name)
                    .is_some_and(|namespace| namespace.active) =>
            {
                name.to_owned()
            }
            _ => self.system_namespace.to_string(),
        }
    }
}

//! In which version a resource may be written.
//!
//! A write through another version than the stored one is converted on its way in and out, and conversion can drop what the review
//! does not show (V3, V4, W5, W6). So from gated identities a custom resource is accepted in its storage version only, and a
//! built-in kind in the version that discovery prefers among those that serve it.

use std::collections::HashMap;

/// What the cluster serves, by group and plural resource name.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    known: HashMap<(String, String), Versions>,
}

/// Groups that the API server itself serves. Others come from CustomResourceDefinitions, whose storage version alone counts, or
/// from aggregated servers, whose writes are not seen at admission.
const BUILT_IN: [&str; 24] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Whether the API server itself serves a group.
pub fn is_built_in(group: &str) -> bool {
    BUILT_IN.contains(&group)
}

/// The versions of one resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Versions {
    /// A built-in kind: the version that discovery prefers among those serving it.
    BuiltIn {
        /// e.g. `v2` of `autoscaling`.
        preferred: String,
    },
    /// A custom resource.
    Custom {
        /// The version with `storage: true`.
        storage: String,
        /// `status.storedVersions`.
        stored: Vec<String>,
    },
}

/// What a requested version means.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum VersionVerdict {
    /// What the review shows is what is stored.
    Faithful,
    /// The version is accepted, but objects may still be stored in others: a write that seems to change nothing can change them.
    MixedStorage {
        /// `status.storedVersions`.
        stored: Vec<String>,
    },
    /// Another version must be used.
    Use(String),
    /// The resource is not known here yet.
    Unknown,
}

impl Resources {
    /// Records one resource; a custom resource wins over what discovery says of it.
    pub fn insert(&mut self, group: &str, resource: &str, versions: Versions) {
        let key = (group.to_owned(), resource.to_owned());
        if matches!(versions, Versions::BuiltIn { .. }) && self.known.contains_key(&key) {
            return;
        }
        self.known.insert(key, versions);
    }

    /// How many resources are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether nothing is known yet.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a resource is known.
    pub fn knows(&self, group: &str, resource: &str) -> bool {
        self.known
            .contains_key(&(group.to_owned(), resource.to_owned()))
    }

    /// What the requested version of a resource means.
    pub fn judge(&self, group: &str, resource: &str, version: &str) -> VersionVerdict {
        match self.known.get(&(group.to_owned(), resource.to_owned())) {
            None => VersionVerdict::Unknown,
            Some(Versions::BuiltIn { preferred }) if preferred == version => {
                VersionVerdict::Faithful
            }
            Some(Versions::BuiltIn { preferred }) => VersionVerdict::Use(preferred.clone()),
            Some(Versions::Custom { storage, .. }) if storage != version => {
                VersionVerdict::Use(storage.clone())
            }
            Some(Versions::Custom { storage, stored }) => {
                if stored.len() == 1 && stored.first() == Some(storage) {
                    VersionVerdict::Faithful
                } else {
                    VersionVerdict::MixedStorage {
                        stored: stored.clone(),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stored_version_is_faithful() {
        let mut resources = Resources::default();
        resources.insert(
            "autoscaling",
            "horizontalpodautoscalers",
            Versions::BuiltIn {
                preferred: "v2".into(),
            },
        );
        resources.insert(
            "example.com",
            "widgets",
            Versions::Custom {
                storage: "v1".into(),
                stored: vec!["v1alpha1".into(), "v1".into()],
            },
        );
        let judge = |group, resource, version| resources.judge(group, resource, version);
        assert_eq!(
            judge("autoscaling", "horizontalpodautoscalers", "v1"),
            VersionVerdict::Use("v2".into())
        );
        assert_eq!(
            judge("autoscaling", "horizontalpodautoscalers", "v2"),
            VersionVerdict::Faithful
        );
        assert_eq!(
            judge("example.com", "widgets", "v1alpha1"),
            VersionVerdict::Use("v1".into())
        );
        assert!(matches!(
            judge("example.com", "widgets", "v1"),
            VersionVerdict::MixedStorage { .. }
        ));
        assert_eq!(
            judge("example.com", "gadgets", "v1"),
            VersionVerdict::Unknown
        );
    }
}

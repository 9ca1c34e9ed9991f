//! The target: an object as small as the rules allow, what other people write to it, and how a review or a watch shows it.

use serde_json::{Value, json};

/// Where the approved change is made. It decides whether the write raises the generation and whether the kind has one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Place {
    /// An image in a Deployment's list of containers: raises the generation.
    Image,
    /// A Deployment's `restartedAt`, left free by the policy: raises the generation.
    Restart,
    /// A label of a Deployment: metadata only.
    Label,
    /// Replicas in a Deployment's status.
    Status,
    /// Replicas through `deployments/scale`, which shows no generation.
    Scale,
    /// Data of a ConfigMap: a kind without generation.
    Data,
    /// Data of a ConfigMap that was created with `metadata.generation: 5`, which never moves (V8).
    Numbered,
}

/// One revision of the target. Values are numbers; [`Place::json`] says what they stand for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Object {
    /// Number of its uid.
    pub uid: u8,
    /// Generation, where it has one.
    pub generation: Option<u8>,
    /// The value at the place of the change: 0 before.
    pub value: u8,
    /// A value elsewhere in the spec.
    pub elsewhere: u8,
    /// An annotation.
    pub note: u8,
    /// A value in the status.
    pub seen: u8,
    /// Whether the list around the place is in another order.
    pub swapped: bool,
    /// Seconds of grace, while it is being deleted.
    pub grace: Option<u8>,
    /// Whether its dependents are orphaned by its deletion.
    pub orphans: bool,
}

/// What somebody else does to the target.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Foreign {
    /// Sets the changed value back.
    Revert,
    /// Sets it back and turns the list around it over.
    RevertAndSwap,
    /// Writes another field of the spec.
    Elsewhere,
    /// Writes an annotation.
    Note,
    /// Writes the status.
    Seen,
    /// Deletes it and creates it again as it was at first.
    Replace,
    /// Deletes it.
    Remove,
}

impl Place {
    /// The object before anything happened.
    pub fn first(self) -> Object {
        Object {
            uid: 1,
            generation: match self {
                Self::Data => None,
                Self::Numbered => Some(5),
                _ => Some(1),
            },
            value: 0,
            elsewhere: 0,
            note: 0,
            seen: 0,
            swapped: false,
            grace: None,
            orphans: false,
        }
    }

    /// Whether a write of the place raises the stored generation.
    fn raises(self) -> bool {
        matches!(self, Self::Image | Self::Restart | Self::Scale)
    }

    fn is_config(self) -> bool {
        matches!(self, Self::Data | Self::Numbered)
    }

    /// The object with another value at the place.
    pub fn set(self, object: Object, value: u8) -> Object {
        let changed = Object { value, ..object };
        if self.raises() && object.value != value {
            raised(changed)
        } else {
            changed
        }
    }

    /// The object after somebody else's write; `None`: nothing would change.
    pub fn foreign(self, object: Object, what: Foreign) -> Option<Object> {
        let spec = |object| {
            if self.is_config() {
                object
            } else {
                raised(object)
            }
        };
        Some(match what {
            Foreign::Revert if object.value != 0 => self.set(object, 0),
            Foreign::RevertAndSwap if object.value != 0 => Object {
                swapped: !object.swapped,
                ..self.set(object, 0)
            },
            Foreign::Elsewhere => spec(Object {
                elsewhere: object.elsewhere + 1,
                ..object
            }),
            Foreign::Note => Object {
                note: object.note + 1,
                ..object
            },
            Foreign::Seen => Object {
                seen: object.seen + 1,
                ..object
            },
            Foreign::Revert | Foreign::RevertAndSwap | Foreign::Replace | Foreign::Remove => {
                return None;
            }
        })
    }

    /// Group, resource, kind and subresource as in a review.
    pub fn names(
        self,
    ) -> (
        &'static str,
        &'static str,
        &'static str,
        Option<&'static str>,
    ) {
        match self {
            Self::Image | Self::Restart | Self::Label => {
                ("apps", "deployments", "Deployment", None)
            }
            Self::Status => ("apps", "deployments", "Deployment", Some("status")),
            Self::Scale => ("apps", "deployments", "Scale", Some("scale")),
            Self::Data | Self::Numbered => ("", "configmaps", "ConfigMap", None),
        }
    }

    /// The object as a review of the place shows it.
    pub fn shown(self, object: Object, revision: usize) -> Value {
        if self == Self::Scale {
            return json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": "api", "namespace": "web", "uid": uid(object), "resourceVersion": version(revision)},
                "spec": {"replicas": 3 + object.value}, "status": {"replicas": object.seen},
            });
        }
        self.json(object, revision)
    }

    /// The object as it is stored.
    pub fn json(self, object: Object, revision: usize) -> Value {
        let at = |place| if self == place { object.value } else { 0 };
        let mut metadata = json!({
            "name": "api", "namespace": "web", "uid": uid(object), "resourceVersion": version(revision),
            "labels": {"tier": format!("t{}", at(Self::Label))}, "annotations": {"note": object.note.to_string()},
        });
        if let Some(generation) = object.generation {
            metadata["generation"] = json!(generation);
        }
        if let Some(grace) = object.grace {
            metadata["deletionTimestamp"] = json!("2026-01-01T10:00:00Z");
            metadata["deletionGracePeriodSeconds"] = json!(grace);
        }
        if self.is_config() {
            return json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
                "data": {"key": object.value.to_string(), "other": object.elsewhere.to_string(), "seen": object.seen.to_string()},
            });
        }
        let mut containers = vec![
            json!({"name": "app", "image": format!("app:{}", at(Self::Image))}),
            json!({"name": "side", "image": "side:1"}),
        ];
        if object.swapped {
            containers.reverse();
        }
        let restarted = [
            "2026-01-01T09:00:00Z",
            "2026-01-01T10:00:01Z",
            "2026-01-01T10:00:02Z",
        ];
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"replicas": 3 + at(Self::Scale), "minReadySeconds": object.elsewhere, "template": {
                "metadata": {"annotations": {"restartedAt": restarted[usize::from(at(Self::Restart))]}},
                "spec": {"containers": containers},
            }},
            "status": {"replicas": 3 + at(Self::Status), "readyReplicas": object.seen},
        })
    }
}

fn raised(object: Object) -> Object {
    Object {
        generation: object.generation.map(|generation| generation + 1),
        ..object
    }
}

/// metadata.uid.
pub fn uid(object: Object) -> String {
    format!("t{}", object.uid)
}

/// metadata.resourceVersion of the so-manieth revision.
pub fn version(revision: usize) -> String {
    (100 + revision).to_string()
}

/// The revision with this metadata.resourceVersion.
pub fn revision(version: &str) -> usize {
    version.parse::<usize>().unwrap() - 100
}

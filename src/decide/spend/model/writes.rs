//! What agents send, and the proposal that the real assessment makes of it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::target::{Object, Place, uid};
use crate::{
    api::{AgentIdentity, ClusterApprovalPolicy, Operation},
    decide::{
        assess::{Assessment, assess},
        json,
        mount::Mounts,
        name,
        policy::Policy,
        proposal::Proposal,
        redact::Redactor,
        resolve::Policies,
        resources::{Resources, Versions},
        review::Review,
        subject::{Agent, Agents},
        world::{Namespace, World},
    },
};

/// One request of an agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Write {
    /// What it does.
    pub act: Act,
    /// How it differs from what was approved, where it does.
    pub stray: Option<Stray>,
    /// Whether the API server repeats it inside after a conflict: a patch, an apply, a PUT without resourceVersion, a DELETE.
    pub repeats: bool,
}

/// What a request does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// Sets the value.
    Set(u8),
    /// Deletes with so many seconds of grace.
    Delete {
        /// Seconds.
        grace: u8,
        /// Propagation `Orphan` instead of `Background`.
        orphan: bool,
    },
    /// Creates the object.
    Create,
    /// Runs a command in a pod.
    Exec,
}

/// A write that nobody approved, beside one that somebody did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stray {
    /// On behalf of another person.
    OnBehalf,
    /// From an account of the same name with another uid.
    Account,
    /// Through another version of the API.
    Version,
    /// Through another subresource.
    Subresource,
    /// Under another field manager.
    Manager,
}

impl Write {
    /// The write that sets the value, repeated inside by the API server.
    pub const SET: Self = Self::of(Act::Set(1));

    /// An approved write that the API server repeats.
    pub const fn of(act: Act) -> Self {
        Self {
            act,
            stray: None,
            repeats: true,
        }
    }

    /// The same, with a resourceVersion: a conflict ends it.
    pub const fn once(self) -> Self {
        Self {
            repeats: false,
            ..self
        }
    }

    /// The same, unlike what was approved.
    pub const fn stray(self, stray: Stray) -> Self {
        Self {
            stray: Some(stray),
            ..self
        }
    }
}

/// A review's target: the object with the number of its revision.
pub type Shown = Option<(Object, usize)>;

/// The body of the review.
pub fn review(
    place: Place,
    write: Write,
    shown: Shown,
    admission_uid: &str,
    made: Object,
) -> String {
    let (group, resource, kind, subresource) = place.names();
    let old = shown.map(|(object, revision)| place.shown(object, revision));
    let manager = if write.stray == Some(Stray::Manager) {
        "other"
    } else {
        "agent"
    };
    let mut options = json!({"fieldManager": manager});
    let (operation, object, old_object) = match write.act {
        Act::Set(value) => {
            let (object, revision) = shown.unwrap();
            let object = place.shown(place.set(object, value), revision);
            ("UPDATE", object, old.unwrap_or_default())
        }
        Act::Delete { grace, orphan } => {
            let propagation = if orphan { "Orphan" } else { "Background" };
            options = json!({"kind": "DeleteOptions", "gracePeriodSeconds": grace, "propagationPolicy": propagation});
            ("DELETE", Value::Null, old.unwrap_or_default())
        }
        Act::Create | Act::Exec => {
            let mut object = place.shown(made, 0);
            object["metadata"]
                .as_object_mut()
                .unwrap()
                .remove("resourceVersion");
            ("CREATE", object, Value::Null)
        }
    };
    let mut request = json!({
        "uid": admission_uid, "operation": operation, "name": "api", "namespace": "web",
        "kind": {"group": group, "version": "v1", "kind": kind}, "resource": {"group": group, "version": "v1", "resource": resource},
        "userInfo": {"username": "agent", "uid": if write.stray == Some(Stray::Account) { "u2" } else { "u1" }},
        "object": object, "oldObject": old_object, "options": options, "dryRun": false,
    });
    if let Some(subresource) = subresource {
        request["subResource"] = json!(subresource);
    }
    if write.stray == Some(Stray::OnBehalf) {
        request["userInfo"]["extra"] = json!({"grantgate.dev/on-behalf-of": ["mallory"]});
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
}

/// What the gate makes of a review.
pub fn proposal(world: &World, text: &str, write: Write) -> Proposal {
    let document = json::read(text).unwrap();
    let review = Review::of(&document).unwrap();
    let assessed = assess(world, &document, &review);
    let Assessment::Ask(proposal) = assessed.assessment else {
        panic!("{text} does not ask: {}", assessed.trace);
    };
    let mut proposal = *proposal;
    // The assessment refuses other versions in words; here it is to be seen what would happen if it did not.
    match write.stray {
        Some(Stray::Version) => proposal.action.version = "v1beta1".to_owned(),
        Some(Stray::Subresource) => proposal.action.subresource = Some("other".to_owned()),
        _ => {}
    }
    if write.act == Act::Exec {
        // No connection is modelled yet, so none is assessed: this one has another operation, and no uid that would tell it apart.
        proposal.action.operation = Operation::Connect;
        proposal.object_uid = "t1".to_owned();
        proposal
            .bound
            .content_digest
            .clone_from(&proposal.options.digest);
        proposal
            .bound
            .change_digest
            .clone_from(&proposal.options.digest);
    }
    proposal.action_key = name::action_key("agent", "ops-bot", &proposal.action);
    proposal
}

/// What the gate knows: one agent, and one policy that always asks.
pub fn known(place: Place) -> World {
    let identity: AgentIdentity = serde_json::from_value(json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "AgentIdentity", "metadata": {"name": "ops-bot", "uid": "a1"},
        "spec": {"owner": {"group": "team-platform"}, "surface": "Policies", "subjects": [{"user": "agent"}]},
    }))
    .unwrap();
    let volatile =
        json!([{"path": "/spec/template/metadata/annotations/restartedAt", "shape": "Timestamp"}]);
    let policy: ClusterApprovalPolicy = serde_json::from_value(json!({
        "apiVersion": "grantgate.dev/v1alpha1", "kind": "ClusterApprovalPolicy",
        "metadata": {"name": "grantgate-default", "uid": "p1", "generation": 1},
        "spec": {"effect": "RequireApproval", "targets": [{"kubernetes": {"scope": "All"}}],
            "approvers": {"required": [{"count": 1, "from": []}]},
            "binding": {"change": "Exact", "volatile": if place == Place::Restart { volatile } else { json!([]) }}},
    }))
    .unwrap();
    let mut resources = Resources::default();
    for (group, name) in [("", "configmaps"), ("", "pods"), ("apps", "deployments")] {
        resources.insert(
            group,
            name,
            Versions::BuiltIn {
                preferred: "v1".into(),
            },
        );
    }
    let namespace = Namespace {
        labels: BTreeMap::new(),
        active: true,
    };
    World {
        system_namespace: "grantgate-system".into(),
        canary: "system:serviceaccount:grantgate-system:grantgate-canary".into(),
        agents: Arc::new(Agents::of([Agent::from(&identity)])),
        policies: Arc::new(Policies::new([Policy::compile_cluster(&policy)])),
        mounts: Arc::new(Mounts::new([])),
        namespaces: Arc::new(BTreeMap::from([("web".to_owned(), namespace)])),
        resources: Arc::new(resources),
        redactor: Arc::new(Redactor::new("k1", &[7; 32])),
    }
}

/// What a watch sends of a revision; `None`: it was deleted, and this is what it had been.
pub fn event(
    place: Place,
    object: Option<Object>,
    before: Option<Object>,
    revision: usize,
) -> Value {
    match (object, before) {
        (Some(object), Some(before)) if uid(object) == uid(before) => {
            json!({"type": "MODIFIED", "object": place.json(object, revision)})
        }
        (Some(object), _) => json!({"type": "ADDED", "object": place.json(object, revision)}),
        (None, Some(before)) => json!({"type": "DELETED", "object": place.json(before, revision)}),
        (None, None) => json!({"type": "ERROR", "object": {"code": 500}}),
    }
}

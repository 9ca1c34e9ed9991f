//! AgentIdentity: every identity one agent acts under.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::ServiceAccountRef;

/// Every identity that one agent acts under, its owner, and whether mounts bound what it may do.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "grantgate.dev", version = "v1alpha1", kind = "AgentIdentity", plural = "agentidentities", shortname = "ggai", category = "grantgate", status = "AgentIdentityStatus")]
#[serde(rename_all = "camelCase")]
pub struct AgentIdentitySpec {
    /// Who answers for the agent.
    pub owner: Owner,
    /// What bounds the agent.
    #[serde(default)]
    pub surface: Surface,
    /// The identities.
    pub subjects: Vec<Subject>,
}

/// Who answers for an agent: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Owner {
    /// A username.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// Whether mounts bound what an agent may do.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Surface {
    /// What no enabled tool of a mount covers is refused.
    #[default]
    Mounts,
    /// Only policies decide.
    Policies,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One identity: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// A ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountRef>,
    /// A group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// A username.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// What was observed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentIdentityStatus {
    /// `Valid`, `Enforced`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// API servers through which the gate was seen to hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<SeenEndpoint>,
}

/// One API server through which a canary was answered.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenEndpoint {
    /// Its address.
    pub url: String,
    /// Whether the canary was refused by the current gate entry.
    pub enforced: bool,
    /// When.
    pub at: Time,
}

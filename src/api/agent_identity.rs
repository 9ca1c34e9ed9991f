//! AgentIdentity: every identity one agent acts under.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    reference::ServiceAccountRef,
    schema::{self, Validation},
};

/// Declares one AI agent: every identity that it acts under, who answers for it, and whether tool mounts bound what it may do.
/// What these identities change in the cluster is sent to the gate; nobody else is. The object's name is the agent's name.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "grantgate.dev",
    version = "v1alpha1",
    kind = "AgentIdentity",
    plural = "agentidentities",
    shortname = "ggai",
    category = "grantgate",
    status = "AgentIdentityStatus",
    printcolumn(
        name = "Surface",
        type_ = "string",
        json_path = ".spec.surface",
        description = "What bounds the agent: Mounts or Policies"
    ),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status",
        description = "Whether the declaration can be used"
    ),
    printcolumn(
        name = "Enforced",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Enforced\")].status",
        description = "Whether the gate was seen to stop these identities through every API server found"
    ),
    printcolumn(
        name = "OwnerUser",
        type_ = "string",
        json_path = ".spec.owner.user",
        description = "The person who answers for the agent",
        priority = 1
    ),
    printcolumn(
        name = "OwnerGroup",
        type_ = "string",
        json_path = ".spec.owner.group",
        description = "The group that answers for the agent",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since it was declared"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AgentIdentitySpec {
    /// Who answers for the agent: one person or one group. A person named here does not decide about this agent's requests
    /// unless a policy allows it.
    pub owner: Owner,
    /// What bounds the agent.
    #[serde(default)]
    pub surface: Surface,
    /// The identities that the agent acts under, 1 to 64 of them. An identity stands in one AgentIdentity only: a call that fits
    /// two is refused.
    #[schemars(transform = schema::atomic(1, 64, schema::any()))]
    pub subjects: Vec<Subject>,
}

/// Who answers for an agent: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::exactly_one(&["user", "group"]))]
pub struct Owner {
    /// A username as the API server knows it, e.g. `ana@example.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(256))]
    pub user: Option<String>,
    /// A group as the API server knows it, e.g. `team-platform`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(256))]
    pub group: Option<String>,
}

/// Whether mounts bound what an agent may do.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
pub enum Surface {
    /// What no enabled tool of a mount covers is refused, also when no mount is left.
    #[default]
    Mounts,
    /// There is no list of tools; approval policies alone decide.
    Policies,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

const SUBJECT_RULES: &[Validation] = &[
    Validation {
        rule: "!has(self.group) || !self.group.startsWith('system:')",
        message: "`group` must not begin with \"system:\": those groups hold people and components of the cluster",
    },
    Validation {
        rule: "!has(self.user) || !self.user.startsWith('system:')",
        message: "`user` must not begin with \"system:\": name a ServiceAccount by `serviceAccount`; components of the cluster are never agents",
    },
];

/// One identity: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::exactly_one(&["serviceAccount", "group", "user"]), transform = schema::rules(SUBJECT_RULES))]
pub struct Subject {
    /// A ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountRef>,
    /// A group as the API server knows it. Groups of the system (`system:…`) are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(256))]
    pub group: Option<String>,
    /// A username as the API server knows it, e.g. `oidc:ops-bot`. Users of the system (`system:…`) are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(256))]
    pub user: Option<String>,
}

/// What was observed of the agent. Written by the controller.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentIdentityStatus {
    /// `Valid`: the declaration can be used. `Enforced`: the gate was seen to stop these identities through every API server found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions())]
    pub conditions: Vec<Condition>,
    /// API servers through which the gate was tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::keyed("url", 0, 32))]
    pub endpoints: Vec<SeenEndpoint>,
}

/// One API server through which the gate was tried.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenEndpoint {
    /// Its address.
    #[schemars(transform = schema::filled(256))]
    pub url: String,
    /// Whether the call was refused by the gate entry that is configured now.
    pub enforced: bool,
    /// Since when it was seen like this; it is tried again every half minute.
    pub at: Time,
}

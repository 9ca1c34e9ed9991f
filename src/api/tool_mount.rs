//! ToolMount: one agent and one server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tool_server::ToolClass;

/// Which tools of one server one agent has, which are preloaded, and which wait for a person.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "grantgate.dev", version = "v1alpha1", kind = "ToolMount", namespaced, shortname = "ggtm", category = "grantgate", status = "ToolMountStatus")]
#[serde(rename_all = "camelCase")]
pub struct ToolMountSpec {
    /// Name of the AgentIdentity.
    pub agent: String,
    /// Name of the ToolServer in the same namespace.
    pub server: String,
    /// `@all`, `@read-only` or tool names. Absent: `["@all"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<Vec<String>>,
    /// Tool names taken away from what `enable` gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disable: Vec<String>,
    /// Tool names, or `@all`, whose schema is put into context at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preload: Vec<String>,
    /// `@all`, `@write`, `@destructive` or tool names that wait for a person. Absent: `["@write", "@destructive"]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Vec<String>>,
    /// What happens to tools that nothing classifies.
    #[serde(default)]
    pub unannotated: Unannotated,
}

/// What happens to tools that nothing classifies.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Unannotated {
    /// They wait for a person.
    #[default]
    Gate,
    /// They do not, unless a literal name or `@all` covers them.
    Exempt,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What applies to each tool.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolMountStatus {
    /// `Resolved`, `InForce`, `ContradictoryAnnotations`, `StillAsked`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// One row per tool of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<MountedTool>,
}

/// One tool as mounted.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountedTool {
    /// Name as published by the server.
    pub name: String,
    /// Whether the agent may use the tool.
    pub enabled: bool,
    /// Whether its schema is put into context at once.
    pub preloaded: bool,
    /// Whether a call waits for a person.
    pub needs_approval: bool,
    /// `Admission`, `Gateway` or `Nowhere`.
    pub enforced_at: String,
    /// What the tool can do at worst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ToolClass>,
    /// The rule that decided.
    pub rule: String,
}

//! ToolMount: one agent and one server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{schema, tool_server::ToolClass};

/// What may stand in `enable` beside names of tools.
pub const ENABLE_WORDS: [&str; 2] = ["@all", "@read-only"];
/// What may stand in `preload` beside names of tools.
pub const PRELOAD_WORDS: [&str; 1] = ["@all"];
/// What may stand in `approval` beside names of tools.
pub const APPROVAL_WORDS: [&str; 3] = ["@all", "@write", "@destructive"];

/// Gives one agent the tools of one ToolServer: which of them it has, which are preloaded into its context, and which wait for a
/// person. The three lists are independent.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "grantgate.dev",
    version = "v1alpha1",
    kind = "ToolMount",
    namespaced,
    shortname = "ggtm",
    category = "grantgate",
    status = "ToolMountStatus",
    printcolumn(
        name = "Agent",
        type_ = "string",
        json_path = ".spec.agent",
        description = "The AgentIdentity that gets the tools"
    ),
    printcolumn(
        name = "Server",
        type_ = "string",
        json_path = ".spec.server",
        description = "The ToolServer that they come from"
    ),
    printcolumn(
        name = "Resolved",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Resolved\")].status",
        description = "Whether every name in it was found"
    ),
    printcolumn(
        name = "InForce",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"InForce\")].status",
        description = "Whether every webhook replica works by it"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since it was declared"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ToolMountSpec {
    /// Name of the AgentIdentity that gets the tools.
    #[schemars(transform = schema::name())]
    pub agent: String,
    /// Name of the ToolServer, in this namespace, that they come from.
    #[schemars(transform = schema::name())]
    pub server: String,
    /// The tools that exist for the agent: `@all`, `@read-only` or names of tools. Absent: `["@all"]`; an empty list means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::unique(0, 512, schema::tools(&ENABLE_WORDS)))]
    pub enable: Option<Vec<String>>,
    /// Names of tools that are taken away from what `enable` gives. A disabled tool stays disabled, whatever is approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::unique(0, 512, schema::tools(&[])))]
    pub disable: Vec<String>,
    /// Names of tools, or `@all`, whose schema is put into the agent's context at once. It changes nothing about what is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::unique(0, 512, schema::tools(&PRELOAD_WORDS)))]
    pub preload: Vec<String>,
    /// The tools whose calls wait for a person: `@all`, `@write`, `@destructive` or names of tools. Absent: `["@write", "@destructive"]`;
    /// an empty list names none. It never loosens what approval policies ask for at admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::unique(0, 512, schema::tools(&APPROVAL_WORDS)))]
    pub approval: Option<Vec<String>>,
    /// What happens to tools of which neither this server's entry nor the catalogue says whether they write.
    #[serde(default)]
    pub unannotated: Unannotated,
}

/// What happens to tools that nothing classifies.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
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

/// What applies to each tool. Written by the controller.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolMountStatus {
    /// `Resolved`: every name was found. `InForce`: every webhook replica works by it. `StillAsked`: a policy asks for what `approval`
    /// leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions())]
    pub conditions: Vec<Condition>,
    /// One row per tool of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::keyed("name", 0, 512))]
    pub tools: Vec<MountedTool>,
}

/// One tool as mounted.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountedTool {
    /// Name as published by the server.
    #[schemars(transform = schema::tools(&[]))]
    pub name: String,
    /// Whether the agent may use the tool.
    pub enabled: bool,
    /// Whether its schema is put into context at once.
    pub preloaded: bool,
    /// Whether a call waits for a person.
    pub needs_approval: bool,
    /// Where a call is stopped: `Admission`, `Gateway` or `Nowhere`.
    #[schemars(transform = schema::one_of(&["Admission", "Gateway", "Nowhere"]))]
    pub enforced_at: String,
    /// What the tool can do at worst; absent: nothing says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ToolClass>,
    /// The rule that decided whether a call waits.
    #[schemars(transform = schema::line(512))]
    pub rule: String,
}

//! ToolServer: one MCP server, its tools and what they do to a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{agent_identity::Subject, reference::Operation};

/// One MCP server: under whose identity it writes, its tools, and what each tool does to a cluster.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "grantgate.dev", version = "v1alpha1", kind = "ToolServer", namespaced, shortname = "ggts", category = "grantgate", status = "ToolServerStatus")]
#[serde(rename_all = "camelCase")]
pub struct ToolServerSpec {
    /// Under whose identity the server writes.
    pub identity: ServerIdentity,
    /// A shipped catalogue of tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogRef>,
    /// Our word on single tools, over the catalogue's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
}

/// Under whose identity a server writes: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerIdentity {
    /// The server's own identities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<Subject>>,
    /// The identity of each call's own token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_token: Option<CallerToken>,
}

/// The server acts under the token of each call.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CallerToken {}

/// A shipped catalogue.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct CatalogRef {
    /// Name of the catalogue, e.g. `kubernetes-mcp-server`.
    pub name: String,
    /// Version of the catalogue, e.g. `"1"`.
    pub version: String,
}

/// One tool.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Name as published by the server.
    pub name: String,
    /// What the tool can do at worst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ToolClass>,
    /// What the tool does to a cluster; present = replaces the catalogue's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<ToolAction>>,
    /// Where calls of the tool are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce_at: Option<EnforceAt>,
}

/// What a tool can do at worst.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub enum ToolClass {
    /// Only reads.
    ReadOnly,
    /// Adds or changes.
    Write,
    /// May destroy.
    Destructive,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Where calls of a tool are stopped.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum EnforceAt {
    /// At admission where every write of the tool is provably seen there, otherwise at the gateway.
    #[default]
    Auto,
    /// At the gateway.
    Gateway,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One kind of write that a tool makes.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAction {
    /// API groups; `*` for all.
    pub api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*`, `*/sub`, `resource/*` or `*/*`.
    pub resources: Vec<String>,
    /// Operations.
    pub operations: Vec<OperationSelector>,
    /// CEL over object, oldObject and request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// An operation or all of them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OperationSelector {
    /// Every operation.
    #[serde(rename = "*")]
    All,
    /// A new object.
    #[serde(rename = "CREATE")]
    Create,
    /// A change of an object.
    #[serde(rename = "UPDATE")]
    Update,
    /// A deletion.
    #[serde(rename = "DELETE")]
    Delete,
    /// A connection.
    #[serde(rename = "CONNECT")]
    Connect,
    /// A word that this version does not know.
    #[serde(rename = "Unknown", other)]
    #[schemars(skip)]
    Unknown,
}

impl OperationSelector {
    /// Whether the selector covers an operation.
    pub fn covers(self, operation: Operation) -> bool {
        match self {
            Self::All => true,
            Self::Create => operation == Operation::Create,
            Self::Update => operation == Operation::Update,
            Self::Delete => operation == Operation::Delete,
            Self::Connect => operation == Operation::Connect,
            Self::Unknown => false,
        }
    }
}

/// What applies, expanded.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolServerStatus {
    /// `Resolved`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Every tool with what applies to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ResolvedTool>,
}

/// One tool with what applies to it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedTool {
    /// Name as published by the server.
    pub name: String,
    /// What the tool can do at worst; absent: nothing says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ToolClass>,
    /// `Override` or `Catalog`; absent: nothing says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_from: Option<String>,
    /// What the tool does to a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ToolAction>,
}

//! ToolServer: one MCP server, its tools and what they do to a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{agent_identity::Subject, reference::Operation, schema};

/// Declares one MCP server: under whose identity it writes to the cluster, its tools, and what each tool does to a cluster.
/// Mounts give agents its tools by name.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "grantgate.dev",
    version = "v1alpha1",
    kind = "ToolServer",
    namespaced,
    shortname = "ggts",
    category = "grantgate",
    status = "ToolServerStatus",
    printcolumn(
        name = "Catalog",
        type_ = "string",
        json_path = ".spec.catalog.name",
        description = "The shipped catalogue that describes its tools"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.catalog.version",
        description = "Version of the catalogue"
    ),
    printcolumn(
        name = "Resolved",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Resolved\")].status",
        description = "Whether every name in it was found"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since it was declared"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ToolServerSpec {
    /// Under whose identity the server writes to the cluster. A tool is enforced at admission only if the gate provably sees that identity.
    pub identity: ServerIdentity,
    /// A catalogue of tools that comes with grantgate. What it says is expanded into `status.tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogRef>,
    /// Your word on single tools; it goes before the catalogue's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::keyed("name", 0, 512))]
    pub tools: Vec<Tool>,
}

/// Under whose identity a server writes: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::exactly_one(&["subjects", "callerToken"]))]
pub struct ServerIdentity {
    /// The server's own identities, e.g. its ServiceAccount, 1 to 16 of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::atomic(1, 16, schema::any()))]
    pub subjects: Option<Vec<Subject>>,
    /// The server passes on the token of each call: it writes as its caller. `{}` says so.
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
    #[schemars(transform = schema::filled(128))]
    pub name: String,
    /// Version of the catalogue, e.g. `"1"`.
    #[schemars(transform = schema::filled(63))]
    pub version: String,
}

/// One tool.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Name as published by the server.
    #[schemars(transform = schema::tools(&[]))]
    pub name: String,
    /// What the tool can do at worst. Absent: the catalogue's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ToolClass>,
    /// Every kind of write that the tool makes to a cluster, side effects too. Present, also when empty, it replaces the catalogue's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::atomic(0, 64, schema::any()))]
    pub actions: Option<Vec<ToolAction>>,
    /// Where calls of the tool are stopped. Absent: Auto.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce_at: Option<EnforceAt>,
}

/// What a tool can do at worst.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[schemars(transform = schema::words())]
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
#[schemars(transform = schema::words())]
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
    /// API groups: `""` is the core group, `*` stands for all.
    #[schemars(transform = schema::atomic(1, 32, schema::line(253)))]
    pub api_groups: Vec<String>,
    /// Resources in plural: `pods`, `deployments/scale`, `deployments/*` (every subresource), `*/scale`, `*` (every resource), `*/*` (and every subresource).
    #[schemars(transform = schema::atomic(1, 64, schema::filled(253)))]
    pub resources: Vec<String>,
    /// Operations of API requests.
    #[schemars(transform = schema::unique(1, 5, schema::any()))]
    pub operations: Vec<OperationSelector>,
    /// A CEL expression over `object`, `oldObject` and `request`, true where the tool makes this write, at most 1024 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::raw(1024))]
    pub when: Option<String>,
}

/// An operation or all of them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
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

/// What applies, expanded. Written by the controller.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolServerStatus {
    /// `Resolved`: whether the catalogue and every name were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions())]
    pub conditions: Vec<Condition>,
    /// Every tool with what applies to it, the catalogue expanded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::keyed("name", 0, 512))]
    pub tools: Vec<ResolvedTool>,
}

/// One tool with what applies to it.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedTool {
    /// Name as published by the server.
    #[schemars(transform = schema::tools(&[]))]
    pub name: String,
    /// What the tool can do at worst; absent: nothing says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ToolClass>,
    /// Where the class comes from: `Override` (this object) or `Catalog`. Absent: nothing says what the class is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(63))]
    pub class_from: Option<String>,
    /// What the tool does to a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 64, schema::any()))]
    pub actions: Vec<ToolAction>,
}

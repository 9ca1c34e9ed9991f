//! Shapes that several kinds share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ServiceAccount.
#[derive(Clone, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub struct ServiceAccountRef {
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub name: String,
}

impl ServiceAccountRef {
    /// The username under which the API server knows the account.
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// The authenticated author of a proposal.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requester {
    /// Username as authenticated by the API server.
    pub username: String,
    /// Uid as authenticated by the API server; absent where it knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Name of the AgentIdentity that the username, a group or the extra key belongs to.
    pub agent: String,
    /// Value of the extra key `grantgate.dev/on-behalf-of`: a claim of whoever authenticated the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
}

/// What an API request does, in the words of AdmissionReview.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Operation {
    /// A new object.
    #[serde(rename = "CREATE")]
    Create,
    /// A change of an object.
    #[serde(rename = "UPDATE")]
    Update,
    /// A deletion.
    #[serde(rename = "DELETE")]
    Delete,
    /// A connection: exec, attach, port-forward, proxy.
    #[serde(rename = "CONNECT")]
    Connect,
    /// A word that this version does not know: never allowed.
    #[serde(rename = "Unknown", other)]
    #[schemars(skip)]
    Unknown,
}

impl Operation {
    /// The word of AdmissionReview.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
            Self::Unknown => "Unknown",
        }
    }
}

/// One typed action on one target.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// CREATE, UPDATE, DELETE or CONNECT.
    pub operation: Operation,
    /// API group; empty for the core group.
    pub group: String,
    /// API version as requested.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, absent for the main resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// Namespace of the target, absent for cluster-scoped targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the target; absent where the server makes it up from `generateName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Prefix of the name that the server makes up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate_name: Option<String>,
    /// Uid of the target; absent for CREATE.
    #[serde(default, rename = "targetUID", skip_serializing_if = "Option::is_none")]
    pub target_uid: Option<String>,
    /// Canonical JSON of the request's options that matter, e.g. `{"propagationPolicy":"Background"}`.
    pub options: String,
}

/// One policy that matched, as it was.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRef {
    /// ApprovalPolicy or ClusterApprovalPolicy.
    pub kind: String,
    /// Namespace, absent for ClusterApprovalPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the policy.
    pub name: String,
    /// Uid of the policy object.
    pub uid: String,
    /// metadata.generation of the policy.
    pub generation: i64,
    /// Digest of what the policy resolves to for this action.
    pub hash: String,
    /// Who must approve on behalf of this policy; absent where the policy only adds limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<crate::api::approval_policy::Approvers>,
}

/// How often and for how long a grant serves.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Validity {
    /// Number of uses; absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<i32>,
    /// Seconds from the approval; absent: the installation's maximum (86400).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<i32>,
}

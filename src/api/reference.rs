//! Shapes that several kinds share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{self, Validation};

/// A ServiceAccount.
#[derive(Clone, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub struct ServiceAccountRef {
    /// Namespace of the ServiceAccount.
    #[schemars(transform = schema::namespace())]
    pub namespace: String,
    /// Name of the ServiceAccount.
    #[schemars(transform = schema::name())]
    pub name: String,
}

/// What the username of every ServiceAccount begins with; namespace, `:` and name follow.
pub const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

impl ServiceAccountRef {
    /// The account of that username; `None`: it is no ServiceAccount's.
    pub fn of_username(username: &str) -> Option<Self> {
        let (namespace, name) = username.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The username under which the API server knows the account.
    pub fn username(&self) -> String {
        format!("{SERVICE_ACCOUNT}{}:{}", self.namespace, self.name)
    }
}

/// The authenticated author of a proposal.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Requester {
    /// Username as authenticated by the API server.
    #[schemars(transform = schema::filled(1024))]
    pub username: String,
    /// Uid as authenticated by the API server; absent where it knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::line(256))]
    pub uid: Option<String>,
    /// Name of the AgentIdentity that the username, a group or the extra key `grantgate.dev/agent` belongs to.
    #[schemars(transform = schema::name())]
    pub agent: String,
    /// Value of the extra key `grantgate.dev/on-behalf-of`: for whom the agent says it works, a claim of whoever authenticated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::line(1024))]
    pub on_behalf_of: Option<String>,
}

/// What an API request does, in the words of AdmissionReview.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[schemars(transform = schema::words())]
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
    /// What the API request does.
    pub operation: Operation,
    /// API group; empty for the core group.
    #[schemars(transform = schema::line(253))]
    pub group: String,
    /// API version as requested, e.g. `v1`. The same call through another version is another action.
    #[schemars(transform = schema::filled(63))]
    pub version: String,
    /// Plural resource name, e.g. `deployments`.
    #[schemars(transform = schema::filled(253))]
    pub resource: String,
    /// Subresource, e.g. `scale`; absent for the main resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(253))]
    pub subresource: Option<String>,
    /// Namespace of the target; absent for cluster-scoped targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace())]
    pub namespace: Option<String>,
    /// Name of the target; absent where the API server makes it up from `generateName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(1024))]
    pub name: Option<String>,
    /// Prefix of the name that the API server makes up: it adds five characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(253))]
    pub generate_name: Option<String>,
    /// metadata.uid of the target; absent for CREATE. An object made anew under the same name is another target.
    #[serde(default, rename = "targetUID", skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::uid())]
    pub target_uid: Option<String>,
    /// The options of the API request that matter, as canonical JSON, e.g. `{"propagationPolicy":"Background"}`.
    #[schemars(transform = schema::raw(16384))]
    pub options: String,
}

/// One policy that matched, as it was.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRef {
    /// `ApprovalPolicy` or `ClusterApprovalPolicy`.
    #[schemars(transform = schema::one_of(&["ApprovalPolicy", "ClusterApprovalPolicy"]))]
    pub kind: String,
    /// Namespace of the policy; absent for ClusterApprovalPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace())]
    pub namespace: Option<String>,
    /// Name of the policy.
    #[schemars(transform = schema::name())]
    pub name: String,
    /// metadata.uid of the policy.
    #[schemars(transform = schema::uid())]
    pub uid: String,
    /// metadata.generation of the policy as it was used.
    #[schemars(transform = schema::counted())]
    pub generation: i64,
    /// Digest of what the policy resolves to for this action: it stays the same when only comments or labels of the policy change.
    #[schemars(transform = schema::digest())]
    pub hash: String,
    /// Who must approve on behalf of this policy, with the counts that hold; absent where the policy only adds limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<crate::api::approval_policy::Approvers>,
}

const VALIDITY_RULES: &[Validation] = &[Validation {
    rule: "has(self.uses) || has(self.durationSeconds)",
    message: "must hold at least one of `uses`, `durationSeconds`",
}];

/// How often and for how long a grant serves: at least one of the two.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rules(VALIDITY_RULES))]
pub struct Validity {
    /// Number of uses, 1 to 1,000,000. Absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::between(1, 1_000_000))]
    pub uses: Option<i32>,
    /// Seconds from the approval, 1 to 86400. Absent: the installation's maximum, 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::between(1, 86_400))]
    pub duration_seconds: Option<i32>,
}

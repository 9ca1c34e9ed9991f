//! ApprovalPolicy and ClusterApprovalPolicy: when a person decides, who, for how long, bound to what.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    reference::{ServiceAccountRef, Validity},
    tool_server::OperationSelector,
};

/// When a person decides about changes in this policy's own namespace.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "grantgate.dev", version = "v1alpha1", kind = "ApprovalPolicy", plural = "approvalpolicies", namespaced, shortname = "ggap", category = "grantgate", status = "PolicyStatus")]
#[serde(rename_all = "camelCase")]
pub struct ApprovalPolicySpec {
    /// Everything but where it applies.
    #[serde(flatten)]
    pub body: PolicyBody,
}

/// When a person decides about changes anywhere in the cluster.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "grantgate.dev", version = "v1alpha1", kind = "ClusterApprovalPolicy", plural = "clusterapprovalpolicies", shortname = "ggcap", category = "grantgate", status = "PolicyStatus")]
#[serde(rename_all = "camelCase")]
pub struct ClusterApprovalPolicySpec {
    /// Everything but what only cluster policies have.
    #[serde(flatten)]
    pub body: PolicyBody,
    /// What a namespaced policy may loosen where this policy matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace_may: Vec<NamespaceMay>,
}

/// What both policy kinds share.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyBody {
    /// What matching means.
    pub effect: Effect,
    /// What the policy matches: any of these.
    pub targets: Vec<Target>,
    /// Which agents; empty: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<AgentSelector>,
    /// Who decides. Required for RequireApproval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Approvers>,
    /// How often and how long a grant serves. Absent as a whole: one use within 600 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// What happens when nobody decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_silence: Vec<Silence>,
    /// Seconds after a denial before the same change may be asked for again. Absent: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial_cooldown_seconds: Option<i32>,
    /// What a grant binds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
}

/// What matching means.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Effect {
    /// A person decides.
    RequireApproval,
    /// Nobody is asked.
    Exempt,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One thing that a policy matches: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Changes of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesTarget>,
}

/// Changes of a cluster: `rules` or `scope`, narrowed by the rest.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesTarget {
    /// Groups, resources and operations: any of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Instead of rules: everything destructive, or everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Labels of the target's namespace. Cluster policies only. Present: cluster-scoped targets do not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Names of targets; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// CEL over object, oldObject and request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// Groups, resources and operations, with the wildcards of webhook rules.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// API groups; `""` is the core group, `*` all.
    pub api_groups: Vec<String>,
    /// Resources, `resource/subresource`, `*`, `*/sub`, `resource/*` or `*/*`.
    pub resources: Vec<String>,
    /// Operations.
    pub operations: Vec<OperationSelector>,
}

/// A whole class of changes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Scope {
    /// Deletions, finalizer and owner-reference changes.
    Destructive,
    /// Every change.
    All,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// Which agents: both members must match; empty: all.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSelector {
    /// Names of AgentIdentities; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Labels of AgentIdentities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// Who decides.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approvers {
    /// Every row must be met; a person counts once in each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<Required>,
    /// Whether the requester and the agent's owner may decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<RequesterMay>,
    /// Which verdicts need a reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require_reason: Vec<super::approval_decision::Verdict>,
}

/// So many of these people.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Required {
    /// How many different people.
    pub count: i32,
    /// From whom; empty: whoever holds verb `approve` on the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<ApproverSubject>,
}

/// A source of approvers: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApproverSubject {
    /// A group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// A username.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountRef>,
}

/// Whether the requester and the agent's owner may decide.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RequesterMay {
    /// They may not.
    #[default]
    Forbidden,
    /// They may.
    Allowed,
    /// A word that this version does not know: read as Forbidden.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What happens after some silence.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Silence {
    /// Seconds from the request.
    pub after_seconds: i32,
    /// What happens then.
    pub action: SilenceAction,
}

/// What happens after some silence. Nothing approves.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum SilenceAction {
    /// The request ends.
    Expire,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What a grant binds.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// How the change is bound. Absent: Exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeBinding>,
    /// How the target's state is bound. Absent: UPDATE TouchedFields, DELETE Identity, CREATE WholeObject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateBinding>,
    /// JSON pointers into the target that must also be unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state_fields: Vec<String>,
    /// Paths that are bound as "changed, to any value of this shape".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volatile: Vec<Volatile>,
}

/// How the change is bound.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ChangeBinding {
    /// Exactly as proposed.
    #[default]
    Exact,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// How the target's state is bound.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub enum StateBinding {
    /// The uid, the labels and `stateFields`.
    Identity,
    /// The old value of each changed path, and `stateFields`.
    TouchedFields,
    /// Everything but status and what the server makes.
    WholeObject,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// A path whose new value is free within a shape.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Volatile {
    /// JSON pointer.
    pub path: String,
    /// The shape.
    pub shape: VolatileShape,
}

/// A shape of values.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub enum VolatileShape {
    /// An RFC 3339 time.
    Timestamp,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What a namespaced policy may loosen.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum NamespaceMay {
    /// Exempt what this policy asks for.
    Exempt,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What was observed of a policy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// `Valid`, `InForce`, `NoApprover`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Everything wrong with the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<PolicyProblem>,
}

/// One thing wrong with a policy.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct PolicyProblem {
    /// Field path, e.g. `spec.targets[0].kubernetes.when`.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}


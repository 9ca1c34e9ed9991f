//! ApprovalPolicy and ClusterApprovalPolicy: when a person decides, who, for how long, bound to what.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    reference::{ServiceAccountRef, Validity},
    schema::{self, Validation},
    tool_server::OperationSelector,
};

const BODY_RULES: &[Validation] = &[Validation {
    rule: "self.effect != 'RequireApproval' || (has(self.approvers) && has(self.approvers.required) && self.approvers.required.size() > 0)",
    message: "`approvers.required` must have at least one row when `effect` is \"RequireApproval\"",
}];

const NAMESPACED_RULES: &[Validation] = &[Validation {
    rule: "!self.targets.exists(target, has(target.kubernetes) && has(target.kubernetes.namespaceSelector))",
    message: "`namespaceSelector` must be left out: an ApprovalPolicy holds for its own namespace; use a ClusterApprovalPolicy",
}];

const KUBERNETES_RULES: &[Validation] = &[Validation {
    rule: "(has(self.rules) && self.rules.size() > 0) != has(self.scope)",
    message: "must hold exactly one of `rules` (with at least one rule), `scope`",
}];

/// Says when a person decides about agents' changes in this policy's own namespace, who decides, for how long and for exactly what.
/// Cluster policies are the floor: a namespaced policy may ask for more, and loosens only what they let it.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "grantgate.dev",
    version = "v1alpha1",
    kind = "ApprovalPolicy",
    plural = "approvalpolicies",
    namespaced,
    shortname = "ggap",
    category = "grantgate",
    status = "PolicyStatus",
    printcolumn(
        name = "Effect",
        type_ = "string",
        json_path = ".spec.effect",
        description = "What matching means: RequireApproval or Exempt"
    ),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status",
        description = "Whether the policy can be used; status.problems says what is wrong"
    ),
    printcolumn(
        name = "InForce",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"InForce\")].status",
        description = "Whether every webhook replica works by it"
    ),
    printcolumn(
        name = "Uses",
        type_ = "integer",
        json_path = ".spec.validity.uses",
        description = "How often a grant serves; empty: see spec.validity",
        priority = 1
    ),
    printcolumn(
        name = "Seconds",
        type_ = "integer",
        json_path = ".spec.validity.durationSeconds",
        description = "How long a grant serves; empty: see spec.validity",
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
#[schemars(transform = schema::rules(BODY_RULES), transform = schema::rules(NAMESPACED_RULES))]
pub struct ApprovalPolicySpec {
    /// Everything but where it applies.
    #[serde(flatten)]
    pub body: PolicyBody,
}

/// Says when a person decides about agents' changes anywhere in the cluster, who decides, for how long and for exactly what.
/// Changes that no policy matches wait under the policy `grantgate-default`.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "grantgate.dev",
    version = "v1alpha1",
    kind = "ClusterApprovalPolicy",
    plural = "clusterapprovalpolicies",
    shortname = "ggcap",
    category = "grantgate",
    status = "PolicyStatus",
    printcolumn(
        name = "Effect",
        type_ = "string",
        json_path = ".spec.effect",
        description = "What matching means: RequireApproval or Exempt"
    ),
    printcolumn(
        name = "Valid",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Valid\")].status",
        description = "Whether the policy can be used; status.problems says what is wrong"
    ),
    printcolumn(
        name = "InForce",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"InForce\")].status",
        description = "Whether every webhook replica works by it"
    ),
    printcolumn(
        name = "Uses",
        type_ = "integer",
        json_path = ".spec.validity.uses",
        description = "How often a grant serves; empty: see spec.validity",
        priority = 1
    ),
    printcolumn(
        name = "Seconds",
        type_ = "integer",
        json_path = ".spec.validity.durationSeconds",
        description = "How long a grant serves; empty: see spec.validity",
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
#[schemars(transform = schema::rules(BODY_RULES))]
pub struct ClusterApprovalPolicySpec {
    /// Everything but what only cluster policies have.
    #[serde(flatten)]
    pub body: PolicyBody,
    /// What a namespaced policy may loosen where this policy matches. Empty: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::unique(0, 4, schema::any()))]
    pub namespace_may: Vec<NamespaceMay>,
}

/// What both policy kinds share.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyBody {
    /// What matching means.
    pub effect: Effect,
    /// What the policy matches: any of these, 1 to 32.
    #[schemars(transform = schema::atomic(1, 32, schema::any()))]
    pub targets: Vec<Target>,
    /// Which agents it is about. Absent or empty: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<AgentSelector>,
    /// Who decides. Needed for RequireApproval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Approvers>,
    /// How often and how long a grant serves. Absent as a whole: one use within 600 seconds. Of several matching policies the strictest holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// What happens when nobody decides: at most one row, which ends the request. Absent: it ends after 1800 seconds. Silence never approves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 1, schema::any()))]
    pub on_silence: Vec<Silence>,
    /// Seconds after a denial before the same change may be asked for again, 0 to 86400. Absent: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::between(0, 86_400))]
    pub denial_cooldown_seconds: Option<i32>,
    /// What a grant binds: the grant no longer serves when something that it binds is different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
}

/// What matching means.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
pub enum Effect {
    /// A person decides before the change is made.
    RequireApproval,
    /// The change is made without asking anybody.
    Exempt,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One thing that a policy matches: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::exactly_one(&["kubernetes"]))]
pub struct Target {
    /// Changes that arrive at the Kubernetes API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesTarget>,
}

/// Changes that arrive at the Kubernetes API: `rules` or `scope`, narrowed by the rest.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rules(KUBERNETES_RULES))]
pub struct KubernetesTarget {
    /// Groups, resources and operations: any of these. A rule without wildcards is the most specific.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 32, schema::any()))]
    pub rules: Vec<Rule>,
    /// Instead of rules: everything destructive, or everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Labels of the target's namespace. In ClusterApprovalPolicy only. When present, cluster-scoped targets do not match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::selector())]
    pub namespace_selector: Option<LabelSelector>,
    /// Names of targets, at most 64. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::unique(0, 64, schema::filled(253)))]
    pub names: Vec<String>,
    /// A CEL expression over `object`, `oldObject` and `request`, true where the policy matches, at most 1024 characters. What it leaves out is
    /// another policy's, or the default policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::raw(1024))]
    pub when: Option<String>,
}

/// Groups, resources and operations, with the wildcards of webhook rules.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// API groups: `""` is the core group, `*` stands for all.
    #[schemars(transform = schema::atomic(1, 32, schema::line(253)))]
    pub api_groups: Vec<String>,
    /// Resources in plural: `pods`, `deployments/scale`, `deployments/*` (every subresource), `*/scale`, `*` (every resource), `*/*` (and every subresource).
    #[schemars(transform = schema::atomic(1, 64, schema::filled(253)))]
    pub resources: Vec<String>,
    /// Operations of API requests.
    #[schemars(transform = schema::unique(1, 5, schema::any()))]
    pub operations: Vec<OperationSelector>,
}

/// A whole class of changes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
pub enum Scope {
    /// Deletions, evictions, changes of finalizers and of owner references.
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
    /// Names of AgentIdentities, at most 64. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::unique(0, 64, schema::name()))]
    pub names: Vec<String>,
    /// Labels of AgentIdentities. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::selector())]
    pub selector: Option<LabelSelector>,
}

/// Who decides.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approvers {
    /// Every row must be met; a person counts in one of them only. At most 8 rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 8, schema::any()))]
    pub required: Vec<Required>,
    /// Whether the requester and the person who owns the agent may decide. Absent: Forbidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<RequesterMay>,
    /// Which verdicts count only with a reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::unique(0, 2, schema::any()))]
    pub require_reason: Vec<super::approval_decision::Verdict>,
}

/// So many of these people.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Required {
    /// How many different people, 1 to 16.
    #[schemars(transform = schema::between(1, 16))]
    pub count: i32,
    /// Out of whom, at most 32. Empty: whoever holds verb `approve` on the policy. That verb is needed in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 32, schema::any()))]
    pub from: Vec<ApproverSubject>,
}

/// A source of approvers: exactly one member.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::exactly_one(&["group", "user", "serviceAccount"]))]
pub struct ApproverSubject {
    /// Members of a group as the API server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(256))]
    pub group: Option<String>,
    /// A person by username as the API server knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(256))]
    pub user: Option<String>,
    /// A ServiceAccount. No other ServiceAccount may decide, whatever its groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountRef>,
}

/// Whether the requester and the agent's owner may decide.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
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
    /// Seconds from the request, 1 to 2592000 (30 days).
    #[schemars(transform = schema::between(1, 2_592_000))]
    pub after_seconds: i32,
    /// What happens then.
    pub action: SilenceAction,
}

/// What happens after some silence. Nothing approves.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
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
    /// JSON pointers to fields of the target that must also be unchanged, e.g. `/metadata/labels/env`; at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::unique(0, 32, schema::pointer()))]
    pub state_fields: Vec<String>,
    /// Fields that are bound as "changed, to any value of this shape"; at most 16. They still make a change that needs a grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::keyed("path", 0, 16))]
    pub volatile: Vec<Volatile>,
}

/// How the change is bound.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
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
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[schemars(transform = schema::words())]
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
    /// JSON pointer to the field, e.g. `/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt`.
    #[schemars(transform = schema::pointer())]
    pub path: String,
    /// The shape that the new value must have.
    pub shape: VolatileShape,
}

/// A shape of values.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[schemars(transform = schema::words())]
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
#[schemars(transform = schema::words())]
pub enum NamespaceMay {
    /// Exempt what this policy asks for.
    Exempt,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What was observed of the policy. Written by the controller.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// `Valid`: the policy can be used; while it cannot, what it selects is refused. `InForce`: every webhook replica works by it, and every grant that
    /// it voids is ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions())]
    pub conditions: Vec<Condition>,
    /// Everything that is wrong with the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 64, schema::any()))]
    pub problems: Vec<PolicyProblem>,
}

/// One thing wrong with a policy.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct PolicyProblem {
    /// Path of the field, e.g. `spec.targets[0].kubernetes.when`.
    #[schemars(transform = schema::line(512))]
    pub path: String,
    /// What is wrong, and what to do.
    #[schemars(transform = schema::lines(2048))]
    pub message: String,
}

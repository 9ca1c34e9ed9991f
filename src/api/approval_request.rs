//! ApprovalRequest: one immutable proposal with a snapshot of the policies that asked.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    approval_decision::Verdict,
    approval_policy::{StateBinding, Volatile},
    reference::{Action, PolicyRef, Requester, Validity},
};

/// One proposed change that waits for a person. Filed by grantgate when an agent tries something; never by hand.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(group = "grantgate.dev", version = "v1alpha1", kind = "ApprovalRequest", namespaced, shortname = "ggar", category = "grantgate", status = "ApprovalRequestStatus")]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequestSpec {
    /// Who proposed.
    pub requester: Requester,
    /// What is proposed.
    pub action: Action,
    /// Digest of requester's username, agent and what of the action names its target.
    pub action_key: String,
    /// Digest of `change`.
    pub change_digest: String,
    /// Digest of the state that the change applies to.
    pub state_digest: String,
    /// Digest of this spec without this field.
    pub digest: String,
    /// Canonical JSON of the redacted change.
    pub change: String,
    /// The same, field by field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<FieldDiff>,
    /// Canonical JSON of the bound state: path to value.
    pub state: String,
    /// The revision that the proposal was made on; absent for CREATE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// What a grant will bind.
    pub binding: ResolvedBinding,
    /// The policies that matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyRef>,
    /// Digest of the policies that matched.
    pub policy_set_hash: String,
    /// How often and how long a grant will serve.
    pub validity: Validity,
    /// Seconds after a denial before the same change may be asked for again.
    pub denial_cooldown_seconds: i32,
    /// Until when a decision is possible.
    pub deadline: MicroTime,
    /// Typed facts about the risk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// The request for the same change that ended before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

/// One changed field. A missing member means that the field is absent on that side.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct FieldDiff {
    /// JSON pointer; `[name=app]` names a list element by its key.
    pub path: String,
    /// Canonical JSON of the old value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Canonical JSON of the new value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A revision of the target.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Base {
    /// metadata.resourceVersion.
    pub resource_version: String,
    /// metadata.generation, where the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// What a grant binds, after all matching policies were combined.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedBinding {
    /// How the change is bound.
    pub change: super::approval_policy::ChangeBinding,
    /// How the target's state is bound.
    pub state: StateBinding,
    /// JSON pointers that must also be unchanged, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state_fields: Vec<String>,
    /// Paths whose new value is free within a shape, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volatile: Vec<Volatile>,
}

/// One typed fact about the risk of a change.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Fact {
    /// Kind of fact, e.g. `Irreversible`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says.
    pub value: String,
    /// Where it comes from: `Request`, `Policy`, `Server`.
    pub source: String,
}

/// The request for the same change that ended before this one.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Previous {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Why it, or its grant, no longer serves: Denied, Expired, Spent, Stale, Superseded, Revoked, Lost.
    pub reason: String,
}

/// What became of a request.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequestStatus {
    /// Absent: Pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RequestPhase>,
    /// When the phase became final. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<MicroTime>,
    /// The one grant. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantRef>,
    /// The votes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub votes: Vec<Vote>,
    /// `Decided`, `GrantLost`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RequestPhase {
    /// Enough people said yes: there is, or will be, one grant.
    Approved,
    /// A person said no.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// What it was about changed before anybody decided.
    Superseded,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The one grant of a request.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct GrantRef {
    /// Its name, known before it exists.
    pub name: String,
    /// Its uid, known once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// One vote as seen by the controller.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// The ApprovalDecision.
    pub decision: DecisionRef,
    /// Its proven author.
    pub username: String,
    /// What they said.
    pub verdict: Verdict,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the decision was created.
    pub at: MicroTime,
    /// Policies, as `Kind/name` or `Kind/namespace/name`, on whose behalf it counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Whether it counts.
    pub counted: bool,
    /// Why it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// An ApprovalDecision.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct DecisionRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

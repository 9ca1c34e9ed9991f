//! ApprovalRequest: one immutable proposal with a snapshot of the policies that asked.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    approval_decision::Verdict,
    approval_policy::{StateBinding, Volatile},
    reference::{Action, PolicyRef, Requester, Validity},
    schema::{self, Validation},
};

/// One change that an agent proposed and that waits for a person, with everything that the person needs to see and the policies that
/// asked. Filed by grantgate when an agent tries something, never by hand. Nothing of it has been executed.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "grantgate.dev",
    version = "v1alpha1",
    kind = "ApprovalRequest",
    namespaced,
    shortname = "ggar",
    category = "grantgate",
    status = "ApprovalRequestStatus",
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Approved, Denied, Expired or Superseded; empty while it waits for a person"
    ),
    printcolumn(
        name = "Agent",
        type_ = "string",
        json_path = ".spec.requester.agent",
        description = "The agent that proposed the change"
    ),
    printcolumn(
        name = "Operation",
        type_ = "string",
        json_path = ".spec.action.operation",
        description = "CREATE, UPDATE, DELETE or CONNECT"
    ),
    printcolumn(
        name = "Resource",
        type_ = "string",
        json_path = ".spec.action.resource",
        description = "The resource that would change"
    ),
    printcolumn(
        name = "Name",
        type_ = "string",
        json_path = ".spec.action.name",
        description = "The object that would change"
    ),
    printcolumn(
        name = "Deadline",
        type_ = "string",
        json_path = ".spec.deadline",
        description = "Until when a decision is possible"
    ),
    printcolumn(
        name = "Subresource",
        type_ = "string",
        json_path = ".spec.action.subresource",
        description = "The subresource that would change",
        priority = 1
    ),
    printcolumn(
        name = "Username",
        type_ = "string",
        json_path = ".spec.requester.username",
        description = "Who proposed, as the API server authenticated them",
        priority = 1
    ),
    printcolumn(
        name = "Grant",
        type_ = "string",
        json_path = ".status.grant.name",
        description = "The grant that came of it",
        priority = 1
    ),
    printcolumn(
        name = "Digest",
        type_ = "string",
        json_path = ".spec.digest",
        description = "What a decision must name",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the proposal"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequestSpec {
    /// Who proposed the change.
    pub requester: Requester,
    /// What would be done to what.
    pub action: Action,
    /// Digest of the requester's username, the agent and what of the action names its target. It finds grants; it binds nothing.
    #[schemars(transform = schema::digest())]
    pub action_key: String,
    /// Digest of `change`.
    #[schemars(transform = schema::digest())]
    pub change_digest: String,
    /// Digest of the bound state that the change applies to.
    #[schemars(transform = schema::digest())]
    pub state_digest: String,
    /// Digest of this spec without this field. A decision names it, and thereby everything that was shown.
    #[schemars(transform = schema::digest())]
    pub digest: String,
    /// The whole change as canonical JSON: path to new value. Values of Secrets are replaced by fingerprints. A change beyond 131072 characters is refused, never cut.
    #[schemars(transform = schema::raw(131_072))]
    pub change: String,
    /// The same change field by field, at most 4096 fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 4096, schema::any()))]
    pub diff: Vec<FieldDiff>,
    /// The bound state as canonical JSON: path to the value that it has. A grant no longer serves when one of them is different.
    #[schemars(transform = schema::raw(131_072))]
    pub state: String,
    /// The revision of the target that the proposal was made on; absent for CREATE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// What a grant will bind, after all matching policies were combined.
    pub binding: ResolvedBinding,
    /// The policies that matched, as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 64, schema::any()))]
    pub policies: Vec<PolicyRef>,
    /// Digest of the policies that matched. Another set of policies later makes a grant stale.
    #[schemars(transform = schema::digest())]
    pub policy_set_hash: String,
    /// How often and how long a grant will serve.
    pub validity: Validity,
    /// Seconds after a denial before the same change may be asked for again.
    #[schemars(transform = schema::between(0, 86_400))]
    pub denial_cooldown_seconds: i32,
    /// Until when a decision is possible; then the request expires.
    pub deadline: MicroTime,
    /// Facts about the risk, from the request, the policies or the API server, never from the agent's own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 64, schema::any()))]
    pub facts: Vec<Fact>,
    /// The request for the same change that ended before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

/// One changed field. A missing member means that the field is absent on that side.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct FieldDiff {
    /// JSON pointer; `[name=app]` names a list element by its key, `[order]` the order of a list.
    #[schemars(transform = schema::raw(4096))]
    pub path: String,
    /// The old value as canonical JSON; absent: the field was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::raw(131_072))]
    pub from: Option<String>,
    /// The new value as canonical JSON; absent: the field is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::raw(131_072))]
    pub to: Option<String>,
}

/// A revision of the target.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Base {
    /// metadata.resourceVersion of the target.
    #[schemars(transform = schema::line(64))]
    pub resource_version: String,
    /// metadata.generation of the target, where its kind has one.
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
    /// JSON pointers to fields that must also be unchanged, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 256, schema::pointer()))]
    pub state_fields: Vec<String>,
    /// Fields whose new value is free within a shape, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 256, schema::any()))]
    pub volatile: Vec<Volatile>,
}

/// One typed fact about the risk of a change.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Fact {
    /// Kind of fact, e.g. `Irreversible`.
    #[serde(rename = "type")]
    #[schemars(transform = schema::filled(63))]
    pub kind: String,
    /// What it says.
    #[schemars(transform = schema::line(1024))]
    pub value: String,
    /// Where it comes from: `Request`, `Policy` or `Server`.
    #[schemars(transform = schema::filled(63))]
    pub source: String,
}

/// The request for the same change that ended before this one.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Previous {
    /// Its name.
    #[schemars(transform = schema::name())]
    pub name: String,
    /// Its metadata.uid.
    #[schemars(transform = schema::uid())]
    pub uid: String,
    /// Why it, or its grant, no longer serves: Denied, Expired, Spent, Stale, Superseded, Revoked, Lost.
    #[schemars(transform = schema::filled(63))]
    pub reason: String,
}

/// What became of the request. Written by grantgate.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequestStatus {
    /// How the request ended. Absent: it waits for a person. Once written it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RequestPhase>,
    /// When the request ended. Written once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<MicroTime>,
    /// The one grant that came of it. Its name and its uid are written once each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantRef>,
    /// The votes, at most 64. A vote is never taken out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 64, schema::any()))]
    pub votes: Vec<Vote>,
    /// `Decided`: whether and how it was decided. `GrantLost`: its grant is gone; no other one is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions())]
    pub conditions: Vec<Condition>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
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
    #[schemars(transform = schema::name())]
    pub name: String,
    /// Its metadata.uid, known once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::uid())]
    pub uid: Option<String>,
}

/// One vote as seen by the controller.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    /// The ApprovalDecision that holds the vote.
    pub decision: DecisionRef,
    /// Its proven author.
    #[schemars(transform = schema::filled(1024))]
    pub username: String,
    /// What they said.
    pub verdict: Verdict,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::lines(1024))]
    pub reason: Option<String>,
    /// When the decision was created.
    pub at: MicroTime,
    /// Policies, as `Kind/name` or `Kind/namespace/name`, on whose behalf it counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 64, schema::line(640)))]
    pub policies: Vec<String>,
    /// Whether it counts.
    pub counted: bool,
    /// Why it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::line(1024))]
    pub why_not: Option<String>,
}

/// An ApprovalDecision.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct DecisionRef {
    /// Its name.
    #[schemars(transform = schema::name())]
    pub name: String,
    /// Its metadata.uid.
    #[schemars(transform = schema::uid())]
    pub uid: String,
}

/// Rules at the root of the schema.
pub const RULES: &[Validation] = &[
    Validation {
        rule: "self.spec == oldSelf.spec",
        message: "a request never changes: another proposal is another request",
    },
    schema::STATUS_STAYS,
    Validation {
        rule: "!has(oldSelf.status) || !has(oldSelf.status.phase) \
               || (has(self.status) && has(self.status.phase) && self.status.phase == oldSelf.status.phase)",
        message: "`status.phase` must stay as it is once it is written: a request that ended never comes back",
    },
    Validation {
        rule: "!has(oldSelf.status) || !has(oldSelf.status.endedAt) \
               || (has(self.status) && has(self.status.endedAt) && self.status.endedAt == oldSelf.status.endedAt)",
        message: "`status.endedAt` must stay as it is once it is written",
    },
    Validation {
        rule: "!has(oldSelf.status) || !has(oldSelf.status.grant) \
               || (has(self.status) && has(self.status.grant) && self.status.grant.name == oldSelf.status.grant.name \
               && (!has(oldSelf.status.grant.uid) || (has(self.status.grant.uid) && self.status.grant.uid == oldSelf.status.grant.uid)))",
        message: "`status.grant` must stay as it is once it is written: a request has one grant, ever",
    },
    Validation {
        rule: "!has(oldSelf.status) || !has(oldSelf.status.votes) \
               || (has(self.status) && has(self.status.votes) && oldSelf.status.votes.all(before, self.status.votes.exists(now, \
               now.decision.uid == before.decision.uid && now.verdict == before.verdict && now.username == before.username)))",
        message: "`status.votes` must keep every vote with its author and verdict",
    },
];

//! Grant: the permission and its life.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    approval_request::{Base, ResolvedBinding},
    reference::{Action, Operation, PolicyRef, Requester},
    schema::{self, Validation},
};

/// What a decision permits to one agent: one exact change, so often and so long, and every use that was made of it. Made by the controller
/// out of an approved request. To end it, set `spec.revoked` to true; nothing else of it can be changed.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "grantgate.dev",
    version = "v1alpha1",
    kind = "Grant",
    namespaced,
    shortname = "gggr",
    category = "grantgate",
    status = "GrantStatus",
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Active (also when empty), Exhausted, Expired, Revoked or Stale"
    ),
    printcolumn(
        name = "Agent",
        type_ = "string",
        json_path = ".spec.requester.agent",
        description = "The agent that may use it"
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
        description = "The resource that may be changed"
    ),
    printcolumn(
        name = "Name",
        type_ = "string",
        json_path = ".spec.action.name",
        description = "The object that may be changed"
    ),
    printcolumn(
        name = "Used",
        type_ = "integer",
        json_path = ".status.used",
        description = "Uses consumed"
    ),
    printcolumn(
        name = "Uses",
        type_ = "integer",
        json_path = ".spec.uses",
        description = "Uses granted; empty: not counted"
    ),
    printcolumn(
        name = "Until",
        type_ = "string",
        json_path = ".spec.notAfter",
        description = "When it ends"
    ),
    printcolumn(
        name = "Revoked",
        type_ = "boolean",
        json_path = ".spec.revoked",
        description = "Whether a person ended it",
        priority = 1
    ),
    printcolumn(
        name = "Request",
        type_ = "string",
        json_path = ".spec.requestRef.name",
        description = "The request that it was made from",
        priority = 1
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ended\")].reason",
        description = "Why it ended",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since it was made"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct GrantSpec {
    /// The request that it was made from. The request names this grant too; a copy made later never works.
    pub request_ref: RequestRef,
    /// Digest of the requester's username, the agent and what of the action names its target. It finds the grant; it binds nothing.
    #[schemars(transform = schema::digest())]
    pub action_key: String,
    /// Who may use it: nobody else, and nobody else's rights count.
    pub requester: Requester,
    /// What it permits, and to what.
    pub action: Action,
    /// The revision of the target that the proposal was made on; absent for CREATE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
    /// Digest of the change that it permits.
    #[schemars(transform = schema::digest())]
    pub change_digest: String,
    /// The bound state as canonical JSON: path to the value that it must still have.
    #[schemars(transform = schema::raw(131_072))]
    pub state: String,
    /// Digest of the bound state.
    #[schemars(transform = schema::digest())]
    pub state_digest: String,
    /// What is bound, and how.
    pub binding: ResolvedBinding,
    /// The policies that asked, as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 64, schema::any()))]
    pub policies: Vec<PolicyRef>,
    /// Digest of the policies that matched. Another set of policies makes the grant stale.
    #[schemars(transform = schema::digest())]
    pub policy_set_hash: String,
    /// Number of uses, 1 to 1,000,000. Absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::between(1, 1_000_000))]
    pub uses: Option<i32>,
    /// From when it serves.
    pub not_before: MicroTime,
    /// Until when it serves. It may end earlier.
    pub not_after: MicroTime,
    /// Set it to true to end the grant. It never turns back. A use that was recorded before may still take effect within 34 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<bool>,
}

/// The request that a grant was minted from.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct RequestRef {
    /// Its name.
    #[schemars(transform = schema::name())]
    pub name: String,
    /// Its metadata.uid.
    #[schemars(transform = schema::uid())]
    pub uid: String,
}

/// The life of the grant. Written by grantgate.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GrantStatus {
    /// How far its life is. Absent: Active. The other words are final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<GrantPhase>,
    /// Uses consumed. It never falls and never exceeds `spec.uses`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::counted())]
    pub used: Option<i64>,
    /// Each use, by the uid of the admission review that consumed it: at most 32 that are not settled, and the newest settled ones, at most 48 together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(transform = schema::atomic_map(48))]
    pub uses: BTreeMap<String, Use>,
    /// `Ended`: whether and why it no longer serves (Spent, Expired, Revoked, StateMoved, TargetReplaced, BoundaryCrossed, PolicyChanged,
    /// AccessRemoved, RequesterReplaced, ApproverLost, KeyLost). `Settled`: whether it is known what became of every use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::conditions())]
    pub conditions: Vec<Condition>,
}

/// The life of a grant.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
pub enum GrantPhase {
    /// It serves.
    #[default]
    Active,
    /// Every use is consumed.
    Exhausted,
    /// Its time is over.
    Expired,
    /// A person ended it.
    Revoked,
    /// Something that it was bound to changed.
    Stale,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// One use of a grant: one admission.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::required("witnessMoves"))]
pub struct Use {
    /// What the API request did.
    pub operation: Operation,
    /// Id of the operation in records and messages, `op-` and 26 characters.
    #[serde(rename = "operationID")]
    #[schemars(transform = schema::filled(64))]
    pub operation_id: String,
    /// metadata.uid of the target; for CREATE the uid that the API server chose.
    #[serde(rename = "targetUID")]
    #[schemars(transform = schema::uid())]
    pub target_uid: String,
    /// API version as requested.
    #[schemars(transform = schema::filled(63))]
    pub version: String,
    /// Subresource; absent for the main resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::filled(253))]
    pub subresource: Option<String>,
    /// Digest of the whole change, also of what the binding leaves out.
    #[schemars(transform = schema::digest())]
    pub content_digest: String,
    /// Digest of the options without the grace period.
    #[schemars(transform = schema::digest())]
    pub options_digest: String,
    /// Grace period in seconds as shown, for deletions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<i64>,
    /// The revision of the target shown when the use was consumed; absent for CREATE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Base>,
    /// The revision that the use stands at now: a retry within the API server is the same use only at this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Base>,
    /// How often `shown` was moved past foreign writes, at most 10.
    #[serde(default)]
    #[schemars(transform = schema::between(0, 10))]
    pub witness_moves: i32,
    /// Digest of the policies that let it run.
    #[schemars(transform = schema::digest())]
    pub policy_set_hash: String,
    /// When it was consumed.
    pub at: MicroTime,
    /// The webhook replica that consumed it.
    #[schemars(transform = schema::line(253))]
    pub replica: String,
    /// What became of it.
    pub effect: UseEffect,
    /// When that was found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<MicroTime>,
    /// What was seen then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// What became of a use.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(transform = schema::words())]
pub enum UseEffect {
    /// Not known yet.
    Pending,
    /// The change was seen.
    Confirmed,
    /// The target still is what it was.
    NotObserved,
    /// Cannot be told.
    Unknown,
}

/// What was seen when a use was settled.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// metadata.resourceVersion of the target as seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::line(64))]
    pub resource_version: Option<String>,
    /// metadata.generation of the target as seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// metadata.uid of the target as seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::uid())]
    pub uid: Option<String>,
    /// Changed fields that held the approved value, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = schema::atomic(0, 16, schema::raw(4096)))]
    pub paths: Vec<String>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::line(1024))]
    pub message: Option<String>,
}

/// Rules at the root of the schema, beside those that freeze every member of `spec` but `revoked`. They are written with `has()`:
/// optional chaining has no size estimate, and API servers refuse it for cost.
pub const RULES: &[Validation] = &[
    Validation {
        rule: "!has(oldSelf.spec.revoked) || !oldSelf.spec.revoked || (has(self.spec.revoked) && self.spec.revoked)",
        message: "`spec.revoked` must stay true: an ended grant never comes back",
    },
    schema::STATUS_STAYS,
    Validation {
        rule: "!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase == 'Active' \
               || (has(self.status) && has(self.status.phase) && self.status.phase == oldSelf.status.phase)",
        message: "`status.phase` must stay as it is once it is final: an ended grant never comes back",
    },
    Validation {
        rule: "!has(oldSelf.status) || !has(oldSelf.status.used) \
               || (has(self.status) && has(self.status.used) && self.status.used >= oldSelf.status.used)",
        message: "`status.used` must not fall",
    },
    Validation {
        rule: "!has(self.spec.uses) || !has(self.status) || !has(self.status.used) || self.status.used <= self.spec.uses",
        message: "`status.used` must not exceed `spec.uses`",
    },
    Validation {
        rule: "(has(self.status) && has(self.status.used) ? self.status.used : 0) \
               == (has(oldSelf.status) && has(oldSelf.status.used) ? oldSelf.status.used : 0) \
               || !((has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase != 'Active') \
               || (has(oldSelf.spec.revoked) && oldSelf.spec.revoked))",
        message: "`status.used` must stay as it is: no use of a grant that has ended or was revoked",
    },
    Validation {
        rule: "!has(self.status) || !has(self.status.uses) \
               || self.status.uses.filter(use, !has(oldSelf.status) || !has(oldSelf.status.uses) || !(use in oldSelf.status.uses)).size() \
               <= (has(self.status.used) ? self.status.used : 0) \
               - (has(oldSelf.status) && has(oldSelf.status.used) ? oldSelf.status.used : 0)",
        message: "`status.used` must count every new entry of `status.uses`",
    },
    Validation {
        rule: "!has(oldSelf.status) || !has(oldSelf.status.uses) || oldSelf.status.uses.all(use, before, \
               before.effect != 'Pending' || (has(self.status) && has(self.status.uses) && use in self.status.uses))",
        message: "`status.uses` must keep every use whose effect is \"Pending\"",
    },
    // One loop and few accesses: each access to a member copies the schemas of all its siblings within the API server.
    Validation {
        rule: "!has(oldSelf.status) || !has(oldSelf.status.uses) || !has(self.status) || !has(self.status.uses) \
               || oldSelf.status.uses.all(use, before, !(use in self.status.uses) \
               || (self.status.uses[use].contentDigest == before.contentDigest \
               && self.status.uses[use].optionsDigest == before.optionsDigest \
               && self.status.uses[use].policySetHash == before.policySetHash \
               && has(self.status.uses[use].first) == has(before.first) \
               && (!has(before.first) || self.status.uses[use].first == before.first) \
               && self.status.uses[use].witnessMoves >= before.witnessMoves \
               && (before.effect == 'Pending' || self.status.uses[use].effect != 'Pending')))",
        message: "an entry of `status.uses` must keep `first`, `contentDigest`, `optionsDigest` and `policySetHash`; \
                  its `witnessMoves` must not fall, and its `effect` must not return to \"Pending\"",
    },
    Validation {
        rule: "!has(self.status) || !has(self.status.uses) || self.status.uses.all(use, use.size() == 36)",
        message: "`status.uses` must be keyed by uids of admission reviews (36 characters)",
    },
    Validation {
        rule: "!has(self.status) || !has(self.status.uses) || self.status.uses.filter(use, self.status.uses[use].effect == 'Pending').size() <= 32",
        message: "`status.uses` must hold at most 32 uses whose effect is \"Pending\"",
    },
];
